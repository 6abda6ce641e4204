"""The plan of the next batch, which is the cursor range of each shard to read, and whether a batch is worth
its files, for a sink that rolls them by size and time. Pure; times are seconds on the monotonic clock.

The source computes the plan and gives it to Spark as an offset, and the job reads it back from Spark's log of
the batch. One offset contains a whole plan, with the begin and the end of each range, because shards come and
go between batches and the ranges cannot be derived from two offsets.

A batch that is not worth its files yet is not buffered: its log groups wait in the log service, and the
worker only reads them later.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Log groups of one shard, as a half-open range of cursors."""

    shard: int
    begin: int
    end: int

    @property
    def groups(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The ranges of one batch. The number makes every plan differ from the one before it, so that a range
    that is read again, after a discarded batch, is new data for Spark."""

    number: int
    ranges: tuple[Range, ...]
    # For a stateful pipeline: no log group of the ranges was received later than this, in unix seconds. Spark
    # repeats a batch with its plan, so a log has the same time in each attempt.
    latest_s: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Primitive values only: ``{"plan": n, "ranges": {"<shard>": [begin, end]}}``, and ``"latest"`` if
        there is one."""
        ranges = {str(r.shard): [r.begin, r.end] for r in self.ranges}
        latest = {} if self.latest_s is None else {"latest": self.latest_s}
        return {"plan": self.number, "ranges": ranges} | latest

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "BatchPlan":
        pieces = value["ranges"].items()
        ranges = sorted(Range(int(shard), int(begin), int(end)) for shard, (begin, end) in pieces)
        return BatchPlan(int(value["plan"]), tuple(ranges), value.get("latest"))


EMPTY_PLAN = BatchPlan(0, ())
# The largest log group that a service accepts: 5 MB in SLS, 10 MiB in the embedded service
# (docs/sls-protocol.md 5).
MAX_GROUP_BYTES = 10 << 20
NO_RETRIES: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """The mean size of the log groups of a shard."""

    bytes: float
    logs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The maximum that a batch reads of one shard, and of all shards together. The smallest limit applies,
    but one log group of a shard is always read. None is the limit of a request: a range is read in as many
    requests as necessary."""

    log_groups: int  # from one shard
    bytes: int  # from one shard
    logs: int  # from all shards

    def groups_of(self, size: GroupSize | None) -> int:
        """How many log groups of this size a batch reads from a shard, if the shard is alone. None means that
        no size was measured yet; the largest possible size is then assumed."""
        if size is None:
            return max(1, min(self.log_groups, self.bytes // MAX_GROUP_BYTES))
        fit = min(self.bytes / max(1.0, size.bytes), self.logs / max(1.0, size.logs))
        return max(1, min(self.log_groups, int(fit)))


def smoothed(before: GroupSize | None, *, read_bytes: int, logs: int, groups: int) -> GroupSize | None:
    """The mean size of a shard's log groups after a batch of `groups`. It rises immediately, since a batch
    that grows too large costs memory and time, and falls by half of the difference."""
    if not read_bytes or not groups:
        return before
    mean = GroupSize(bytes=read_bytes / groups, logs=logs / groups)
    if before is None:
        return mean
    return GroupSize(bytes=_smoothed(before.bytes, mean.bytes), logs=_smoothed(before.logs, mean.logs))


def _smoothed(before: float, mean: float) -> float:
    return mean if mean > before else (before + mean) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRetry:
    """How a shard is read after a batch with it failed: alone, from `begin` on, at most `log_groups`, and not
    before `not_before_s` on the monotonic clock; None: not at all."""

    begin: int
    log_groups: int
    not_before_s: float | None


def due_retries(
    retries: Mapping[int, RangeRetry], positions: Mapping[int, int], *, now: float
) -> dict[int, int]:
    """How many log groups of each shard with a retry may be read now: 0 while it waits. The shards are in the
    order in which they are due. A retry at another position is void, because the shard was moved since."""
    valid = [(shard, retry) for shard, retry in retries.items() if positions.get(shard) == retry.begin]
    due = sorted((_due_s(retry), shard, retry.log_groups) for shard, retry in valid)
    return {shard: groups if at_s <= now else 0 for at_s, shard, groups in due}


def _due_s(retry: RangeRetry) -> float:
    return math.inf if retry.not_before_s is None else retry.not_before_s


def next_plan(
    last: BatchPlan,
    *,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    sizes: Mapping[int, GroupSize],
    limits: BatchLimits,
    retries: Mapping[int, int] = NO_RETRIES,
) -> BatchPlan:
    """The next batch: from each position as much as `limits` allows, and never past the known end.

    `sizes` are the mean sizes of the shards' log groups, where measured. `retries` is the result of
    `due_retries`: of these shards the first one with log groups to read is read alone, in every second batch
    as long as other shards have log groups to read. `last` itself is returned if there is nothing to read.
    """
    ranges = {
        shard: Range(shard, begin, min(begin + limits.groups_of(sizes.get(shard)), ends[shard]))
        for shard, begin in sorted(positions.items())
        if ends.get(shard, begin) > begin
    }
    alone = next((shard for shard, groups in retries.items() if groups and shard in ranges), None)
    together = _within(
        [part for shard, part in ranges.items() if shard not in retries], sizes=sizes, logs=limits.logs
    )
    if alone is not None and (not together or last.number % 2 == 0):
        part = ranges[alone]
        together = (replace(part, end=min(part.end, part.begin + retries[alone])),)
    return BatchPlan(last.number + 1, together) if together else last


def next_even_plan(
    last: BatchPlan,
    *,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    sizes: Mapping[int, GroupSize],
    limits: BatchLimits,
) -> BatchPlan:
    """The next batch of a stateful pipeline: the same part of each shard's backlog, as large as `limits`
    allow. So shards that get their logs evenly stay level, whatever their rates; `levelled` corrects the
    rest."""
    backlogs = {
        shard: ends[shard] - begin
        for shard, begin in sorted(positions.items())
        if ends.get(shard, begin) > begin
    }
    if not backlogs:
        return last
    maximum = {shard: limits.groups_of(sizes.get(shard)) for shard in backlogs}
    logs = sum(groups * _logs_of(sizes.get(shard)) for shard, groups in backlogs.items())
    part = min(1.0, limits.logs / logs, *(maximum[shard] / groups for shard, groups in backlogs.items()))
    ranges = (
        Range(
            shard, positions[shard], positions[shard] + min(groups, maximum[shard], math.ceil(part * groups))
        )
        for shard, groups in backlogs.items()
    )
    return BatchPlan(last.number + 1, tuple(ranges))


def _logs_of(size: GroupSize | None) -> float:
    return 1.0 if size is None else max(1.0, size.logs)


def ranges_to_date(plan: BatchPlan, ends: Mapping[int, int]) -> tuple[Range, ...]:
    """The ranges whose last receive time `levelled` needs: the ranges that leave log groups in their shard,
    or all ranges if none does."""
    return tuple(part for part in plan.ranges if part.end < ends[part.shard]) or plan.ranges


def levelled(
    plan: BatchPlan,
    ends: Mapping[int, int],
    *,
    received: Mapping[int, int],
    cursors: Callable[[int], Mapping[int, int]],
) -> BatchPlan:
    """The plan without log groups that were received later than the log groups that the plan leaves in other
    shards. Spark has one watermark over all shards, and drops rows behind it: no shard may be read ahead of
    another.

    `received` are the unix seconds in which the last log group of each of `ranges_to_date` was received, and
    `ends` are the ends at the same moment. `cursors` yields for a unix second, in each shard of the plan, the
    cursor of the first log group that was received then or later.
    """
    if all(part.end >= ends[part.shard] for part in plan.ranges):
        return replace(plan, latest_s=max(received.values()))
    level_s = min(received.values())
    after = cursors(level_s + 1)
    # The shard that sets the level keeps its range, so there is always something to read.
    kept = (
        part if received.get(part.shard) == level_s else replace(part, end=min(part.end, after[part.shard]))
        for part in plan.ranges
    )
    return replace(plan, ranges=tuple(part for part in kept if part.groups > 0), latest_s=level_s)


def leaves_log_groups(plan: BatchPlan, ends: Mapping[int, int]) -> bool:
    """Whether a shard of the plan has more to read than the plan does."""
    return any(part.end < ends.get(part.shard, part.end) for part in plan.ranges)


def _within(ranges: Sequence[Range], *, sizes: Mapping[int, GroupSize], logs: int) -> tuple[Range, ...]:
    """The ranges, the longest ones cut until all together have at most `logs` logs. Each keeps one log group.
    A shard without a measured size has only a few log groups in a batch."""
    means = {part.shard: max(1.0, sizes[part.shard].logs) for part in ranges if part.shard in sizes}
    left, cut = float(logs), {}
    ascending = sorted(ranges, key=lambda part: part.groups * means.get(part.shard, 1.0))
    for before, part in enumerate(ascending):
        mean = means.get(part.shard, 1.0)
        share = left / (len(ranges) - before)
        groups = max(1, min(part.groups, int(share / mean)))
        left -= groups * mean
        cut[part.shard] = replace(part, end=part.begin + groups)
    return tuple(cut[part.shard] for part in ranges)


def pack(ranges: Sequence[Range], *, bins: int) -> tuple[tuple[Range, ...], ...]:
    """Distribute ranges over at most `bins` bins of similar size: the longest first, into the emptiest bin.

    A bin costs a fixed time whatever it contains (docs/spark.md 5), so there are few of them and none is
    empty.
    """
    filled: list[list[Range]] = [[] for _ in range(max(1, min(bins, len(ranges))))]
    for shard_range in sorted(ranges, key=lambda r: (-r.groups, r.shard)):
        min(filled, key=lambda b: sum(r.groups for r in b)).append(shard_range)
    return tuple(tuple(b) for b in filled if b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """A batch begins once it makes files of this many bytes, or once a log group has waited this long."""

    target_bytes: int
    max_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The known backlog of one shard: the log groups from `position` to `end`, the oldest of them since
    `since_s` or later."""

    position: int
    end: int
    since_s: float


def observed(
    before: Mapping[int, Backlog], *, positions: Mapping[int, int], ends: Mapping[int, int], now: float
) -> dict[int, Backlog]:
    """The backlog of each shard that is read now and whose end is known, given the backlog before. When the
    end of a shard becomes known, it is unknown since when its log groups wait, so they count as waiting long
    enough."""
    return {
        shard: Backlog(
            position=position,
            end=ends[shard],
            since_s=_since_s(before.get(shard), position, now=now),
        )
        for shard, position in positions.items()
        if shard in ends
    }


def _since_s(before: Backlog | None, position: int, *, now: float) -> float:
    if before is None:
        return -math.inf
    is_same = position < before.end  # some log groups of the known backlog are still there
    return before.since_s if is_same else now


def is_worth_its_files(
    plan: BatchPlan,
    backlogs: Mapping[int, Backlog],
    *,
    roll: Roll,
    sizes: Mapping[int, GroupSize],
    file_share: float,
    now: float,
) -> bool:
    """Whether the batch of this plan may begin. `backlogs` are the backlogs of the shards that are read
    together: a failed shard is in no batch with others. `file_share` is the number of bytes of files for a
    byte of log groups. A batch that cannot become larger, because it is at a limit of a batch, begins in any
    case."""
    ends = {shard: backlog.end for shard, backlog in backlogs.items()}
    if leaves_log_groups(plan, ends):
        return True
    waits_since_s = [backlog.since_s for backlog in backlogs.values() if backlog.end > backlog.position]
    if waits_since_s and now >= min(waits_since_s) + roll.max_delay_s:
        return True
    log_bytes = sum(part.groups * sizes[part.shard].bytes for part in plan.ranges if part.shard in sizes)
    return log_bytes * file_share >= roll.target_bytes
