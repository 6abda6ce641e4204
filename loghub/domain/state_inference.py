"""The shard states of a group, inferred from outside where the service does not report them.

The real SLS reports no shard's state. It follows from the checkpoint list, the shard list and the
workers' own reports (docs/shard-states.md 4). A state that cannot be known is None, with the reason as
a message: a status that guesses is worse than a status that admits what it does not know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loghub.domain.fsm import ShardState


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShard:
    """One shard as reported by ListShards, GetCursor and GetCheckPoint.

    ``checkpoint`` None together with ``checkpoint_known`` means that no checkpoint exists.
    ``checkpoint_consumer`` is the consumer field of the checkpoint list and may be "". The cursors of a
    read-only shard are None if they could not be read.
    """

    shard: int
    read_only: bool
    parents: tuple[int, ...] = ()
    begin_cursor: int | None = None
    end_cursor: int | None = None
    checkpoint: int | None = None
    checkpoint_known: bool = True
    checkpoint_consumer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """One worker's own report: the shards that it works on, the ones among them that it is releasing, and the
    ones whose position lies beyond their end."""

    held: frozenset[int] = frozenset()
    draining: frozenset[int] = frozenset()
    beyond_end: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """A shard's state and holder as far as they are known; ``reason`` is the explanation for the user."""

    state: ShardState | None
    holder: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class _WaitsFor:
    """The lowest ancestor that is not consumed, and the lowest ancestor for which that is not known."""

    unconsumed: int | None = None
    unknown: int | None = None


def infer_state(
    shards: Iterable[SeenShard], *, order: bool, reports: Mapping[str, WorkerReport | None]
) -> dict[int, Inferred]:
    """Every shard's state. ``reports`` has every expected consumer; None means that it has no fresh
    report.

    The most reliable evidence comes first: consumed to the end, then the workers' own reports, then
    ancestors that are not consumed, then the checkpoint list, and last that no expected worker has the
    shard.
    """
    seen = {s.shard: s for s in shards}
    over = {n: _is_over(s) for n, s in seen.items()}
    waits = _waits_for(seen, over) if order else {}
    return {n: _infer(seen[n], over[n], waits.get(n), reports) for n in sorted(seen)}


def _infer(
    shard: SeenShard,
    over: bool | None,
    waits: _WaitsFor | None,
    reports: Mapping[str, WorkerReport | None],
) -> Inferred:
    if over:
        return Inferred(state=ShardState.OVER, holder=None, reason="read-only and consumed to its end")
    reported = _from_reports(shard.shard, reports)
    if reported is not None:
        return reported
    waiting = None if waits is None else _from_ancestors(waits)
    return waiting or _from_checkpoint_list(shard, over, reports)


def _is_over(shard: SeenShard) -> bool | None:
    """Whether the shard is consumed to its end; None when a read-only shard's cursors are not known."""
    if not shard.read_only:
        return False
    if shard.end_cursor is None:
        return None
    if shard.begin_cursor is not None and shard.begin_cursor >= shard.end_cursor:
        return True
    if shard.checkpoint is not None:
        return shard.checkpoint >= shard.end_cursor
    # Without a checkpoint the shard is over only if it is empty: unknown without a begin cursor.
    return False if shard.checkpoint_known and shard.begin_cursor is not None else None


def _from_reports(shard: int, reports: Mapping[str, WorkerReport | None]) -> Inferred | None:
    """The state according to the workers, which know best what they work on."""
    fresh = {name: report for name, report in sorted(reports.items()) if report is not None}
    holders = [n for n, r in fresh.items() if shard in r.held and shard not in r.draining]
    draining = [n for n, r in fresh.items() if shard in r.draining]
    if len(holders) > 1 or (holders and draining):
        # Reports are some seconds old: between two of them a shard can move to another worker.
        names = ", ".join(sorted({*holders, *draining}))
        return Inferred(state=None, holder=None, reason=f"it is being handed over: reported by {names}")
    if draining:
        return Inferred(state=ShardState.TRANSFER, holder=draining[0], reason="its holder is releasing it")
    if holders:
        return Inferred(state=ShardState.ALREADY_ALLOC, holder=holders[0], reason="reported by its holder")
    return None


def _from_ancestors(waits: _WaitsFor) -> Inferred | None:
    if waits.unconsumed is not None:
        return Inferred(
            state=ShardState.WAIT, holder=None, reason=f"ancestor {waits.unconsumed} is not consumed yet"
        )
    if waits.unknown is not None:
        return Inferred(
            state=None, holder=None, reason=f"not known whether ancestor {waits.unknown} is consumed"
        )
    return None


def _waits_for(seen: Mapping[int, SeenShard], over: Mapping[int, bool | None]) -> dict[int, _WaitsFor]:
    """For each shard, in one pass: a parent's number is lower than its child's."""
    waits = dict[int, _WaitsFor]()
    for number in sorted(seen):
        parents = [parent for parent in seen[number].parents if parent in waits]
        above = [waits[parent] for parent in parents]
        unconsumed = [parent for parent in parents if over[parent] is False]
        unknown = [parent for parent in parents if over[parent] is None]
        waits[number] = _WaitsFor(
            _lowest([*unconsumed, *(one.unconsumed for one in above)]),
            _lowest([*unknown, *(one.unknown for one in above)]),
        )
    return waits


def _lowest(numbers: Iterable[int | None]) -> int | None:
    return min((one for one in numbers if one is not None), default=None)


def _from_checkpoint_list(
    shard: SeenShard, over: bool | None, reports: Mapping[str, WorkerReport | None]
) -> Inferred:
    """No worker reports the shard: the consumer of its last checkpoint may hold it unless it has reported."""
    if over is None:
        return Inferred(state=None, holder=None, reason="not known whether it is consumed to its end")
    silent = sorted(name for name, report in reports.items() if report is None)
    if shard.checkpoint_consumer in silent:
        return Inferred(
            state=ShardState.ALREADY_ALLOC,
            holder=shard.checkpoint_consumer,
            reason="its holder by the checkpoint list; the worker itself has not reported",
        )
    if shard.checkpoint_consumer and shard.checkpoint_consumer not in reports:
        return Inferred(
            state=None,
            holder=None,
            reason=f"last checkpoint by {shard.checkpoint_consumer}, which is not a worker of this group",
        )
    if silent:
        return Inferred(state=None, holder=None, reason=f"no fresh report from {silent[0]}")
    return Inferred(state=ShardState.NOT_ALLOC, holder=None, reason="no worker reports it")
