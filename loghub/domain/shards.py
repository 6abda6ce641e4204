"""The shards of one logstore: creation, split, merge, deletion, and lookup by key.

The rules of docs/sls-protocol.md 2.3 and 5 are pure functions over an immutable `ShardMap`. The shards that
accept writes always cover the whole key space without overlap. A split or a merge makes the old shards
read-only and gives the new shards new numbers. A number is never reused, not even after its shard is deleted.
`group.LogShard` is a shard as a consumer group sees it.

A `HashRange` decides which shard receives a hash key and where a shard can be split. Keys are integers in [0,
2**128); on the wire they are 32 lower-case hex digits. A range is half-open, and the whole space ends at
2**128, which 32 digits cannot express: the wire writes all-f instead (docs/sls-protocol.md 2.3, ListShards).
On the wire, all-f as the exclusive end therefore includes the top: the key all-f belongs to the last shard.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

KEY_DIGITS = 32  # hash keys are MD5 values: 128 bits
TOP = 1 << 128  # exclusive, as hash keys have 128 bits
MAX_KEY = TOP - 1
MAX_PARTS = 1 << 16  # far above the 256 shards of a logstore: bounds the list that one request makes
# The maximum of logs in one stored log group; a larger group is stored in parts. The place of a log is the
# ordinal of its group in the shard and its index in the group, and both fit into the 63 bits of a Kafka
# offset (docs/kafka.md 2).
MAX_GROUP_LOGS = 1 << 17

_KEY = re.compile(r"[0-9a-fA-F]{32}")


class BadHashKey(ValueError):  # noqa: N818 - says what is wrong
    """A text that is not a key of the MD5 space, or a key that cannot be used for the requested operation."""


def parse_key(text: str) -> int:
    """A key from its 32 hex digits in either case. Raises BadHashKey for any other text."""
    if not _KEY.fullmatch(text):
        raise BadHashKey(f"a hash key is {KEY_DIGITS} hex digits, not {text[:64]!r}")
    return int(text, 16)


def format_key(key: int) -> str:
    """32 lower-case hex digits; 2**128, the end of the whole space, is written as all-f.

    Raises BadHashKey for a key outside the MD5 key space.
    """
    if not 0 <= key <= TOP:
        raise BadHashKey(f"the key {key:#x} is outside the MD5 key space")
    return f"{min(key, MAX_KEY):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashRange:
    """The keys ``begin <= key < end``: never empty, and always expressible on the wire."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        # An end of exactly all-f would be parsed as the top when it returns from the wire, so the
        # key all-f is never a bound.
        if not 0 <= self.begin < self.end <= TOP or MAX_KEY in (self.begin, self.end):
            raise BadHashKey(f"[{self.begin:#x}, {self.end:#x}) is not a valid range of the MD5 key space")

    @classmethod
    def parse(cls, *, begin_key: str, end_key: str) -> "HashRange":
        """The range of the wire's inclusiveBeginKey and exclusiveEndKey."""
        end = parse_key(end_key)
        return cls(begin=parse_key(begin_key), end=TOP if end == MAX_KEY else end)

    @property
    def begin_key(self) -> str:
        return format_key(self.begin)

    @property
    def end_key(self) -> str:
        return format_key(self.end)

    def __contains__(self, key: int) -> bool:
        return self.begin <= key < self.end

    def overlaps(self, other: "HashRange") -> bool:
        return self.begin < other.end and other.begin < self.end

    def parts(self, count: int) -> tuple["HashRange", ...]:
        """The range in ``count`` parts, whose widths differ by at most one key. Raises BadHashKey for a count
        outside 1 to 65536, or if the range is too small."""
        if not 1 <= count <= MAX_PARTS:
            raise BadHashKey(f"a range of keys can be divided into 1 to {MAX_PARTS} parts, not {count}")
        width = self.end - self.begin
        if width < count:
            raise BadHashKey(f"{self.begin_key} to {self.end_key} is too small for {count} parts")
        bounds = [self.begin + width * i // count for i in range(count + 1)]
        return tuple(HashRange(begin=b, end=e) for b, e in pairwise(bounds))

    def split(self, key: int) -> tuple["HashRange", "HashRange"]:
        """``[begin, key)`` and ``[key, end)``. Raises BadHashKey if either would not be a valid range."""
        key = self._checked(key)
        return HashRange(begin=self.begin, end=key), HashRange(begin=key, end=self.end)

    def _checked(self, key: int) -> int:
        if not self.begin < key < self.end or key == MAX_KEY:
            raise BadHashKey(
                f"the split key {format_key(key)} does not lie inside {self.begin_key} to {self.end_key}"
            )
        return key

    def join(self, right: "HashRange") -> "HashRange":
        """The union of both ranges. Raises BadHashKey unless ``right`` begins where this range ends."""
        if self.end != right.begin:
            raise BadHashKey(f"{right.begin_key} does not follow {self.end_key}")
        return HashRange(begin=self.begin, end=right.end)


WHOLE = HashRange(begin=0, end=TOP)


def even_ranges(count: int) -> tuple[HashRange, ...]:
    """The `HashRange.parts` of the whole space."""
    return WHOLE.parts(count)


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

    def in_place_of(self, number: int) -> int:
        """The addressed shard, or a writable one in its place: always the same, so that the order of a
        producer stays. Some shard accepts writes."""
        addressed = self.shards.get(number)
        if addressed is not None and not addressed.read_only:
            return number
        writable = sorted(shard.shard for shard in self.writable())
        return writable[number % len(writable)]


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
    for current in sorted(shards, key=lambda s: s.shard):
        first = bisect_right(latest, current.keys.begin, key=_begin) - 1
        after = bisect_left(latest, current.keys.end, key=_begin)
        covered = latest[first:after]
        parents[current.shard] = tuple(sorted({shard for _, shard in covered} - {-1}))
        before = [covered[0]] if covered[0][0] < current.keys.begin else []
        next_begin = latest[after][0] if after < len(latest) else TOP
        rest = [(current.keys.end, covered[-1][1])] if current.keys.end < next_begin else []
        latest[first:after] = [*before, (current.keys.begin, current.shard), *rest]
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
