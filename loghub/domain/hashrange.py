"""Half-open ranges over the MD5 key space, and their form on the wire.

What for: which shard takes which hash key, and where a shard may be split. What it must not
know: shards. Read next: `shards`.

Keys are integers of [0, 2**128); on the wire they are 32 lower-case hex digits. A range is
half-open, and the whole space ends at 2**128, which 32 digits cannot say: the wire writes all-f
there (docs/sls-protocol.md 2.3, ListShards). So on the wire all-f as the exclusive end means "the
top included": the key all-f belongs to the last shard.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

KEY_DIGITS = 32
TOP = 1 << 128
MAX_KEY = TOP - 1

_KEY = re.compile(r"[0-9a-fA-F]{32}")


class BadHashKey(ValueError):  # noqa: N818 - says what is wrong
    """A text that is no key of the MD5 space, or a key that cannot serve as asked."""


def parse_key(text: str) -> int:
    """A key from its 32 hex digits, either case; BadHashKey for anything else."""
    if not _KEY.fullmatch(text):
        raise BadHashKey(f"a hash key is {KEY_DIGITS} hex digits, not {text[:64]!r}")
    return int(text, 16)


def format_key(key: int) -> str:
    """32 lower-case hex digits; 2**128, the end of the whole space, is written as all-f."""
    if not 0 <= key <= TOP:
        raise BadHashKey(f"the key {key:#x} is outside the MD5 key space")
    return f"{min(key, MAX_KEY):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashRange:
    """The keys ``begin <= key < end``, never empty, and sayable on the wire."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        # An end of exactly all-f would read as the top when it comes back from the wire, so the
        # key all-f is never a bound.
        if not 0 <= self.begin < self.end <= TOP or MAX_KEY in (self.begin, self.end):
            raise BadHashKey(f"[{self.begin:#x}, {self.end:#x}) is no range of the MD5 key space")

    @classmethod
    def parse(cls, *, begin_key: str, end_key: str) -> "HashRange":
        """From the wire's inclusiveBeginKey and exclusiveEndKey."""
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

    def midpoint(self) -> int:
        """The key at which halves come out even; BadHashKey when there is nothing to halve."""
        return self._checked((self.begin + self.end) // 2)

    def split(self, key: int) -> tuple["HashRange", "HashRange"]:
        """``[begin, key)`` and ``[key, end)``; BadHashKey when one of them would be no range."""
        key = self._checked(key)
        return HashRange(begin=self.begin, end=key), HashRange(begin=key, end=self.end)

    def _checked(self, key: int) -> int:
        if not self.begin < key < self.end or key == MAX_KEY:
            raise BadHashKey(
                f"the split key {format_key(key)} does not lie inside {self.begin_key} to {self.end_key}"
            )
        return key

    def join(self, right: "HashRange") -> "HashRange":
        """Both as one; BadHashKey unless ``right`` begins where this ends."""
        if self.end != right.begin:
            raise BadHashKey(f"{right.begin_key} does not follow {self.end_key}")
        return HashRange(begin=self.begin, end=right.end)


WHOLE = HashRange(begin=0, end=TOP)


def even_ranges(count: int) -> tuple[HashRange, ...]:
    """The whole space in ``count`` parts, each as wide as another or one key wider."""
    if not 1 <= count <= 1 << 16:
        raise BadHashKey(f"the key space is cut into 1 to {1 << 16} parts, not {count}")
    bounds = [TOP * i // count for i in range(count + 1)]
    return tuple(HashRange(begin=b, end=e) for b, e in pairwise(bounds))
