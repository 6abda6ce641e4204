"""Which piece of which shard the next batch reads, as plain values.

What for: the source asks it, and the job reads the answer back from Spark's own log of the batch.
What it must not know: Spark, HTTP, files. Read next: `loghub_worker.source`.
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


def next_plan(
    last: Plan, *, positions: Mapping[int, int], ends: Mapping[int, int], max_log_groups: int
) -> Plan:
    """The next batch: from each position at most `max_log_groups` on, never past the known end.

    `last` itself is returned if there is nothing to read.
    """
    ranges = [
        Range(shard, begin, min(begin + max_log_groups, ends[shard]))
        for shard, begin in sorted(positions.items())
        if ends.get(shard, begin) > begin
    ]
    return Plan(last.number + 1, tuple(ranges)) if ranges else last


def pack(ranges: Sequence[Range], *, bins: int) -> tuple[tuple[Range, ...], ...]:
    """Spread ranges over at most `bins` bins of like size: longest first, into the emptiest.

    A bin costs a fixed time whatever it holds (spark.md 5), hence few of them and none empty.
    """
    filled: list[list[Range]] = [[] for _ in range(max(1, min(bins, len(ranges))))]
    for piece in sorted(ranges, key=lambda r: (-r.groups, r.shard)):
        min(filled, key=lambda b: sum(r.groups for r in b)).append(piece)
    return tuple(tuple(b) for b in filled if b)
