"""Where a shard continues, by what its sink has of it and by the consumer group's checkpoint. Pure.

All sinks that deliver exactly once decide by these functions; docs/sinks.md 7 says for users what follows.
What the sink has is decisive, since only the sink knows it: a log that it has does not come again, and one
that it has not does. A checkpoint counts against it only where it was moved on purpose.
"""

from collections.abc import Mapping
from enum import Enum, auto


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
