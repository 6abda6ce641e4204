"""Decides how far a requested checkpoint reset is, and what its next step is.

``spec.resetCheckpoints`` is executed once for each nonce, as a state machine over the status: StoppingWorkers
-> Committing -> Resuming -> Succeeded, or Failed. First all workers leave, and
`loghub_operator.plan.suspension` keeps them stopped. Then the operator writes one record with the previous
checkpoints and the target cursors, so that the next reconcile commits the same cursors wherever the operator
was interrupted. Finally the workers start again. `loghub_operator.plan.reposition_targets` determines and
checks all targets before that record is written, so an invalid reset changes nothing. A reset that is already
in the manifest when the object is created counts as done, because it is most likely an old one.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.patterns import unix_s
from loghub_operator.api.status import CheckpointResetPhase, CheckpointResetStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import Action, EmitEvent, KeepCheckpoints, MoveCheckpoints
from loghub_operator.model.observed import ObservedState
from loghub_operator.model.reposition import MoveObserved, MoveRecord, record_name
from loghub_operator.plan.ownership import owner_of
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.reposition_targets import TargetCursors, goals_of, same_cursor
from loghub_operator.plan.status.last_failure import refusal
from loghub_operator.resources.worker_config import drain_timeout_s

FORCE_BOUND_S = 300.0
LONGEST_MESSAGE = 1024
MOST_NAMED = 10
STOOD_THERE = (
    "not executed: it was already in the manifest when the object was created. Change the nonce to execute "
    "it; spec.startPosition says where a new group starts"
)
UNDER_WAY = (
    CheckpointResetPhase.STOPPING_WORKERS,
    CheckpointResetPhase.COMMITTING,
    CheckpointResetPhase.RESUMING,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The status to report, and the actions to carry out now."""

    status: CheckpointResetStatus | None
    actions: tuple[Action, ...] = ()


def advance(
    resource: LogHubConsumerGroup, observed: ObservedState, size: ReplicaPlan, now: float
) -> Progress:
    """The next step of the requested reset, if there is one."""
    order, last = resource.spec.reset_checkpoints, resource.status.checkpoint_reset
    if order is None:
        return _withdrawn(last, now)
    if resource.is_new and last is None:
        return _to(CheckpointResetPhase.SUCCEEDED, order.nonce, STOOD_THERE, now)
    if owner_of(resource, observed.peers) is not None or observed.service.trouble is not None:
        return Progress(last)
    if last is None or last.nonce != order.nonce:
        message = "the workers finish their batches and leave the group"
        return _to(CheckpointResetPhase.STOPPING_WORKERS, order.nonce, message, now)
    match last.phase:
        case CheckpointResetPhase.STOPPING_WORKERS:
            return _stopping(resource, observed, last, now)
        case CheckpointResetPhase.COMMITTING:
            return _forcing(resource, observed, last, now)
        case CheckpointResetPhase.RESUMING:
            return _resuming(resource, observed, size, last, now)
    return Progress(last)


def _to(
    phase: CheckpointResetPhase,
    nonce: str,
    message: str,
    now: float,
    *,
    undo: str | None = None,
    actions: tuple[Action, ...] = (),
) -> Progress:
    """Every change of phase goes through this function, which adds the event."""
    message = message[:LONGEST_MESSAGE]
    made = CheckpointResetStatus(
        nonce=nonce,
        phase=phase,
        backup_config_map=undo,
        message=message,
        last_transition_time=rfc3339(now),
    )
    kind: Literal["Normal", "Warning"] = "Warning" if phase is CheckpointResetPhase.FAILED else "Normal"
    told = EmitEvent(type=kind, reason=f"CheckpointReset{phase}", message=f"nonce {nonce}: {message}")
    return Progress(made, (*actions, told))


def _withdrawn(last: CheckpointResetStatus | None, now: float) -> Progress:
    if last is None or last.phase not in UNDER_WAY:
        return Progress(last)
    if last.phase is CheckpointResetPhase.RESUMING:  # only the start of the workers is left
        return _to(CheckpointResetPhase.SUCCEEDED, last.nonce, last.message, now, undo=last.backup_config_map)
    message = f"spec.resetCheckpoints was removed in phase {last.phase}"
    if last.backup_config_map is not None:
        message += (
            f"; some checkpoints may have changed; ConfigMap {last.backup_config_map} has the previous ones"
        )
    return _to(CheckpointResetPhase.FAILED, last.nonce, message, now, undo=last.backup_config_map)


def _waiting(last: CheckpointResetStatus, message: str) -> Progress:
    return Progress(last.model_copy(update={"message": message[:LONGEST_MESSAGE]}))


def _too_long(last: CheckpointResetStatus, bound_s: float, now: float) -> bool:
    return now - unix_s(last.last_transition_time) > bound_s


def _stopping(
    resource: LogHubConsumerGroup, observed: ObservedState, last: CheckpointResetStatus, now: float
) -> Progress:
    in_the_way = _in_the_way(observed)
    if in_the_way:
        if not _too_long(last, 3 * drain_timeout_s(resource), now):
            return _waiting(last, f"waiting: {in_the_way}")
        message = f"timed out, no checkpoint was changed: {in_the_way}"
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now)
    assert observed.move is not None  # else `_in_the_way` says so
    if observed.move.record is not None:
        return _recorded(resource, observed, observed.move.record, last, now)
    refused = refusal(resource)  # for example because of a quota of ConfigMaps
    if refused and _too_long(last, 3 * drain_timeout_s(resource), now):
        message = f"no checkpoint was changed, because the current ones could not be saved: {refused}"
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now)
    return _record(resource, observed, observed.move, last, now)


def _in_the_way(observed: ObservedState) -> str:
    """Why no checkpoint can be committed yet, or "" if it can be."""
    if observed.service.group is None:
        return "the consumer group is being created"
    if observed.workers:
        return f"{', '.join(one.name for one in islice(observed.workers, MOST_NAMED))} still exist"
    if observed.worker_set is not None and observed.worker_set.replicas > 0:
        return "the workers are being stopped"
    # The real SLS cannot report live consumers; there the operator knows only its own pods.
    held = [one for one in observed.service.shards if one.holder]
    if observed.service.consumers is not None and held:
        return "shards are still held: " + ", ".join(
            f"shard {one.shard} by {one.holder}" for one in held[:MOST_NAMED]
        )
    if observed.move is None:
        return "the target cursors are being read"
    return observed.move.trouble


def _record(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    move: MoveObserved,
    last: CheckpointResetStatus,
    now: float,
) -> Progress:
    assert resource.spec.reset_checkpoints is not None
    goals = goals_of(resource.spec.reset_checkpoints, observed.service.shards, move)
    if goals.problem:
        return _to(
            CheckpointResetPhase.FAILED, last.nonce, f"no checkpoint was changed: {goals.problem}", now
        )
    record = MoveRecord(
        ordered_at=last.last_transition_time, before=_before(observed, goals), goals=goals.cursors
    )
    keep = KeepCheckpoints(name=record_name(resource), record=record)
    return Progress(last.model_copy(update={"message": "the current checkpoints are being saved"}), (keep,))


def _before(observed: ObservedState, goals: TargetCursors) -> dict[int, str]:
    return {one.shard: one.checkpoint for one in observed.service.shards if one.shard in goals.cursors}


def _recorded(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    record: MoveRecord,
    last: CheckpointResetStatus,
    now: float,
) -> Progress:
    name = record_name(resource)
    if record.ordered_at != last.last_transition_time:
        message = (
            f"no checkpoint was changed, because nonce {last.nonce} was used before (ConfigMap {name});"
            " choose another"
        )
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now)
    message = f"{len(record.goals)} checkpoints are being committed; ConfigMap {name} has the previous ones"
    moves = _moves(observed, record)
    actions = (MoveCheckpoints(moves),) if moves else ()
    return _to(CheckpointResetPhase.COMMITTING, last.nonce, message, now, undo=name, actions=actions)


def _moves(observed: ObservedState, record: MoveRecord) -> tuple[tuple[int, str], ...]:
    """The checkpoints that are not at their target yet; a shard that no longer exists needs no checkpoint."""
    there = {one.shard: one.checkpoint for one in observed.service.shards}
    return tuple(
        (shard, cursor)
        for shard, cursor in sorted(record.goals.items())
        if shard in there and not same_cursor(there[shard], cursor)
    )


def _forcing(
    resource: LogHubConsumerGroup, observed: ObservedState, last: CheckpointResetStatus, now: float
) -> Progress:
    if observed.move is None:
        return Progress(last)
    record, undo = observed.move.record, last.backup_config_map
    if observed.move.trouble:
        if not _too_long(last, FORCE_BOUND_S, now):
            return _waiting(last, f"waiting: {observed.move.trouble}")
        message = f"{observed.move.trouble}; some checkpoints may have changed"
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now, undo=undo)
    if record is None:
        message = (
            f"ConfigMap {undo} was deleted while the checkpoints were being committed; some may have changed"
        )
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now)
    moves = _moves(observed, record)
    if not moves:
        phase = CheckpointResetPhase.SUCCEEDED if resource.spec.suspend else CheckpointResetPhase.RESUMING
        return _to(phase, last.nonce, _moved(record, undo), now, undo=undo)
    # Only a rejection fails the reset: after an outage the record is carried out as at any other time.
    if refusal(resource) and _too_long(last, FORCE_BOUND_S, now):
        shards = ", ".join(str(shard) for shard, _ in moves[:MOST_NAMED])
        message = (
            f"the log service rejects the checkpoints of shards {shards}; ConfigMap {undo} has the previous"
            " ones"
        )
        return _to(CheckpointResetPhase.FAILED, last.nonce, message, now, undo=undo)
    return Progress(last, (MoveCheckpoints(moves),))


def _moved(record: MoveRecord, undo: str | None) -> str:
    shards = ", ".join(map(str, sorted(record.goals)[:MOST_NAMED]))
    more = f" and {len(record.goals) - MOST_NAMED} more" if len(record.goals) > MOST_NAMED else ""
    return f"reset the checkpoints of shards {shards}{more}; ConfigMap {undo} has the previous ones"


def _resuming(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    size: ReplicaPlan,
    last: CheckpointResetStatus,
    now: float,
) -> Progress:
    """Waits until the workers are ready again; if none should run, there is nothing to wait for."""
    replicas = 0 if observed.worker_set is None else observed.worker_set.replicas
    ready = sum(worker.ready for worker in observed.workers)
    if resource.spec.suspend or (replicas == size.target and ready >= size.target):
        return _to(CheckpointResetPhase.SUCCEEDED, last.nonce, last.message, now, undo=last.backup_config_map)
    return Progress(last)
