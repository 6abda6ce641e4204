"""The state of a group at one moment, and the interface of its viewers.

Describes the changes between two observations in sentences, for the live view and the plain output of
`loghub up`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import Phase, ShardStatus, Status
from loghub_operator.api.conditions import GroupReason
from loghub_operator.api.status import Condition
from loghub_operator.model.observed import WorkerPhase

Workers = tuple[WorkerView, ...]
# Events, and the sentences about shards and workers, report all other reasons.
_REPORTED_REASONS = frozenset({"ReconcileError", "TooManyReplicas", "TooFewReplicas", "TooFewShards"})


def changes(before: Status, after: Status, was: Workers, now: Workers) -> Iterator[str]:
    """Yields one sentence per change; none if nothing changed."""
    yield from _trials(was, now)
    yield from _workers(was, now)
    yield from _shards(before.shards, after.shards)
    yield from _conditions(before.conditions, after.conditions)


def _trials(was: Workers, now: Workers) -> Iterator[str]:
    """Once for all workers that wait to be replaced."""
    before = {view.trial for view in was}
    yield from sorted({" ".join(view.trial.split()) for view in now if view.trial not in {"", *before}})


def _workers(was: Workers, now: Workers) -> Iterator[str]:
    before = {one.observed.name: one for one in was}
    for view in now:
        yield from _worker(before.pop(view.observed.name, None), view)
    for name in before:
        yield f"{name} is gone"


def _worker(old: WorkerView | None, new: WorkerView) -> Iterator[str]:
    name, seen = new.observed.name, new.observed
    if seen.phase is WorkerPhase.FAILED and (old is None or old.observed.phase is not WorkerPhase.FAILED):
        error = " ".join(": ".join(part for part in (seen.reason, seen.message) if part).split())
        yield f"{name} ended: {error}" if new.pid is None else f"{name} fails: {error}"
        return
    if new.pid is not None and (old is None or old.pid != new.pid):
        yield f"{name} started, process {new.pid}" + (" (again)" if new.starts > 1 else "")
    if old is not None and old.observed.phase is seen.phase:
        return
    sentence = {
        WorkerPhase.RUNNING: "is ready",
        WorkerPhase.STOPPING: "is stopping",
        WorkerPhase.LEFT: "left the group",
    }.get(seen.phase)
    if sentence is not None:
        yield f"{name} {sentence}"


def _shards(was: tuple[ShardStatus, ...], now: tuple[ShardStatus, ...]) -> Iterator[str]:
    before = {shard.id: shard for shard in was}
    for shard in now:
        old = before.get(shard.id)
        if old is None or (old.state, old.consumer, old.next_consumer) == (
            shard.state,
            shard.consumer,
            shard.next_consumer,
        ):
            continue
        yield _moved(old, shard)


def _moved(old: ShardStatus, new: ShardStatus) -> str:
    if new.state == "transfer":
        next_one = f" to {new.next_consumer}" if new.next_consumer else ""
        return f"shard {new.id} is being handed over from {new.consumer}{next_one}"
    if new.state == "already_alloc":
        origin = f" (was {old.consumer})" if old.consumer and old.consumer != new.consumer else ""
        return f"shard {new.id} is assigned to {new.consumer}{origin}"
    if new.state == "not_alloc":
        return f"shard {new.id} is free" + (f" (was {old.consumer})" if old.consumer else "")
    if new.state == "over":
        return f"shard {new.id} is consumed to its end"
    return f"shard {new.id}: {old.state} -> {new.state}"


def _conditions(was: tuple[Condition, ...], now: tuple[Condition, ...]) -> Iterator[str]:
    before = {condition.type: condition.reason for condition in was}
    for condition in now:
        if condition.reason in _REPORTED_REASONS and before.get(condition.type) != condition.reason:
            yield f"{condition.reason}: {condition.message}"
        if condition.reason == GroupReason.DELETING != before.get(condition.type):
            yield condition.message  # reports what happens to the group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """The group at one moment, for display."""

    at_unix_s: float
    status: Status
    workers: tuple[WorkerView, ...]

    @property
    def caught_up(self) -> bool:
        """Whether every worker is ready and no shard has any lag."""
        lag = self.status.lag
        return self.status.phase is Phase.RUNNING and lag is not None and lag.logs == 0


class RunObserver(Protocol):
    """Receives the events and the snapshots of a run."""

    def say(self, text: str) -> None:
        """Called with one sentence for each event."""

    def show(self, snapshot: GroupSnapshot) -> None:
        """Called after every reconcile."""
