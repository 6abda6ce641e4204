"""Alive means making progress: each problem, and its bound."""

import pytest

from loghub_operator.controller.liveness import HealthInputs, TaskHealth, TaskState, bound_s, problems

BOUND_S = 120.0


def task(state: TaskState, since_s: float) -> TaskHealth:
    return TaskHealth(group="ns/access", state=state, since_s=since_s)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (HealthInputs(leading=True), ()),
        (HealthInputs(leading=False, lease_checked_s=970.0), ()),
        (HealthInputs(leading=False, lease_checked_s=969.0), ("the lease was last checked 31 s ago",)),
        (HealthInputs(leading=True, lease_checked_s=969.0), ("the lease was last checked 31 s ago",)),
        (HealthInputs(leading=True, tasks=(task(TaskState.RUNNING, 880.0),)), ()),
        (
            HealthInputs(leading=True, tasks=(task(TaskState.RUNNING, 879.0),)),
            ("ns/access has been reconciling for 121 s",),
        ),
        (HealthInputs(leading=True, tasks=(task(TaskState.IDLE, 1010.0),)), ()),
        (
            HealthInputs(leading=True, tasks=(task(TaskState.IDLE, 879.0),)),
            ("ns/access has been due for a reconcile for 121 s",),
        ),
        (HealthInputs(leading=True, reconcile_ended_s=990.0, tasks=(task(TaskState.QUEUED, 500.0),)), ()),
        (
            HealthInputs(leading=True, reconcile_ended_s=870.0, tasks=(task(TaskState.QUEUED, 500.0),)),
            ("ns/access is queued, and no reconcile has ended, for 130 s",),
        ),
        (HealthInputs(leading=False, tasks=(task(TaskState.RUNNING, 0.0),), unreported=("ns/access",)), ()),
        (HealthInputs(leading=True, unreported=("ns/access",)), ("the watch does not report ns/access",)),
    ],
)
def test_each_case_gives_the_expected_result(inputs: HealthInputs, expected: tuple[str, ...]) -> None:
    assert problems(inputs, now=1000.0, bound_s=BOUND_S) == expected


def test_the_bound_follows_the_resync() -> None:
    assert bound_s(10.0) == 120.0
    assert bound_s(100.0) == 300.0


def test_the_number_of_reported_problems_is_bounded() -> None:
    many = tuple(TaskHealth(group=f"g{n}", state=TaskState.RUNNING, since_s=0.0) for n in range(500))
    assert len(problems(HealthInputs(leading=True, tasks=many), now=1000.0, bound_s=BOUND_S)) == 5
