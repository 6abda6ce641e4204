"""With how many workers mode Auto goes on after all were stopped, or after the StatefulSet was deleted."""

import dataclasses
from typing import Any

import pytest

from loghub_operator.api.status import ScalingStatus, ScalingStep, Status
from loghub_operator.model.actions import Action, ApplyWorkers, DrainWorker, RestartWorker
from tests.loghub_operator.plan.group_of_sixteen import observed
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH
from tests.loghub_operator.support.rounds import plan

AUTO = {"scaling": {"mode": "Auto"}, "replicas": 1}


def _applied(actions: tuple[Action, ...]) -> list[int]:
    return [one.replicas for one in actions if isinstance(one, ApplyWorkers)]


def test_pods_without_their_statefulset_are_the_present_number() -> None:
    """As after `kubectl delete statefulset --cascade=orphan`."""
    planned = plan(resource(AUTO), observed(pods=8), EPOCH)
    assert _applied(planned.actions) == [8]
    assert not any(isinstance(one, DrainWorker) for one in planned.actions)
    assert planned.status.workers == "8/8"


def test_fewer_workers_than_orphaned_pods_are_reached_by_draining() -> None:
    planned = plan(resource({"replicas": 6}), observed(pods=8), EPOCH)
    assert _applied(planned.actions) == [8]
    assert DrainWorker("access-7") in planned.actions


def test_orphaned_pods_of_a_suspended_group_drain_and_are_stopped() -> None:
    suspended = resource({"suspend": True})
    drained = plan(suspended, observed(pods=2), EPOCH)
    assert [one for one in drained.actions if isinstance(one, DrainWorker)] != []
    assert _applied(drained.actions) == []
    assert _applied(plan(suspended, observed(pods=2, left=True), EPOCH).actions) == [0]
    assert _applied(plan(suspended, observed(), EPOCH).actions) == []


def after(*history: tuple[str, int, int, str], mode: Any = "Auto") -> Status:
    """A status with these steps, newest first."""
    when = "2026-09-21T14:13:20Z"
    known = tuple(
        ScalingStep(target=target, time=when, from_=before, to=now, reason=reason)  # type: ignore[arg-type]
        for target, before, now, reason in history
    )
    return Status(
        observed_generation=1,
        scaling=ScalingStatus(mode=mode, desired_replicas=0, reason="Suspended", history=known),
    )


@pytest.mark.parametrize(
    ("history", "begins"),
    [
        ([("Workers", 16, 0, "Suspended")], 16),
        ([("Shards", 15, 16, "ShardSplit"), ("Workers", 12, 0, "Suspended")], 12),
        ([("Workers", 60, 0, "Suspended")], 16),  # the shards bound it
        ([("Workers", 5, 0, "OutsideBounds"), ("Workers", 16, 0, "Suspended")], 1),
        ([], 1),
    ],
)
def test_after_a_suspension_auto_begins_with_the_number_of_before(
    history: list[tuple[str, int, int, str]], begins: int
) -> None:
    found = resource(AUTO).model_copy(update={"status": after(*history)})
    assert _applied(plan(found, observed(replicas=0), EPOCH).actions) == [begins]


@pytest.mark.parametrize("pods", [1, 2, 8])
@pytest.mark.parametrize("asked", ["all", "all but the highest", "the lowest", "none"])
def test_a_suspension_that_ends_while_workers_drain_leaves_their_number(pods: int, asked: str) -> None:
    """So does a checkpoint reset that is removed, and a drain that a user requested; `replicas` says 1."""
    drained = {"all": range(pods), "all but the highest": range(pods - 1), "the lowest": [0], "none": []}
    found = observed(pods=pods, replicas=pods)
    workers = tuple(
        dataclasses.replace(one, drain_requested=True, drain_requested_at_unix_s=EPOCH)
        if one.ordinal in drained[asked]
        else one
        for one in found.workers
    )
    planned = plan(resource(AUTO), dataclasses.replace(found, workers=workers), EPOCH)
    asked_again = [one for one in planned.actions if isinstance(one, RestartWorker)]
    assert asked_again == [RestartWorker(f"access-{ordinal}") for ordinal in drained[asked]]
    assert (_applied(planned.actions), planned.status.workers) == ([], f"{pods}/{pods}")
    assert not any(isinstance(one, DrainWorker) for one in planned.actions)


@pytest.mark.parametrize(("lag", "begins"), [(1000, [7]), (0, [])])
def test_with_scale_to_zero_only_lag_starts_them_again(lag: int, begins: list[int]) -> None:
    scaling = {"mode": "Auto", "scaleToZero": {"idleSeconds": 60}}
    found = resource({"scaling": scaling}).model_copy(
        update={"status": after(("Workers", 7, 0, "Suspended"))}
    )
    assert _applied(plan(found, observed(replicas=0, lag=lag), EPOCH).actions) == begins
