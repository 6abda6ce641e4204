"""When a batch is worth its files, for a sink that rolls them by size and time. Pure.

Nothing is buffered for that: the log groups wait in the log service, and the worker only reads them later.
Times are seconds on the monotonic clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loghub_worker.batch_plan import BatchPlan, GroupSize, leaves_log_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """A batch begins once it makes files of so many bytes, or once a log group has waited for so long."""

    target_bytes: int
    max_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is known to wait in one shard: the log groups from `position` to `end`, the oldest of them since
    `since_s` or later."""

    position: int
    end: int
    since_s: float


def observed(
    before: Mapping[int, Backlog], *, positions: Mapping[int, int], ends: Mapping[int, int], now: float
) -> dict[int, Backlog]:
    """The backlog of each shard that is read now and whose end is known, given what it was. What waits in a
    shard when its end becomes known waits since nobody knows when, so it has waited for long enough."""
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
    is_same = position < before.end  # some of what was known to wait is still there
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
    """Whether the batch of this plan may begin. `backlogs` are those of the shards that are read together:
    what waits in one that failed is in no batch with others. `file_share` is how many bytes of files become
    of a byte of log groups. A batch that cannot become larger begins in any case: it is at a limit of one."""
    ends = {shard: backlog.end for shard, backlog in backlogs.items()}
    if leaves_log_groups(plan, ends):
        return True
    waits_since_s = [backlog.since_s for backlog in backlogs.values() if backlog.end > backlog.position]
    if waits_since_s and now >= min(waits_since_s) + roll.max_delay_s:
        return True
    log_bytes = sum(part.groups * sizes[part.shard].bytes for part in plan.ranges if part.shard in sizes)
    return log_bytes * file_share >= roll.target_bytes
