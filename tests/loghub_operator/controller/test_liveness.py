"""Alive is who works: each trouble, and the program whose rounds hang."""

import pytest

from loghub_operator.controller.liveness import Doing, HealthInputs, TaskHealth, bound_s, troubles

BOUND_S = 120.0


def pulse(doing: Doing, since_s: float) -> TaskHealth:
    return TaskHealth(group="ns/access", doing=doing, since_s=since_s)


@pytest.mark.parametrize(
    ("vitals", "expected"),
    [
        (HealthInputs(leading=True), ()),
        (HealthInputs(leading=False, lease_turned_s=970.0), ()),
        (HealthInputs(leading=False, lease_turned_s=969.0), ("the lease was last checked 31 s ago",)),
        (HealthInputs(leading=True, lease_turned_s=969.0), ("the lease was last checked 31 s ago",)),
        (HealthInputs(leading=True, pulses=(pulse(Doing.RUNNING, 880.0),)), ()),
        (
            HealthInputs(leading=True, pulses=(pulse(Doing.RUNNING, 879.0),)),
            ("ns/access is in one round for 121 s",),
        ),
        (HealthInputs(leading=True, pulses=(pulse(Doing.RESTING, 1010.0),)), ()),
        (
            HealthInputs(leading=True, pulses=(pulse(Doing.RESTING, 879.0),)),
            ("ns/access was due for a round since 121 s",),
        ),
        (HealthInputs(leading=True, round_ended_s=990.0, pulses=(pulse(Doing.QUEUED, 500.0),)), ()),
        (
            HealthInputs(leading=True, round_ended_s=870.0, pulses=(pulse(Doing.QUEUED, 500.0),)),
            ("ns/access waits, and no round ended, for 130 s",),
        ),
        (HealthInputs(leading=False, pulses=(pulse(Doing.RUNNING, 0.0),), not_told=("ns/access",)), ()),
        (HealthInputs(leading=True, not_told=("ns/access",)), ("the watch does not report ns/access",)),
    ],
)
def test_each_case(vitals: HealthInputs, expected: tuple[str, ...]) -> None:
    assert troubles(vitals, now=1000.0, bound_s=BOUND_S) == expected


def test_the_bound_follows_the_resync() -> None:
    assert bound_s(10.0) == 120.0
    assert bound_s(100.0) == 300.0


def test_many_troubles_are_told_of_a_few() -> None:
    many = tuple(TaskHealth(group=f"g{n}", doing=Doing.RUNNING, since_s=0.0) for n in range(500))
    assert len(troubles(HealthInputs(leading=True, pulses=many), now=1000.0, bound_s=BOUND_S)) == 5
