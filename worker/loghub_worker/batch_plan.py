"""Which piece of which shard the next batch reads, as plain values.

What for: the source asks it, and the job reads the answer back from Spark's own log of the batch.
What it must not know: Spark, HTTP, files. Read next: `loghub_worker.source.datasource`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Log groups of one shard, by cursor; half open."""

    shard: int
    begin: int
    end: int

    @property
    def groups(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch. The number makes every plan differ from the one before it, so that reading
    the same range once more (after a refused batch) is new work and not "nothing new"."""

    number: int
    ranges: tuple[Range, ...]

    def to_json(self) -> dict[str, Any]:
        """Primitives only: ``{"plan": n, "ranges": {"<shard>": [begin, end]}}``."""
        return {"plan": self.number, "ranges": {str(r.shard): [r.begin, r.end] for r in self.ranges}}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Plan":
        pieces = value["ranges"].items()
        ranges = sorted(Range(int(shard), int(begin), int(end)) for shard, (begin, end) in pieces)
        return Plan(int(value["plan"]), tuple(ranges))


NOTHING = Plan(0, ())
LARGEST_GROUP_BYTES = 10 << 20  # that a service takes: SLS 5, the embedded one 10 (docs/sls-protocol.md 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most that a batch takes of one shard, whichever is less; one log group in any case."""

    log_groups: int
    bytes: int

    def groups_of(self, group_bytes: float | None) -> int:
        """How many log groups of this mean size that is; None: none was measured yet."""
        size = LARGEST_GROUP_BYTES if group_bytes is None else max(1.0, group_bytes)
        return max(1, min(self.log_groups, int(self.bytes // size)))


def smoothed(before: float | None, *, read_bytes: int, groups: int) -> float | None:
    """Mean size of a shard's log groups after a batch of `groups`. It rises at once, since a batch
    that grows too large costs memory, and falls by half of the difference."""
    if not read_bytes or not groups:
        return before
    mean = read_bytes / groups
    return mean if before is None or mean > before else (before + mean) / 2


def next_plan(
    last: Plan,
    *,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    sizes: Mapping[int, float],
    bounds: Bounds,
) -> Plan:
    """The next batch: from each position on as much as `bounds` lets, never past the known end.

    `sizes` are the mean bytes of the shards' log groups, as far as known. `last` itself is returned
    if there is nothing to read.
    """
    ranges = [
        Range(shard, begin, min(begin + bounds.groups_of(sizes.get(shard)), ends[shard]))
        for shard, begin in sorted(positions.items())
        if ends.get(shard, begin) > begin
    ]
    return Plan(last.number + 1, tuple(ranges)) if ranges else last


def pack(ranges: Sequence[Range], *, bins: int) -> tuple[tuple[Range, ...], ...]:
    """Spread ranges over at most `bins` bins of like size: longest first, into the emptiest.

    A bin costs a fixed time whatever it holds (docs/spark.md 5), hence few of them and none empty.
    """
    filled: list[list[Range]] = [[] for _ in range(max(1, min(bins, len(ranges))))]
    for piece in sorted(ranges, key=lambda r: (-r.groups, r.shard)):
        min(filled, key=lambda b: sum(r.groups for r in b)).append(piece)
    return tuple(tuple(b) for b in filled if b)
