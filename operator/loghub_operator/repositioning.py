"""How far an order to move checkpoints is, and its next step.

What for: ``spec.reposition``, once for each nonce, as a state machine over the status. What it must
not know: how a checkpoint is forced, where the record is kept. Read next: `loghub_operator.goals`
(where the order leads), `loghub_operator.pausing` (why the workers stay away meanwhile).

Stopping -> Forcing -> Resuming -> Done, or Failed. Everybody leaves; then one record is written with
the checkpoints of before and the goals, so that whatever ends the operator between any two steps,
the next round forces the same cursors; then the workers come back. All goals are known and
checked before that record is written, so an order that makes no sense moves nothing. An order that
stands there when the object is made counts as done: it is most likely an old one, in a manifest.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from loghub_operator.api.patterns import unix_s
from loghub_operator.api.status import RepositionPhase, RepositionStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.conditions import rfc3339
from loghub_operator.goals import Goals, goals_of, same_cursor
from loghub_operator.model import (
    Action,
    EmitEvent,
    KeepCheckpoints,
    MoveCheckpoints,
    MoveObserved,
    MoveRecord,
    Observed,
)
from loghub_operator.ownership import owner_of
from loghub_operator.sizing import Size
from loghub_operator.telling import refusal
from loghub_operator.workers import leave_bound_s

FORCE_BOUND_S = 300.0
LONGEST_MESSAGE = 1024
MOST_NAMED = 10
STOOD_THERE = (
    "not carried out: it stood there when the object was made. Change the nonce to have it carried out; "
    "where a new group begins is said by initialPosition"
)
UNDER_WAY = (RepositionPhase.STOPPING, RepositionPhase.FORCING, RepositionPhase.RESUMING)


@dataclass(frozen=True, slots=True)
class Progress:
    """What to tell, and what to do now."""

    status: RepositionStatus | None
    actions: tuple[Action, ...] = ()


def needs_a_look(resource: LogHubConsumerGroup) -> bool:
    """Is an order in a phase in which `Observed.move` is asked for?"""
    last = resource.status.reposition
    if last is None or last.nonce != resource.spec.reposition_nonce:
        return False
    return last.phase in (RepositionPhase.STOPPING, RepositionPhase.FORCING)


def record_name(resource: LogHubConsumerGroup) -> str:
    """Of the ConfigMap that this order leaves for undo."""
    return f"{resource.metadata.name}-undo-{resource.spec.reposition_nonce}"


def reposition(resource: LogHubConsumerGroup, observed: Observed, size: Size, now: float) -> Progress:
    """The next step of the order, if there is one."""
    order, last = resource.spec.reposition, resource.status.reposition
    if order is None:
        return _withdrawn(last, now)
    if resource.is_new and last is None:
        return _to(RepositionPhase.DONE, order.nonce, STOOD_THERE, now)
    if owner_of(resource, observed.peers) is not None or observed.service.trouble is not None:
        return Progress(last)
    if last is None or last.nonce != order.nonce:
        message = "the workers finish what they have and leave"
        return _to(RepositionPhase.STOPPING, order.nonce, message, now)
    match last.phase:
        case RepositionPhase.STOPPING:
            return _stopping(resource, observed, last, now)
        case RepositionPhase.FORCING:
            return _forcing(resource, observed, last, now)
        case RepositionPhase.RESUMING:
            return _resuming(resource, observed, size, last, now)
    return Progress(last)


def _to(
    phase: RepositionPhase,
    nonce: str,
    message: str,
    now: float,
    *,
    undo: str | None = None,
    actions: tuple[Action, ...] = (),
) -> Progress:
    """Every change of phase comes by here, and is told."""
    message = message[:LONGEST_MESSAGE]
    made = RepositionStatus(nonce=nonce, phase=phase, undo=undo, message=message, at=rfc3339(now))
    kind: Literal["Normal", "Warning"] = "Warning" if phase is RepositionPhase.FAILED else "Normal"
    told = EmitEvent(type=kind, reason=f"Reposition{phase}", message=f"nonce {nonce}: {message}")
    return Progress(made, (*actions, told))


def _withdrawn(last: RepositionStatus | None, now: float) -> Progress:
    if last is None or last.phase not in UNDER_WAY:
        return Progress(last)
    if last.phase is RepositionPhase.RESUMING:  # nothing is left of it but the workers' way back
        return _to(RepositionPhase.DONE, last.nonce, last.message, now, undo=last.undo)
    message = f"spec.reposition was taken away in phase {last.phase}"
    if last.undo is not None:
        message += f"; some checkpoints may have been moved, {last.undo} has those of before"
    return _to(RepositionPhase.FAILED, last.nonce, message, now, undo=last.undo)


def _waiting(last: RepositionStatus, message: str) -> Progress:
    return Progress(last.model_copy(update={"message": message[:LONGEST_MESSAGE]}))


def _too_long(last: RepositionStatus, bound_s: float, now: float) -> bool:
    return now - unix_s(last.at) > bound_s


def _stopping(
    resource: LogHubConsumerGroup, observed: Observed, last: RepositionStatus, now: float
) -> Progress:
    in_the_way = _in_the_way(observed)
    if in_the_way:
        if not _too_long(last, 3 * leave_bound_s(resource), now):
            return _waiting(last, f"waiting: {in_the_way}")
        message = f"nothing was moved, since it lasted too long: {in_the_way}"
        return _to(RepositionPhase.FAILED, last.nonce, message, now)
    assert observed.move is not None  # `_in_the_way`
    if observed.move.record is not None:
        return _recorded(resource, observed, observed.move.record, last, now)
    refused = refusal(resource)  # a quota of ConfigMaps, say
    if refused and _too_long(last, 3 * leave_bound_s(resource), now):
        message = f"nothing was moved, since the checkpoints of now could not be kept: {refused}"
        return _to(RepositionPhase.FAILED, last.nonce, message, now)
    return _record(resource, observed, observed.move, last, now)


def _in_the_way(observed: Observed) -> str:
    """Why no checkpoint can be forced yet; "" if it can."""
    if observed.service.group is None:
        return "the group is being made"
    if observed.workers:
        return f"{', '.join(one.name for one in islice(observed.workers, MOST_NAMED))} not gone yet"
    if observed.worker_set is not None and observed.worker_set.replicas > 0:
        return "the workers are being stopped"
    # The real SLS cannot say who is alive; there our pods are all that we know of.
    held = [one for one in observed.service.shards if one.holder]
    if observed.service.consumers is not None and held:
        return "held by " + ", ".join(f"{one.holder}: shard {one.shard}" for one in held[:MOST_NAMED])
    if observed.move is None:
        return "the positions are being asked for"
    return observed.move.trouble


def _record(
    resource: LogHubConsumerGroup,
    observed: Observed,
    move: MoveObserved,
    last: RepositionStatus,
    now: float,
) -> Progress:
    assert resource.spec.reposition is not None
    goals = goals_of(resource.spec.reposition, observed.service.shards, move)
    if goals.problem:
        return _to(RepositionPhase.FAILED, last.nonce, f"nothing was moved: {goals.problem}", now)
    record = MoveRecord(ordered_at=last.at, before=_before(observed, goals), goals=goals.cursors)
    keep = KeepCheckpoints(name=record_name(resource), record=record)
    return Progress(last.model_copy(update={"message": "the checkpoints of now are kept"}), (keep,))


def _before(observed: Observed, goals: Goals) -> dict[int, str]:
    return {one.shard: one.checkpoint for one in observed.service.shards if one.shard in goals.cursors}


def _recorded(
    resource: LogHubConsumerGroup,
    observed: Observed,
    record: MoveRecord,
    last: RepositionStatus,
    now: float,
) -> Progress:
    name = record_name(resource)
    if record.ordered_at != last.at:
        message = f"nonce {last.nonce} was used before ({name} is of then), nothing was moved; give another"
        return _to(RepositionPhase.FAILED, last.nonce, message, now)
    message = f"{len(record.goals)} checkpoints are forced; {name} has those of before"
    moves = _moves(observed, record)
    actions = (MoveCheckpoints(moves),) if moves else ()
    return _to(RepositionPhase.FORCING, last.nonce, message, now, undo=name, actions=actions)


def _moves(observed: Observed, record: MoveRecord) -> tuple[tuple[int, str], ...]:
    """What is not yet where it should be; a shard that is gone needs no checkpoint."""
    there = {one.shard: one.checkpoint for one in observed.service.shards}
    return tuple(
        (shard, cursor)
        for shard, cursor in sorted(record.goals.items())
        if shard in there and not same_cursor(there[shard], cursor)
    )


def _forcing(
    resource: LogHubConsumerGroup, observed: Observed, last: RepositionStatus, now: float
) -> Progress:
    if observed.move is None:
        return Progress(last)
    record, undo = observed.move.record, last.undo
    if observed.move.trouble:
        if not _too_long(last, FORCE_BOUND_S, now):
            return _waiting(last, f"waiting: {observed.move.trouble}")
        message = f"{observed.move.trouble}; some checkpoints may have been moved"
        return _to(RepositionPhase.FAILED, last.nonce, message, now, undo=undo)
    if record is None:
        message = f"{undo} was removed while the checkpoints were forced; some may have been moved"
        return _to(RepositionPhase.FAILED, last.nonce, message, now)
    moves = _moves(observed, record)
    if not moves:
        phase = RepositionPhase.DONE if resource.spec.suspend else RepositionPhase.RESUMING
        return _to(phase, last.nonce, _moved(record, undo), now, undo=undo)
    # Refused, not merely away: after an outage the record is carried out as at any other time.
    if refusal(resource) and _too_long(last, FORCE_BOUND_S, now):
        shards = ", ".join(str(shard) for shard, _ in moves[:MOST_NAMED])
        message = (
            f"the log service does not take the checkpoints of shards {shards}; {undo} has those of before"
        )
        return _to(RepositionPhase.FAILED, last.nonce, message, now, undo=undo)
    return Progress(last, (MoveCheckpoints(moves),))


def _moved(record: MoveRecord, undo: str | None) -> str:
    shards = ", ".join(map(str, sorted(record.goals)[:MOST_NAMED]))
    more = f" and {len(record.goals) - MOST_NAMED} more" if len(record.goals) > MOST_NAMED else ""
    return f"checkpoints moved of shards {shards}{more}; ConfigMap {undo} has those of before"


def _resuming(
    resource: LogHubConsumerGroup, observed: Observed, size: Size, last: RepositionStatus, now: float
) -> Progress:
    """Until the workers are back; where none should run there is nothing to wait for."""
    replicas = 0 if observed.worker_set is None else observed.worker_set.replicas
    ready = sum(worker.ready for worker in observed.workers)
    if resource.spec.suspend or (replicas == size.target and ready >= size.target):
        return _to(RepositionPhase.DONE, last.nonce, last.message, now, undo=last.undo)
    return Progress(last)
