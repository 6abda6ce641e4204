"""The shards of one logstore: creation, split, merge, deletion, and lookup by key.

The rules of docs/sls-protocol.md 2.3 and 5 are pure functions over an immutable `ShardMap`. The shards
that accept writes always cover the whole key space without overlap. A split or a merge makes the old
shards read-only and gives the new shards new numbers. A number is never reused, not even after its
shard is deleted. `group.LogShard` is a shard as a consumer group sees it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from loghub.domain.hashrange import TOP, BadHashKey, HashRange, even_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard of a logstore; ``parents`` are the shards it was split or merged from."""

    shard: int
    keys: HashRange
    read_only: bool = False
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardMap:
    """All shards of a logstore in ascending number, and the number of the next new shard."""

    shards: Mapping[int, Shard] = field(default_factory=dict)
    next_shard: int = 0

    def writable(self) -> tuple[Shard, ...]:
        """The shards that accept writes, ascending by key."""
        return self._writable

    @cached_property
    def _writable(self) -> tuple[Shard, ...]:
        return tuple(sorted((s for s in self.shards.values() if not s.read_only), key=lambda s: s.keys.begin))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshard:
    """The result of a split or merge: the new map, the shards it closed and the shards it created."""

    after: ShardMap
    closed: tuple[Shard, ...]
    created: tuple[Shard, ...]


class ShardError(Exception):
    """The requested operation on the shards is not possible; nothing has changed."""


class ShardNotFound(ShardError):  # noqa: N818 - says what is wrong
    """No shard has this number."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shard} does not exist")


class ShardIsReadOnly(ShardError):  # noqa: N818 - says what is wrong
    """A read-only shard can be neither split nor merged."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shard} is read-only because it was split or merged")


class ShardIsWritable(ShardError):  # noqa: N818 - says what is wrong
    """Only a read-only shard can be deleted: the others must cover the key space."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shard} accepts writes; only a read-only shard can be deleted")


class NoRightNeighbour(ShardError):  # noqa: N818 - says what is wrong
    """The last shard by key has nothing to merge with."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shard} is the last by key and has no right neighbor to merge with")


def create(count: int) -> ShardMap:
    """``count`` writable shards, numbered from 0, over even parts of the key space."""
    shards = {n: Shard(shard=n, keys=keys) for n, keys in enumerate(even_ranges(count))}
    return ShardMap(shards=shards, next_shard=count)


def split(before: ShardMap, *, shard: int, parts: int = 2) -> Reshard:
    """Split one writable shard into parts of the same width.

    Raises ShardNotFound, ShardIsReadOnly, or hashrange.BadHashKey if the range is too small.
    """
    old = _writable(before, shard)
    return _reshard(before, closing=(old,), ranges=old.keys.parts(parts))


def split_at(before: ShardMap, *, shard: int, key: int) -> Reshard:
    """Split one writable shard into two, the second of which begins at the key.

    Raises ShardNotFound, ShardIsReadOnly, or hashrange.BadHashKey for a key that is not inside the
    range.
    """
    old = _writable(before, shard)
    return _reshard(before, closing=(old,), ranges=old.keys.split(key))


def merge(before: ShardMap, *, shard: int) -> Reshard:
    """Merge a writable shard with its right neighbor by key.

    Raises ShardNotFound, ShardIsReadOnly or NoRightNeighbour.
    """
    left = _writable(before, shard)
    right = next((s for s in before.writable() if s.keys.begin == left.keys.end), None)
    if right is None:
        raise NoRightNeighbour(shard)
    return _reshard(before, closing=(left, right), ranges=(left.keys.join(right.keys),))


def delete(before: ShardMap, *, shard: int) -> ShardMap:
    """The map without one read-only shard. Raises ShardNotFound or ShardIsWritable."""
    if not _get(before, shard).read_only:
        raise ShardIsWritable(shard)
    return replace(before, shards={n: s for n, s in before.shards.items() if n != shard})


def route(shards: ShardMap, *, key: int) -> Shard:
    """The writable shard whose range contains the key (docs/sls-protocol.md 2.3, PutLogs by key).

    Raises BadHashKey for a key outside the key space.
    """
    shard = next((s for s in shards.writable() if key in s.keys), None)
    if shard is None:
        raise BadHashKey(f"the key {key:#x} is outside the MD5 key space")
    return shard


def infer_parents(shards: Iterable[Shard]) -> dict[int, tuple[int, ...]]:
    """Each shard's parents, inferred from numbers and ranges where the service does not report them.

    ListShards reports only number, status and keys. A shard with a lower number that overlaps a later
    shard must have been read-only before the later shard was created, so it is an ancestor. The parents
    are the latest ancestors that cover the range. If a parent is deleted, an older ancestor may be
    returned instead.
    """
    latest = [(0, -1)]  # where a part of the key space begins, and its latest shard so far; -1: none
    parents = {}
    for one in sorted(shards, key=lambda s: s.shard):
        first = bisect_right(latest, one.keys.begin, key=_begin) - 1
        after = bisect_left(latest, one.keys.end, key=_begin)
        covered = latest[first:after]
        parents[one.shard] = tuple(sorted({shard for _, shard in covered} - {-1}))
        before = [covered[0]] if covered[0][0] < one.keys.begin else []
        next_begin = latest[after][0] if after < len(latest) else TOP
        rest = [(one.keys.end, covered[-1][1])] if one.keys.end < next_begin else []
        latest[first:after] = [*before, (one.keys.begin, one.shard), *rest]
    return parents


def _begin(part: tuple[int, int]) -> int:
    return part[0]


def _get(shards: ShardMap, shard: int) -> Shard:
    existing = shards.shards.get(shard)
    if existing is None:
        raise ShardNotFound(shard)
    return existing


def _writable(shards: ShardMap, shard: int) -> Shard:
    existing = _get(shards, shard)
    if existing.read_only:
        raise ShardIsReadOnly(shard)
    return existing


def _reshard(before: ShardMap, *, closing: tuple[Shard, ...], ranges: tuple[HashRange, ...]) -> Reshard:
    closed = tuple(replace(s, read_only=True) for s in closing)
    parents = tuple(sorted(s.shard for s in closing))
    created = tuple(
        Shard(shard=before.next_shard + i, keys=keys, parents=parents) for i, keys in enumerate(ranges)
    )
    shards = {**before.shards, **{s.shard: s for s in (*closed, *created)}}
    after = ShardMap(shards=shards, next_shard=before.next_shard + len(created))
    return Reshard(after=after, closed=closed, created=created)
