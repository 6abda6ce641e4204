"""Where a shard continues, by what its sink has of it and by the consumer group's checkpoint. Pure.

All sinks that deliver exactly once decide by these functions; docs/sinks.md 7 says for users what follows.
What the sink has is decisive, since only the sink knows it: a log that it has does not come again, and one
that it has not does. A checkpoint counts against it only where it was moved on purpose.

Where a shard continues: what the shard manager asks of a sink, and of a consumer without one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol


class CheckpointOrigin(Enum):
    """Who has set a checkpoint.

    NONE: there is none. The group is new, or it was lost and the sink is not. The checkpoint is then where
    the start position points. SAVED: a worker. MOVED: a person or another program, on purpose. UNKNOWN: one
    or the other, since the real SLS was never seen to tell.
    """

    NONE = auto()
    SAVED = auto()
    MOVED = auto()
    UNKNOWN = auto()


def delivered_until(ends: Mapping[int, int], checkpoint: int, origin: CheckpointOrigin) -> int | None:
    """The cursor up to which a sink has a shard that records ranges: their ends, by their begins. None: it
    has nothing that counts.

    Ranges follow one another, so the greatest end is that of the last one. Where a checkpoint may have been
    moved and nobody says so, only ranges count that begin at the checkpoint, or follow one that does: a
    worker that ends before it saves its checkpoint leaves these, and hardly any other cursor is the begin
    of a range.
    """
    if origin is not CheckpointOrigin.UNKNOWN:
        return max(ends.values(), default=None)
    until = checkpoint
    while ends.get(until, until) > until:
        until = ends[until]
    return None if until == checkpoint else until


def continues_at(delivered: int | None, checkpoint: int, origin: CheckpointOrigin) -> int:
    """Where a shard continues which the sink has up to `delivered`; None: it has nothing. That also counts
    against the start position, which may point behind logs that nobody has delivered.

    The sink is ahead of the checkpoint if a worker ended between a batch and its checkpoint, if the group
    was lost, or if the log service has an earlier checkpoint again. It is behind if the last logs made no
    rows, if the checkpoint was moved forward or saved with another sink, or if the sink was restored from
    an older copy, which nothing tells from the others.
    """
    if delivered is None or origin is CheckpointOrigin.MOVED:
        return checkpoint
    return delivered if origin is CheckpointOrigin.NONE else max(delivered, checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIncarnation:
    """A shard, as distinct from a shard with the same number in a logstore that was recreated."""

    shard: int
    created: int  # unix seconds


class ShardRecord(Protocol):
    """What else than the log service's checkpoint says where a shard continues. Cursors are integers.

    Different shards are opened and acknowledged at the same time, by several threads; the calls for one shard
    follow one another."""

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
        """Where the shard continues, given the service's checkpoint and who has set it.
        `confirm` is called before anything is changed; it raises if the shard was lost since it was
        opened."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class NoRecord:
    """The checkpoint is the only record: what was delivered after it is delivered again."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Do nothing: nobody else's delivery can be noticed."""

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
