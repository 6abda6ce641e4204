"""Where a shard continues, by its sink's record and by the consumer group's checkpoint. Pure.

All sinks that deliver exactly once decide by these functions; docs/sinks.md 7 explains the consequences to
users. The sink's record is decisive, since only the sink knows which logs it has: these are not delivered
again, and all others are. A checkpoint counts against the record only if it was moved on purpose. The shard
manager asks a `ShardRecord`, which a consumer without a sink has, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


class CheckpointOrigin(Enum):
    """Who has set a checkpoint.

    NONE: there is no checkpoint. The group is new, or it was lost and the sink was not. The position is then
    the start position. SAVED: a worker. MOVED: a person or another program, on purpose. UNKNOWN: a worker, or
    someone on purpose, since it is unknown whether the real SLS distinguishes them.
    """

    NONE = auto()
    SAVED = auto()
    MOVED = auto()
    UNKNOWN = auto()


def delivered_until(ends: Mapping[int, int], checkpoint: int, origin: CheckpointOrigin) -> int | None:
    """The cursor up to which a sink that records ranges has a shard. `ends` has the end of each range by its
    begin. None: no range counts.

    Ranges follow one another, so the greatest end belongs to the last range. If it is unknown whether a
    checkpoint was moved, only ranges count that begin at the checkpoint, or follow such a range: a worker
    that ends before it saves its checkpoint leaves these, and hardly any other cursor is the begin of a
    range.
    """
    if origin is not CheckpointOrigin.UNKNOWN:
        return max(ends.values(), default=None)
    until = checkpoint
    while ends.get(until, until) > until:
        until = ends[until]
    return None if until == checkpoint else until


def continues_at(delivered: int | None, checkpoint: int, origin: CheckpointOrigin) -> int:
    """Where a shard continues that the sink has up to `delivered`; None: the sink has nothing. That also
    counts against the start position, which may point behind logs that no consumer has delivered.

    The sink is ahead of the checkpoint if a worker ended between a batch and its checkpoint, if the group was
    lost, or if the log service has an earlier checkpoint again. It is behind if the last logs made no rows,
    if the checkpoint was moved forward or saved with another sink, or if the sink was restored from an older
    copy, which cannot be distinguished from the other cases.
    """
    if delivered is None or origin is CheckpointOrigin.MOVED:
        return checkpoint
    return delivered if origin is CheckpointOrigin.NONE else max(delivered, checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIncarnation:
    """A shard, as distinguished from a shard with the same number in a logstore that was created again."""

    shard: int
    created: int  # unix seconds


class ShardRecord(Protocol):
    """A record besides the log service's checkpoint that says where a shard continues. Cursors are integers.

    Different shards are opened and acknowledged at the same time, by several threads; the calls for one shard
    follow one another.
    """

    def open_shard(self, shard: ShardIncarnation) -> None:
        """This consumer was assigned the shard. Called before its checkpoint is requested."""

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        """Where the shard continues, given the service's checkpoint and its origin. `confirm` is called
        before anything is changed; it raises if the shard was lost since it was opened."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class NoRecord:
    """The checkpoint is the only record: logs that were delivered after it are delivered again."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Does nothing, because no other delivery can be noticed."""

    def resume(
        self,
        shard: ShardIncarnation,  # noqa: ARG002
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,  # noqa: ARG002
    ) -> int:
        """The checkpoint."""
        confirm()
        return checkpoint

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Do nothing: there is no record to remove."""
