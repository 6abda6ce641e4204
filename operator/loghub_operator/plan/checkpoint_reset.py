"""Decides how far a requested checkpoint reset is, and what its next step is.

``spec.resetCheckpoints`` is executed once for each nonce, as a state machine over the status: StoppingWorkers
-> Committing -> Resuming -> Succeeded, or Failed. First all workers leave, and `loghub_operator.plan.desired`
keeps them stopped. Then the operator writes one record with the previous checkpoints and the target cursors,
so that the next reconcile commits the same cursors wherever the operator was interrupted. Finally the workers
start again. A reset that is already in the manifest when the object is created counts as done, because it is
most likely an old one.

Everything that can be wrong with a reset is found before any checkpoint changes, when the target cursor of
each shard is determined. A cursor beyond the end of a shard never existed and is rejected. A cursor before
the shard's oldest log is accepted: a checkpoint from before retention is there, and the log service continues
from the oldest log that it has.

Each reset leaves a backup, for undo. Only the last `MAX_BACKUPS` are kept while the object exists: an object
that is reset every hour would fill the store of the API server, or the disk.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.fetch import ResetCheckpoints, ResetTarget
from loghub_operator.api.fields import unix_s
from loghub_operator.api.status import MAX_NONCES, CheckpointResetPhase, CheckpointResetStatus
from loghub_operator.model.actions import Action, BackUpCheckpoints, CommitCheckpoints, EmitEvent
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import (
    Available,
    CheckpointBackup,
    ResetObserved,
    ShardObserved,
    backup_name,
)
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.listing import MAX_LISTED, comma_list
from loghub_operator.plan.ownership import owner_of
from loghub_operator.plan.replicas import CLOCKS_DIFFER_S, ReplicaPlan
from loghub_operator.plan.subject import Subject

# How many resets can be undone one after the other; a further backup removes the oldest.
MAX_BACKUPS = 5


def needed_backups(name: str, source: str | None) -> frozenset[str]:
    """The backups that a reset in progress uses: its own backup, and the backup that it restores."""
    return frozenset(one for one in (name, source) if one is not None)


def superseded(requested_at: Mapping[str, str], *, needed: Collection[str]) -> tuple[str, ...]:
    """The names of the backups to remove: all but the last `MAX_BACKUPS` and the ``needed`` ones, the oldest
    first. ``requested_at`` has for each name the time of its reset (RFC 3339, UTC).
    """
    oldest_first = sorted(requested_at, key=lambda name: (requested_at[name], name))
    return tuple(name for name in oldest_first[:-MAX_BACKUPS] if name not in needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCursors:
    """A cursor for each shard, or the problem as a message for users."""

    cursors: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def target_cursors(
    requested: ResetCheckpoints, shards: Iterable[ShardObserved], observed: ResetObserved
) -> TargetCursors:
    """Pure; needs `ResetObserved.positions` and ``ends`` for every shard of the reset."""
    existing = {shard.shard for shard in shards}
    unknown = [shard for shard in requested.shards or () if shard not in existing]
    if unknown:
        return TargetCursors(problem=f"the logstore has no shard {comma_list(sorted(unknown))}")
    if requested.to is ResetTarget.CONFIG_MAP:
        return _from_config_map(requested, existing, observed)
    return TargetCursors(
        cursors={shard: observed.positions[shard] for shard in requested.shards or sorted(existing)}
    )


def same_cursor(first: str, second: str) -> bool:
    """Equal as numbers; an absent checkpoint equals nothing."""
    try:
        return wire_cursor.decode(first) == wire_cursor.decode(second)
    except MalformedCursor:
        return False


def _from_config_map(
    requested: ResetCheckpoints, existing: set[int], observed: ResetObserved
) -> TargetCursors:
    name = f"ConfigMap {requested.config_map_name}"
    if observed.source is None:
        return TargetCursors(problem=f"{name} does not exist")
    if not observed.source:
        return TargetCursors(problem=f"{name} contains no checkpoints")
    if not all(_is_shard(key) and _is_cursor(value) for key, value in observed.source.items()):
        # The message quotes nothing from it: a user who requests a reset may lack the right to read it.
        return TargetCursors(problem=f"{name} does not map shard IDs to cursors")
    saved = {int(key): cursor for key, cursor in observed.source.items()}
    missing = [shard for shard in requested.shards or () if shard not in saved]
    if missing:
        return TargetCursors(problem=f"{name} does not contain shard {comma_list(sorted(missing))}")
    deleted = set(saved) - existing if requested.shards is None else set()
    if deleted:
        shards, hint = comma_list(sorted(deleted)), "list the other shards in spec.resetCheckpoints.shards"
        return TargetCursors(
            problem=f"{name} contains shard {shards}, which the logstore does not have; {hint}"
        )
    chosen = {shard: saved[shard] for shard in sorted(requested.shards or saved)}
    beyond = [shard for shard, cursor in chosen.items() if _is_beyond(cursor, observed.ends[shard])]
    if beyond:
        return TargetCursors(
            problem=f"{name}: the cursor of shard {comma_list(sorted(beyond))} is beyond the end of the shard"
        )
    # "" restores the absence of a checkpoint, so the shard begins where a worker would begin it.
    return TargetCursors(
        cursors={shard: cursor or observed.positions[shard] for shard, cursor in chosen.items()}
    )


def _is_shard(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and str(int(key)) == key


def _is_cursor(value: str) -> bool:
    """Accepts "" too, which means no checkpoint."""
    return value == "" or same_cursor(value, value)


def _is_beyond(cursor: str, end: str) -> bool:
    return cursor != "" and wire_cursor.decode(cursor) > wire_cursor.decode(end)


# Ten reconciles at the usual resync: what the log service rejects for longer does not pass by itself.
COMMIT_BOUND_S = 300.0
MAX_MESSAGE = 1024  # the bound of the field in the CRD
IN_FIRST_MANIFEST = (
    "not executed: it was already in the manifest when the object was created. Change the nonce to execute "
    "it; spec.startPosition says where a new group starts"
)
USED_BEFORE = "no checkpoint was changed, because a reset with this nonce was executed before; choose another"
ELSEWHERE = "spec.endpoint changed to another log service, whose cursors are others,"
HALFWAY = (
    "the object was deleted before all checkpoints were committed: some were reset, the others"
    " were not; see `loghub group checkpoints`, and set all with `loghub group reset`"
)
OF_OTHERS = "the consumer group ceased to be this object's"
IN_PROGRESS = (
    CheckpointResetPhase.STOPPING_WORKERS,
    CheckpointResetPhase.COMMITTING,
    CheckpointResetPhase.RESUMING,
)


_EXECUTED = (
    CheckpointResetPhase.COMMITTING,
    CheckpointResetPhase.RESUMING,
    CheckpointResetPhase.SUCCEEDED,
)


@dataclass(frozen=True, slots=True)
class ResetProgress:
    """The status to report, and the actions to carry out now; ``events`` come after them."""

    status: CheckpointResetStatus | None
    actions: tuple[Action, ...] = ()
    events: tuple[EmitEvent, ...] = ()

    @property
    def is_committing(self) -> bool:
        return self.status is not None and self.status.phase == CheckpointResetPhase.COMMITTING

    @property
    def committed(self) -> int:
        """How many checkpoints are committed now."""
        return sum(len(one.cursors) for one in self.actions if isinstance(one, CommitCheckpoints))


def advance(subject: Subject, desired: Desired, replicas: ReplicaPlan, now: float) -> ResetProgress:
    """The next step of the requested reset, if there is one."""
    resource, service = subject.resource, subject.observed.service
    requested, last = resource.spec.reset_checkpoints, resource.status.checkpoint_reset
    if requested is None:
        return _ended(last, "spec.resetCheckpoints was removed", now)
    if resource.is_new and last is None:
        return _to(CheckpointResetPhase.SUCCEEDED, requested.nonce, IN_FIRST_MANIFEST, now)
    if last is not None and last.phase in IN_PROGRESS and subject.recorded_elsewhere:
        return _interrupted(last, f"{ELSEWHERE} in phase {last.phase}", now)
    if not desired.may_change_group:
        return _ended(last, OF_OTHERS, now)
    if not isinstance(service, Available):
        return ResetProgress(last)
    if last is None or last.nonce != requested.nonce:
        if requested.nonce in subject.executed:
            return _to(CheckpointResetPhase.FAILED, requested.nonce, USED_BEFORE, now)
        message = "the workers finish their batches and leave the group"
        return _to(CheckpointResetPhase.STOPPING_WORKERS, requested.nonce, message, now)
    reset = _reset_of(subject, service, requested, last, now)
    match last.phase:
        case CheckpointResetPhase.STOPPING_WORKERS:
            return _stopping(reset)
        case CheckpointResetPhase.COMMITTING:
            return _committing(reset)
        case CheckpointResetPhase.RESUMING:
            return _resuming(reset, replicas.target)
    return ResetProgress(last)


def at_deletion(subject: Subject, now: float, *, is_over: bool) -> ResetProgress:
    """The step of a reset that has begun to change checkpoints when the object is deleted: it is finished,
    since its backup goes with the object. `is_over`: nothing is awaited any more, so it ends where it is."""
    resource, service = subject.resource, subject.observed.service
    requested, last = resource.spec.reset_checkpoints, resource.status.checkpoint_reset
    if last is None or last.phase != CheckpointResetPhase.COMMITTING:
        return ResetProgress(last)
    changed = requested is None or requested.nonce != last.nonce
    if requested is None or changed or is_over or subject.recorded_elsewhere:
        return _to(CheckpointResetPhase.FAILED, last.nonce, HALFWAY, now, undo=last.backup_config_map)
    if owner_of(subject.own, subject.observed.peers) is not None:
        return _ended(last, OF_OTHERS, now)
    if not isinstance(service, Available):
        return ResetProgress(last)
    progress = _committing(_reset_of(subject, service, requested, last, now))
    reached = progress.status
    if reached is not None and reached.phase == CheckpointResetPhase.RESUMING:
        undo = last.backup_config_map
        return _to(CheckpointResetPhase.SUCCEEDED, last.nonce, reached.message, now, undo=undo)
    return progress


def with_executed(executed: tuple[str, ...], reset: CheckpointResetStatus | None) -> tuple[str, ...] | None:
    """The nonces that were ``executed``, with this reset's from when it begins to change checkpoints; None if
    there never was a reset."""
    if reset is None and not executed:
        return None
    if reset is None or reset.phase not in _EXECUTED or reset.nonce in executed:
        return executed
    return (*executed, reset.nonce)[-MAX_NONCES:]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reset:
    """A reset in progress, with everything that its next step depends on.

    Invariant: ``last``, which the status reports of it, has the nonce of ``requested``. ``seen`` is what was
    observed for it, None while that is not complete; ``backup_name`` is the name of its backup. Of the
    workers, ``existing`` are the names, ``replicas`` were requested and ``ready`` are ready. ``memory`` says
    what failed in the previous reconcile, and ``lasts_s`` for how long the phase has lasted.
    """

    requested: ResetCheckpoints
    last: CheckpointResetStatus
    backup_name: str
    is_suspended: bool
    service: Available
    seen: ResetObserved | None
    existing: tuple[str, ...]
    replicas: int
    ready: int
    drain_bound_s: float
    memory: Memory
    lasts_s: float | None
    now: float

    def to(
        self,
        phase: CheckpointResetPhase,
        message: str,
        *,
        undo: str | None = None,
        actions: tuple[Action, ...] = (),
    ) -> ResetProgress:
        return _to(phase, self.last.nonce, message, self.now, undo=undo, actions=actions)

    def failed(self, message: str, *, undo: str | None = None) -> ResetProgress:
        return self.to(CheckpointResetPhase.FAILED, message, undo=undo)

    def stays(self, message: str, actions: tuple[Action, ...] = ()) -> ResetProgress:
        return ResetProgress(self.last.model_copy(update={"message": message[:MAX_MESSAGE]}), actions)

    def lasts_longer_than(self, bound_s: float) -> bool:
        """Also if the phase has lasted for an unknown time, so that every wait ends."""
        return self.lasts_s is None or self.lasts_s > bound_s

    @property
    def checkpoints(self) -> Mapping[int, str]:
        return {shard.shard: shard.checkpoint for shard in self.service.shards}

    def uncommitted(self, backup: CheckpointBackup) -> tuple[tuple[int, str], ...]:
        """The target cursors that are not committed yet; a shard that no longer exists needs none. A consumer
        may have saved the same cursor: that is no commit, since a worker would go on after what it has
        delivered from there. Without extensions, workers cannot tell the two apart.
        """
        names = {shard.shard: shard.checkpoint_consumer for shard in self.service.shards}
        is_reported = self.service.consumers is not None
        return tuple(
            (shard, cursor)
            for shard, cursor in sorted(backup.targets.items())
            if shard in self.checkpoints
            and not (same_cursor(self.checkpoints[shard], cursor) and not (is_reported and names[shard]))
        )


def _reset_of(
    subject: Subject,
    service: Available,
    requested: ResetCheckpoints,
    last: CheckpointResetStatus,
    now: float,
) -> _Reset:
    resource, observed = subject.resource, subject.observed
    return _Reset(
        requested=requested,
        last=last,
        backup_name=backup_name(resource),
        is_suspended=resource.spec.suspend,
        service=service,
        seen=observed.reset,
        existing=tuple(worker.name for worker in observed.workers),
        replicas=observed.replicas,
        ready=observed.ready_workers,
        drain_bound_s=subject.drain_bound_s,
        memory=observed.memory,
        lasts_s=_lasts_s(last, now),
        now=now,
    )


def _lasts_s(last: CheckpointResetStatus, now: float) -> float | None:
    """None: the beginning of the phase cannot be read, or lies ahead because the clock was wrong then."""
    try:
        lasts_s = now - unix_s(last.last_transition_time)
    except ValueError:
        return None
    return lasts_s if lasts_s >= -CLOCKS_DIFFER_S else None


def _to(
    phase: CheckpointResetPhase,
    nonce: str,
    message: str,
    now: float,
    *,
    undo: str | None = None,
    actions: tuple[Action, ...] = (),
) -> ResetProgress:
    """Every change of phase goes through this function, which adds the event."""
    message = message[:MAX_MESSAGE]
    status = CheckpointResetStatus(
        nonce=nonce,
        phase=phase,
        backup_config_map=undo,
        message=message,
        last_transition_time=rfc3339(now),
    )
    kind: Literal["Normal", "Warning"] = "Warning" if phase == CheckpointResetPhase.FAILED else "Normal"
    event = EmitEvent(type=kind, reason=f"CheckpointReset{phase}", message=f"nonce {nonce}: {message}")
    return ResetProgress(status, actions, (event,))


def _ended(last: CheckpointResetStatus | None, why: str, now: float) -> ResetProgress:
    """A reset in progress does not go on."""
    if last is None or last.phase not in IN_PROGRESS:
        return ResetProgress(last)
    if last.phase == CheckpointResetPhase.RESUMING:  # only the start of the workers is left
        return _to(CheckpointResetPhase.SUCCEEDED, last.nonce, last.message, now, undo=last.backup_config_map)
    return _interrupted(last, f"{why} in phase {last.phase}", now)


def _interrupted(last: CheckpointResetStatus, message: str, now: float) -> ResetProgress:
    if last.backup_config_map is not None:
        message += (
            f"; some checkpoints may have changed; ConfigMap {last.backup_config_map} has the previous ones"
        )
    return _to(CheckpointResetPhase.FAILED, last.nonce, message, now, undo=last.backup_config_map)


def _stopping(reset: _Reset) -> ResetProgress:
    too_long = reset.lasts_longer_than(3 * reset.drain_bound_s)
    seen, obstacle = reset.seen, _obstacle(reset)
    if obstacle or seen is None:
        if not too_long:
            return reset.stays(f"waiting: {obstacle or 'the target cursors are being read'}")
        return reset.failed(
            f"timed out, no checkpoint was changed: {obstacle or 'the target cursors were not read'}"
        )
    if seen.backup is not None:
        return _commit(reset, seen.backup)
    error = reset.memory.last_error  # for example because of a quota of ConfigMaps
    if error and too_long:
        return reset.failed(
            f"no checkpoint was changed, because the current ones could not be saved: {error}"
        )
    return _back_up(reset, seen)


def _obstacle(reset: _Reset) -> str:
    """Why no checkpoint can be committed yet, or "" if it can be."""
    service = reset.service
    if service.stored is None:
        return "the consumer group is being created"
    if reset.existing:
        return f"{comma_list(reset.existing)} still exist"
    if reset.replicas > 0:
        return "the workers are being stopped"
    # The real SLS cannot report live consumers; there the operator knows only its own pods.
    holders = [f"shard {shard.shard} by {shard.holder}" for shard in service.shards if shard.holder]
    if service.consumers is not None and holders:
        return f"shards are still held: {comma_list(holders)}"
    return "" if reset.seen is None else reset.seen.error


def _back_up(reset: _Reset, seen: ResetObserved) -> ResetProgress:
    targets = target_cursors(reset.requested, reset.service.shards, seen)
    if targets.problem:
        return reset.failed(f"no checkpoint was changed: {targets.problem}")
    before = {shard: cursor for shard, cursor in reset.checkpoints.items() if shard in targets.cursors}
    backup = CheckpointBackup(
        requested_at=reset.last.last_transition_time, before=before, targets=targets.cursors
    )
    action = BackUpCheckpoints(name=reset.backup_name, backup=backup)
    return reset.stays("the current checkpoints are being saved", (action,))


def _commit(reset: _Reset, backup: CheckpointBackup) -> ResetProgress:
    name = reset.backup_name
    if backup.requested_at != reset.last.last_transition_time:
        return reset.failed(
            f"no checkpoint was changed, because nonce {reset.last.nonce} was used before (ConfigMap {name});"
            " choose another"
        )
    message = f"{len(backup.targets)} checkpoints are being committed; ConfigMap {name} has the previous ones"
    # Nothing is committed before this phase is stored: a crash, or a removal of the request, would otherwise
    # leave a status that says that no checkpoint was changed.
    return reset.to(CheckpointResetPhase.COMMITTING, message, undo=name)


def _committing(reset: _Reset) -> ResetProgress:
    seen, undo = reset.seen, reset.last.backup_config_map
    if seen is None:
        return ResetProgress(reset.last)
    too_long = reset.lasts_longer_than(COMMIT_BOUND_S)
    if seen.error:
        if not too_long:
            return reset.stays(f"waiting: {seen.error}")
        return reset.failed(f"{seen.error}; some checkpoints may have changed", undo=undo)
    if seen.backup is None:
        return reset.failed(
            f"ConfigMap {undo} was deleted while the checkpoints were being committed; some may have changed"
        )
    cursors = reset.uncommitted(seen.backup)
    if not cursors:
        phase = CheckpointResetPhase.SUCCEEDED if reset.is_suspended else CheckpointResetPhase.RESUMING
        return reset.to(phase, _committed(seen.backup, undo), undo=undo)
    # Only a rejection fails the reset: after an outage the backup is carried out as at any other time.
    if reset.memory.service_error and too_long:
        return reset.failed(
            f"the log service rejects the checkpoints of shards {comma_list(shard for shard, _ in cursors)};"
            f" ConfigMap {undo} has the previous ones",
            undo=undo,
        )
    # All were committed, and as many are others again: after another five minutes it would be no different.
    if too_long and 0 < reset.memory.committed <= len(cursors):
        return reset.failed(
            f"others keep moving the checkpoints of shards {comma_list(shard for shard, _ in cursors)};"
            f" ConfigMap {undo} has the previous ones",
            undo=undo,
        )
    return ResetProgress(reset.last, (CommitCheckpoints(cursors),))


def _committed(backup: CheckpointBackup, undo: str | None) -> str:
    others = len(backup.targets) - MAX_LISTED
    more = f" and {others} more" if others > 0 else ""
    shards = comma_list(sorted(backup.targets))
    return f"reset the checkpoints of shards {shards}{more}; ConfigMap {undo} has the previous ones"


def _resuming(reset: _Reset, target: int) -> ResetProgress:
    """Waits until the ``target`` workers are ready again. If none should run, nothing is waited for."""
    last, is_started = reset.last, reset.replicas == target and reset.ready >= target
    if reset.is_suspended or is_started:
        return reset.to(CheckpointResetPhase.SUCCEEDED, last.message, undo=last.backup_config_map)
    return ResetProgress(last)
