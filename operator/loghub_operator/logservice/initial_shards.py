"""Which shards begin at spec.startPosition: those that existed when the group was created or adopted.

Every later shard continues the shards that it was split or merged from, so it begins at its own first log,
whatever spec.startPosition says: `end` would skip what was written before a worker opens it. Numbers of
shards are never reused and ascend, so one number separates the two kinds, without any clock.
"""

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model.observed import Available, LogServiceObserved, ShardObserved


def last_initial_shard(recorded: GroupRecord | None, service: LogServiceObserved) -> int | None:
    """The highest number of a shard that begins at spec.startPosition; None while nothing is known.

    A group that does not exist yet has read nothing, so its initial shards are those of now. For an adopted
    group, a shard that nobody read begins at its own first log if one of its ancestors was read, and so does
    every shard after it.
    """
    if isinstance(service, Available) and service.group is None:
        return _highest(service.shards)
    if recorded is not None and recorded.is_about_ours and recorded.last_initial_shard is not None:
        return recorded.last_initial_shard
    if not isinstance(service, Available):
        return None
    continuing = _continuing(service.shards)
    return min(continuing) - 1 if continuing else _highest(service.shards)


def _highest(shards: tuple[ShardObserved, ...]) -> int | None:
    return max((shard.shard for shard in shards), default=None)


def _continuing(shards: tuple[ShardObserved, ...]) -> list[int]:
    """The shards that nobody read, of which an ancestor was read. A parent's number is the lower one."""
    after_read = dict[int, bool]()  # whether the shard or an ancestor was read
    found = []
    for one in sorted(shards, key=lambda one: one.shard):
        ancestor_read = any(after_read.get(parent, False) for parent in one.parents)
        if ancestor_read and not one.checkpoint:
            found.append(one.shard)
        after_read[one.shard] = ancestor_read or bool(one.checkpoint)
    return found
