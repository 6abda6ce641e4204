"""Offsets of records, from the place of a log group in its shard (docs/kafka.md 2).

The ordinal of a log group counts the groups of its shard from 0. An offset is the ordinal times 2^17 plus
the index of the record in the group, so that a cursor becomes an offset and back without a table. Between the
last record of a group and the first one of the next, offsets are unused. The end of a partition is one after
its last record, never the begin of the next group: consumers wait at the end, and compute their lag with it.
"""

INDEX_BITS = 17
MAX_GROUP_LOGS = 1 << INDEX_BITS
_INDEX_MASK = MAX_GROUP_LOGS - 1


def offset_of(ordinal: int, index: int = 0) -> int:
    """The offset of a record. An index of `MAX_GROUP_LOGS` is after the last record of a full group."""
    return (ordinal << INDEX_BITS) + index


def position(offset: int) -> tuple[int, int]:
    """The ordinal and the index of an offset."""
    return offset >> INDEX_BITS, offset & _INDEX_MASK


def is_past(offset: int, *, ordinal: int, logs: int) -> bool:
    """Whether a group with so many logs lies completely before an offset."""
    return offset_of(ordinal, logs) <= offset
