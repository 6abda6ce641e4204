"""Ordinals of log groups, from which Kafka offsets are made (docs/kafka.md 2).

They count the groups of a shard. A logstore that was created again begins above those of the one before it.
"""

from loghub.service.storage.shardlog import ShardLog


def ordinal_of(log: ShardLog, cursor: int) -> int:
    """The ordinal of the log group at a cursor."""
    return cursor - log.first_cursor + log.first_ordinal


def cursor_of(log: ShardLog, ordinal: int) -> int:
    """The cursor of the log group with an ordinal."""
    return ordinal - log.first_ordinal + log.first_cursor
