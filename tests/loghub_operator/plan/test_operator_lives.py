"""The random lives of `tests.loghub_operator.plan.operator_lives`, and decisions that were once missing."""

import pytest

from loghub_operator.plan import deletion, ownership, subject
from tests.loghub_operator.plan.operator_lives import run
from tests.suite.seed import of_run

SEEDS = range(17, 25)  # the last finds the first of the planted faults


def _lives(seeds: range) -> dict[str, int]:
    total: dict[str, int] = {}
    for seed in seeds:
        try:
            happened = run(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
        for what, times in happened.items():
            total[what] = total.get(what, 0) + times
    return total


@pytest.mark.long
def test_random_lives_of_objects_that_share_groups() -> None:
    happened = _lives(SEEDS)
    assert {"CommitCheckpoints", "CreateGroup", "DrainWorker", "RemoveFinalizer", "killed"} <= set(happened)


@pytest.mark.deep(minutes=20)
def test_many_random_lives_of_objects_that_share_groups() -> None:
    begin = of_run() * 1_000_000
    assert _lives(range(begin, begin + 2000))["DeleteGroup"] > 100


PLANTED = {
    "a group is deleted under its consumers": (deletion, "consumers_without_pods", lambda *_: ()),
    "a proof has the time of the clock": (ownership, "_after", lambda _, now: ownership.rfc3339(now)),
    "workers of elsewhere count": (subject, "is_recorded_elsewhere", lambda _: False),
}


@pytest.mark.deep(minutes=10)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    for seed in range(1000):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail("not found")
