"""When a group is looked at again."""

from typing import Any

import pytest

from loghub_operator.api.status import (
    CheckpointResetPhase,
    CheckpointResetStatus,
    Lag,
    Phase,
    ScalingStatus,
    ShardStatus,
    Status,
)
from loghub_operator.controller.requeue import ON_ITS_WAY_S, SOON_S, UNSETTLED_S, jitter, requeue_after_s
from loghub_operator.model.actions import EmitEvent
from loghub_operator.plan.status.write_policy import LAG_EVERY_S

RESYNC_S = 30.0
HELD = ShardStatus(id=0, state="already_alloc", consumer="a-0")


def status(phase: Phase, *, ready: int = 1, lag: int = 0, state: str = "already_alloc") -> Status:
    shard = HELD.model_copy(update={"state": state})
    return Status(phase=phase, replicas=1, ready_replicas=ready, lag=Lag(logs=lag), shards=(shard,))


def moving(phase: Phase, step: CheckpointResetPhase) -> Status:
    order = CheckpointResetStatus(
        nonce="1", phase=step, message="", last_transition_time="2026-01-01T00:00:00Z"
    )
    return status(phase).model_copy(update={"checkpoint_reset": order})


@pytest.mark.parametrize(
    ("told", "unchanged", "expected_s"),
    [
        (status(Phase.RUNNING), 0, RESYNC_S),
        (status(Phase.RUNNING, lag=7), 9, LAG_EVERY_S),
        # Nobody tells when a transfer or a leave ends.
        (status(Phase.REBALANCING), 0, UNSETTLED_S),
        (status(Phase.REBALANCING), 1, 2 * UNSETTLED_S),
        (status(Phase.REBALANCING), 10_000, ON_ITS_WAY_S),
        (status(Phase.TERMINATING), 0, UNSETTLED_S),
        (status(Phase.TERMINATING), 10_000, ON_ITS_WAY_S),
        (moving(Phase.DEGRADED, CheckpointResetPhase.STOPPING_WORKERS), 0, UNSETTLED_S),
        (moving(Phase.DEGRADED, CheckpointResetPhase.STOPPING_WORKERS), 10_000, ON_ITS_WAY_S),
        (moving(Phase.SUSPENDED, CheckpointResetPhase.COMMITTING), 10_000, ON_ITS_WAY_S),
        # The StatefulSet tells when workers are back.
        (moving(Phase.DEGRADED, CheckpointResetPhase.RESUMING), 10_000, RESYNC_S),
        (moving(Phase.RUNNING, CheckpointResetPhase.SUCCEEDED), 0, RESYNC_S),
        # Nobody tells when a worker takes its first shard.
        (status(Phase.RUNNING, state="not_alloc"), 0, UNSETTLED_S),
        (status(Phase.PENDING, ready=0), 0, UNSETTLED_S),
        (status(Phase.PENDING, ready=0), 2, 4 * UNSETTLED_S),
        (status(Phase.PENDING, ready=0), 10_000, RESYNC_S),
        (status(Phase.DEGRADED), 10_000, RESYNC_S),
    ],
)
def test_soon_where_something_moves_and_ever_later_where_nothing_does(
    told: Status, unchanged: int, expected_s: float
) -> None:
    assert requeue_after_s((), told, unchanged=unchanged, resync_s=RESYNC_S) == expected_s


def test_what_is_on_its_way_is_never_looked_for_later_than_at_the_resync() -> None:
    assert requeue_after_s((), status(Phase.REBALANCING), unchanged=9, resync_s=1.0) == 1.0


@pytest.mark.parametrize(
    ("mode", "expected_s"),
    [("Fixed", RESYNC_S), ("Auto", LAG_EVERY_S), ("Recommend", LAG_EVERY_S), ("External", LAG_EVERY_S)],
)
def test_who_decides_by_the_load_is_told_of_it_soon(mode: Any, expected_s: float) -> None:
    scaling = ScalingStatus(mode=mode, desired_replicas=1, reason="X")
    told = status(Phase.RUNNING).model_copy(update={"scaling": scaling})
    assert requeue_after_s((), told, unchanged=9, resync_s=RESYNC_S) == expected_s


def test_what_was_changed_is_looked_at_at_once() -> None:
    event = EmitEvent(type="Normal", reason="X", message="")
    assert requeue_after_s((event,), status(Phase.RUNNING), unchanged=0, resync_s=RESYNC_S) == SOON_S


def test_groups_do_not_stay_in_step() -> None:
    pauses = {jitter(RESYNC_S, f"default/group-{number}") for number in range(100)}
    assert len(pauses) == 100
    assert 0.75 * RESYNC_S <= min(pauses) < max(pauses) <= RESYNC_S
