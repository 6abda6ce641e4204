"""The position of a stream, and the next micro-batch: decisions over plain values.

An offset of Spark is the cursor of each shard. A shard that a split or merge has created enters an offset at
its first log group, and is read from the next offset on; so a batch is always the difference of two offsets,
and Spark can repeat it after a restart.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from loghub_consumer.batch_plan import Range
from loghub_spark.options import LogstoreError, MicroBatchLimits

# A partition costs Spark a fixed time (docs/spark.md 5), so a smaller range is not split unless requested.
SPLIT_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Offset:
    """The cursor of each shard that may have something to read, and the read-only shards that were read to
    their end. A shard that the batch before the offset reads to its end is among both. `logstore` is
    ``project/logstore``: cursors of another logstore mean nothing here."""

    shards: Mapping[int, int]
    finished: frozenset[int] = frozenset()
    logstore: str = ""

    def to_json(self) -> dict[str, Any]:
        """``{"logstore": name, "shards": {"<shard>": cursor}, "finished": [shard]}``, the same text for equal
        offsets."""
        shards = {str(shard): cursor for shard, cursor in sorted(self.shards.items())}
        return {"logstore": self.logstore, "shards": shards, "finished": sorted(self.finished)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Offset":
        """The offset in a JSON value. Raises `LogstoreError` for any other value."""
        try:
            shards = {int(shard): int(cursor) for shard, cursor in value["shards"].items()}
            return Offset(shards, frozenset(value["finished"]), str(value["logstore"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LogstoreError(
                f"the checkpoint has the offset {str(value)[:200]}, which is not of this data source; use"
                " another checkpointLocation"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """A shard as the log service reports it now."""

    shard: int
    end: int  # the cursor after its last log group; never moves if it is read-only
    read_only: bool
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSample:
    """The logs and bytes of a shard's next log groups, in order. Further log groups may follow, with the same
    mean."""

    logs: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()


def next_offset(
    start: Offset,
    views: Mapping[int, ShardView],
    *,
    begins: Mapping[int, int],
    allowed: Mapping[int, int],
) -> Offset:
    """The end of the batch that begins at `start`: `allowed` log groups further in each shard. `begins` are
    the first cursors of shards that `start` lacks. `start` itself is returned if nothing changes.

    A shard that no longer exists is left out, and a shard whose cursor lies beyond its end continues there;
    the caller has decided that this is right.
    """
    here = {shard: cursor for shard, cursor in start.shards.items() if shard in views}
    moved = {shard: min(cursor, views[shard].end) for shard, cursor in here.items()}
    moved = {shard: cursor + allowed.get(shard, 0) for shard, cursor in moved.items()}
    if moved == start.shards and not begins:
        return start
    before = (start.finished & views.keys()) | {s for s in here if _is_finished(s, start, views)}
    rest = replace(start, shards={shard: cursor for shard, cursor in moved.items() if shard not in before})
    # At once: the log service may have removed the shard when the next batch is planned.
    finished = before | {shard for shard in rest.shards if _is_finished(shard, rest, views)}
    return replace(rest, shards={**begins, **rest.shards}, finished=frozenset(finished))


def backlog(start: Offset, views: Mapping[int, ShardView], *, in_order: bool) -> dict[int, int]:
    """How many log groups of each shard can be read now. In order, a shard waits until its parents are read
    to their ends."""
    return {
        shard: views[shard].end - cursor
        for shard, cursor in sorted(start.shards.items())
        if shard in views
        and views[shard].end > cursor
        and not (in_order and any(_must_wait_for(p, start, views) for p in views[shard].parents))
    }


def _must_wait_for(parent: int, start: Offset, views: Mapping[int, ShardView]) -> bool:
    return parent in views and parent not in start.finished and not _is_finished(parent, start, views)


def _is_finished(shard: int, start: Offset, views: Mapping[int, ShardView]) -> bool:
    """Whether the batches up to `start` have everything that the shard will ever have."""
    return shard in start.shards and views[shard].read_only and start.shards[shard] >= views[shard].end


def new_shards(start: Offset, views: Mapping[int, ShardView]) -> list[int]:
    """Shards that `start` does not know."""
    return sorted(views.keys() - start.shards.keys() - start.finished)


def beyond_end(start: Offset, views: Mapping[int, ShardView]) -> list[int]:
    """The shards whose log service has fewer log groups than were read."""
    return [s for s, cursor in sorted(start.shards.items()) if s in views and cursor > views[s].end]


def limited(
    groups: Mapping[int, int], limits: MicroBatchLimits, samples: Mapping[int, ShardSample] | None = None
) -> dict[int, int]:
    """As many log groups of each shard as all limits allow together, and at least one in all: the same part
    of each shard's backlog, so that shards that get their logs evenly stay level."""
    sampled = samples or {}
    result = {shard: count for shard, count in groups.items() if count}
    if limits.log_groups is not None:
        result = _share(result, {}, limits.log_groups)
    if limits.logs is not None:
        result = _share(result, {s: one.logs for s, one in sampled.items()}, limits.logs)
    if limits.bytes is not None:
        result = _share(result, {s: one.bytes for s, one in sampled.items()}, limits.bytes)
    return result


def _share(groups: Mapping[int, int], costs: Mapping[int, Sequence[int]], budget: int) -> dict[int, int]:
    """A budget's log groups of each shard. An unknown cost of a log group counts as 1."""
    curves = {shard: _Curve(costs.get(shard) or (1,)) for shard in groups}
    order = sorted(groups, key=lambda shard: (curves[shard].cost(groups[shard]), shard))
    result, left = {}, float(budget)
    rest = sum(curve.cost(groups[shard]) for shard, curve in curves.items())
    for shard in order:
        curve, cost = curves[shard], curves[shard].cost(groups[shard])
        # Rounded up, at the expense of the larger backlogs: the last log group of a small backlog may be much
        # older than theirs, and would hold them back.
        part = groups[shard] if left >= rest else curve.groups_for(left * cost / rest)
        taken = min(groups[shard], part, curve.groups_within(left))
        left -= curve.cost(taken)
        rest -= cost
        if taken:
            result[shard] = taken
    return result if result or not order else {order[-1]: 1}


def ranges_of(start: Offset, groups: Mapping[int, int]) -> tuple[Range, ...]:
    """The ranges of this many log groups of each shard from `start` on."""
    return tuple(
        Range(shard, start.shards[shard], start.shards[shard] + count)
        for shard, count in sorted(groups.items())
    )


def levelled_ends(
    groups: Mapping[int, int], views: Mapping[int, ShardView], *, in_order: bool
) -> dict[int, int]:
    """The ends of these shards for `loghub_consumer.batch_plan.levelled`. In order, one that was split or
    merged leaves something in any case: its children, which wait for it."""
    parents = {parent for view in views.values() for parent in view.parents} if in_order else set[int]()
    return {shard: views[shard].end + (shard in parents) for shard in groups}


class _Curve:
    """The cost of a shard's next log groups: known for the first ones, then their mean."""

    def __init__(self, costs: Sequence[int]) -> None:
        self._sums = list(accumulate(costs))
        self._mean = max(self._sums[-1] / len(costs), 1e-9)

    def cost(self, groups: int) -> float:
        measured = min(groups, len(self._sums))
        return (self._sums[measured - 1] if measured else 0) + (groups - measured) * self._mean

    def groups_for(self, budget: float) -> int:
        """The smallest number of log groups with at least this cost."""
        within = self.groups_within(budget)
        return within if within and self.cost(within) >= budget else within + 1

    def groups_within(self, budget: float) -> int:
        if budget < self._sums[-1]:
            return bisect_right(self._sums, budget)
        return len(self._sums) + int((budget - self._sums[-1]) // self._mean)


def ranges_between(start: Offset, end: Offset) -> tuple[Range, ...]:
    """The ranges of the batch from `start` to `end`."""
    return tuple(
        Range(shard, start.shards[shard], cursor)
        for shard, cursor in sorted(end.shards.items())
        if cursor > start.shards.get(shard, cursor)
    )


def split_ranges(ranges: Iterable[Range], *, min_partitions: int | None, cores: int) -> tuple[Range, ...]:
    """The ranges in pieces, one for each partition: at least `min_partitions`, if there are as many log
    groups. Without that number there are as many as cores, where a piece has `SPLIT_GROUPS` at least."""
    whole = [one for one in ranges if one.groups > 0]
    total = sum(one.groups for one in whole)
    wanted, minimum = (cores, SPLIT_GROUPS) if min_partitions is None else (min_partitions, 1)
    pieces: list[Range] = []
    for shard_range in whole:
        share = -(-shard_range.groups * wanted // total) if len(whole) < wanted else 1
        count = max(1, min(share, shard_range.groups // minimum))
        cuts = [shard_range.begin + shard_range.groups * number // count for number in range(count + 1)]
        pieces += [Range(shard_range.shard, begin, end) for begin, end in pairwise(cuts)]
    return tuple(pieces)
