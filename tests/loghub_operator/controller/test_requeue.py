"""When a group is observed again."""

from typing import Any

import pytest

from loghub_operator.api.status import (
    CheckpointResetPhase,
    CheckpointResetStatus,
    Condition,
    Lag,
    Phase,
    ScalingStatus,
    ShardStatus,
    Status,
)
from loghub_operator.controller.requeue import (
    IN_PROGRESS_S,
    LOAD_EVERY_S,
    SOON_S,
    THROTTLED_S,
    UNSETTLED_S,
    jitter,
    requeue_after_s,
)
from loghub_operator.model.actions import EmitEvent

RESYNC_S = 30.0
THEN = "2026-01-01T00:00:00Z"
ASSIGNED = ShardStatus(id=0, state="already_alloc", consumer="a-0")


def status(phase: Phase, *, ready: int = 1, lag: int = 0, state: str = "already_alloc") -> Status:
    shard = ASSIGNED.model_copy(update={"state": state})
    return Status(phase=phase, replicas=1, ready_replicas=ready, lag=Lag(logs=lag), shards=(shard,))


def waiting(
    phase: Phase,
    reason: str,
    *,
    ready: int = 0,
    synced: bool = True,
    state: str = "already_alloc",
    lag: int = 0,
) -> Status:
    """A group whose workers are not available for this reason."""
    conditions = tuple(
        Condition(
            type=kind, status="True" if good else "False", reason=why, message="", last_transition_time=THEN
        )
        for kind, good, why in (("GroupSynced", synced, "X"), ("WorkersAvailable", False, reason))
    )
    return status(phase, ready=ready, lag=lag, state=state).model_copy(
        update={"conditions": conditions, "replicas": ready + 1}
    )


def rolling() -> Status:
    """Every worker is ready, and some still run with earlier settings."""
    before = waiting(Phase.UPDATING, "AllWorkersReady", ready=1)
    good = tuple(one.model_copy(update={"status": "True"}) for one in before.conditions)
    return before.model_copy(update={"conditions": good, "replicas": 1})


def moving(phase: Phase, step: CheckpointResetPhase) -> Status:
    order = CheckpointResetStatus(nonce="1", phase=step, message="", last_transition_time=THEN)
    return status(phase).model_copy(update={"checkpoint_reset": order})


@pytest.mark.parametrize(
    ("status_", "unchanged", "expected_s"),
    [
        (status(Phase.RUNNING), 0, RESYNC_S),
        (status(Phase.RUNNING, lag=7), 9, RESYNC_S),
        # No watch reports the end of a transfer or a leave.
        (status(Phase.REBALANCING), 0, UNSETTLED_S),
        (status(Phase.REBALANCING), 1, 2 * UNSETTLED_S),
        (status(Phase.REBALANCING), 10_000, IN_PROGRESS_S),
        (status(Phase.TERMINATING), 0, UNSETTLED_S),
        (status(Phase.TERMINATING), 10_000, IN_PROGRESS_S),
        (moving(Phase.DEGRADED, CheckpointResetPhase.STOPPING_WORKERS), 0, UNSETTLED_S),
        (moving(Phase.DEGRADED, CheckpointResetPhase.STOPPING_WORKERS), 10_000, IN_PROGRESS_S),
        (moving(Phase.SUSPENDED, CheckpointResetPhase.COMMITTING), 10_000, IN_PROGRESS_S),
        # The pods report when workers are back.
        (moving(Phase.DEGRADED, CheckpointResetPhase.RESUMING), 10_000, RESYNC_S),
        (moving(Phase.RUNNING, CheckpointResetPhase.SUCCEEDED), 0, RESYNC_S),
        # No watch reports that a worker takes its first shard.
        (status(Phase.RUNNING, state="not_alloc"), 0, UNSETTLED_S),
        # The pods are watched; Secrets, ConfigMaps and the log service are not.
        (waiting(Phase.PENDING, "WorkersNotReady"), 0, RESYNC_S),
        (waiting(Phase.RUNNING, "WorkersNotReady", ready=1), 0, RESYNC_S),
        # The workers that are ready consume meanwhile, so their load is followed as usual.
        (waiting(Phase.RUNNING, "WorkersNotReady", ready=1, lag=7), 0, RESYNC_S),
        (waiting(Phase.PENDING, "WorkersNotReady", lag=7), 0, RESYNC_S),
        (waiting(Phase.DEGRADED, "ImagePullBackOff"), 0, RESYNC_S),
        (waiting(Phase.UPDATING, "WorkersNotReady", ready=1), 0, RESYNC_S),
        (rolling(), 0, RESYNC_S),
        (waiting(Phase.PENDING, "WorkersNotReady", synced=False), 0, UNSETTLED_S),
        (waiting(Phase.PENDING, "PipelineCodeNotFound"), 0, UNSETTLED_S),
        (waiting(Phase.PENDING, "LogServiceUnavailable"), 0, UNSETTLED_S),
        (waiting(Phase.DEGRADED, "OOMKilled", ready=1, state="not_alloc"), 0, UNSETTLED_S),
        (waiting(Phase.REBALANCING, "WorkersNotReady"), 0, UNSETTLED_S),
        (waiting(Phase.TERMINATING, "Terminating"), 10_000, IN_PROGRESS_S),
        (status(Phase.PENDING, ready=0), 0, UNSETTLED_S),
        (status(Phase.PENDING, ready=0), 2, 4 * UNSETTLED_S),
        (status(Phase.PENDING, ready=0), 10_000, RESYNC_S),
        (status(Phase.DEGRADED), 10_000, RESYNC_S),
    ],
)
def test_polled_soon_while_something_changes_and_later_while_nothing_does(
    status_: Status, unchanged: int, expected_s: float
) -> None:
    assert requeue_after_s((), status_, unchanged=unchanged, resync_s=RESYNC_S) == expected_s


def test_an_operation_in_progress_is_never_polled_later_than_at_the_resync() -> None:
    assert requeue_after_s((), status(Phase.REBALANCING), unchanged=9, resync_s=1.0) == 1.0


@pytest.mark.parametrize(
    ("mode", "expected_s"),
    [("Fixed", RESYNC_S), ("Auto", LOAD_EVERY_S), ("Recommend", LOAD_EVERY_S), ("External", LOAD_EVERY_S)],
)
def test_a_group_that_scales_by_load_is_observed_more_often(mode: Any, expected_s: float) -> None:
    scaling = ScalingStatus(mode=mode, desired_replicas=1, reason="X")
    status_ = status(Phase.RUNNING).model_copy(update={"scaling": scaling})
    assert requeue_after_s((), status_, unchanged=9, resync_s=RESYNC_S) == expected_s


def test_a_group_that_was_changed_is_observed_soon() -> None:
    event = EmitEvent(type="Normal", reason="X", message="")
    assert requeue_after_s((event,), status(Phase.RUNNING), unchanged=0, resync_s=RESYNC_S) == SOON_S


def test_groups_do_not_stay_in_step() -> None:
    pauses = {jitter(RESYNC_S, f"default/group-{number}") for number in range(100)}
    assert len(pauses) == 100
    assert 0.75 * RESYNC_S <= min(pauses) < max(pauses) <= RESYNC_S


def test_a_log_service_that_asks_for_fewer_requests_gets_fewer_and_fewer() -> None:
    """Also while something is left to do, which would be tried every second."""
    throttled = waiting(Phase.DEGRADED, "AllWorkersReady", ready=1)
    conditions = tuple(one.model_copy(update={"reason": "Throttled"}) for one in throttled.conditions)
    given = throttled.model_copy(update={"conditions": conditions})
    event = EmitEvent(type="Normal", reason="X", message="x")
    pauses = [
        requeue_after_s((event,), given, unchanged=unchanged, resync_s=RESYNC_S) for unchanged in range(5)
    ]
    assert pauses == [30.0, 60.0, 120.0, 240.0, THROTTLED_S]
