"""Half-open ranges over the MD5 key space, and their form on the wire.

The ranges decide which shard receives a hash key and where a shard can be split. Keys are integers in
[0, 2**128); on the wire they are 32 lower-case hex digits. A range is half-open, and the whole space
ends at 2**128, which 32 digits cannot express: the wire writes all-f instead (docs/sls-protocol.md 2.3,
ListShards). On the wire, all-f as the exclusive end therefore includes the top: the key all-f belongs
to the last shard.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

KEY_DIGITS = 32
TOP = 1 << 128
MAX_KEY = TOP - 1
MAX_PARTS = 1 << 16

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
        """So many parts, whose widths differ by at most one key. Raises BadHashKey for a count outside 1 to
        65536, or if the range is too small."""
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
