"""The place of a log in its shard, as one number.

The ordinal of a log group counts the groups of its shard. A position is the ordinal times 2^17 plus the index
of the log in its group, so that a cursor becomes a position and back without a table. Kafka's offsets are
positions (docs/kafka.md 2), and so is what a subscription acknowledges.

The positions from the end of a group to the next ordinal belong to no log. A position there means the first
one of the next ordinal, which is its normal form.
"""

from loghub.domain.shards import MAX_GROUP_LOGS

INDEX_BITS = MAX_GROUP_LOGS.bit_length() - 1
INDEX_MASK = MAX_GROUP_LOGS - 1


def position_of(ordinal: int, index: int = 0) -> int:
    """The position of a log. An index of `MAX_GROUP_LOGS` is after the last log of a full group."""
    return (ordinal << INDEX_BITS) + index


def ordinal_of(position: int) -> int:
    """The ordinal of the group that a position belongs to."""
    return position >> INDEX_BITS


def index_of(position: int) -> int:
    """The index in its group that a position has."""
    return position & INDEX_MASK


def group_end(position: int) -> int:
    """The first position of the group after the one that this position belongs to."""
    return ((position >> INDEX_BITS) + 1) << INDEX_BITS


def group_begin(end: int) -> int:
    """The first position of the group that ends at `group_end`."""
    return end - (1 << INDEX_BITS)
