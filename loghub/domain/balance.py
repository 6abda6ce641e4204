"""The balance: the consumer for which each shard counts.

The counts of any two live consumers differ by at most one, and as few shards as possible move
(docs/shard-states.md 3). The result names only the target of each shard; the coordinator moves the
shards edge by edge.

An example with the consumers a, b and c: shards 0 1 2 3 count for a, 4 for b, and 5 for no consumer::

    six shards, three consumers             -> two each
    a has 4 and may keep the lowest 2       -> keeps 0 1, loses 2 3
    2 3 5 are loose                         -> b needs one, c needs two
    the least loaded first, then by name    -> 2 to c, 3 to b, 5 to c

With seven shards, one consumer may have three. That consumer is a, which already has the most, so that
one shard fewer moves. Between equal counts it is the consumer that still works on shards being moved
away from it, then the first by name.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAssignment:
    """One shard before the balance.

    ``counted_for`` is the consumer that has the shard or that it is being moved to. If it is None or
    not a live consumer, the shard is loose. ``under_way_from`` is the consumer that still works on a
    shard that is being moved.
    """

    shard: int
    counted_for: str | None = None
    under_way_from: str | None = None


def balance(assignments: Iterable[ShardAssignment], consumers: Iterable[str]) -> dict[int, str]:
    """A consumer for every shard, or {} without consumers. The order of the inputs does not matter.

    The counts differ by at most one, no other such result changes ``counted_for`` of fewer shards, and
    a balanced input is returned unchanged.
    """
    names = sorted(set(consumers))
    if not names:
        return {}
    ordered = sorted(assignments, key=lambda s: s.shard)
    has: dict[str, list[ShardAssignment]] = {name: [] for name in names}
    for shard in ordered:
        if shard.counted_for in has:
            has[shard.counted_for].append(shard)
    quota = _quotas({name: len(has[name]) for name in names}, ordered)
    kept_shards = {name: sorted(has[name], key=_keep_first)[: quota[name]] for name in names}
    result = {s.shard: name for name in names for s in kept_shards[name]}
    _assign_loose([s for s in ordered if s.shard not in result], quota, result)
    return result


def _quotas(counts: dict[str, int], assignments: list[ShardAssignment]) -> dict[str, int]:
    """How many shards each consumer gets.

    One more shard goes first to the consumers that have the most shards, then to consumers that still work on
    shards being moved away from them, so that some of these shards can stay.
    """
    low, extra = divmod(len(assignments), len(counts))
    works_on = Counter(s.under_way_from for s in assignments)
    ranked = sorted(counts, key=lambda name: (-counts[name], -works_on[name], name))
    return {name: low + (rank < extra) for rank, name in enumerate(ranked)}


def _keep_first(assignment: ShardAssignment) -> tuple[bool, int]:
    """Prefer a shard that the consumer already works on to a shard that is only being moved to it."""
    return (assignment.under_way_from is not None, assignment.shard)


def _assign_loose(loose: list[ShardAssignment], quota: dict[str, int], result: dict[int, str]) -> None:
    """Assign loose shards, first back to consumers that still work on them, then to the least loaded."""
    count = dict.fromkeys(quota, 0)
    for name in result.values():
        count[name] += 1

    def assign(assignment: ShardAssignment, name: str) -> None:
        result[assignment.shard] = name
        count[name] += 1

    for assignment in loose:
        former = assignment.under_way_from
        if former is not None and count.get(former, 0) < quota.get(former, 0):
            assign(assignment, former)
    for assignment in loose:
        if assignment.shard not in result:
            room = (name for name in quota if count[name] < quota[name])
            assign(assignment, min(room, key=lambda name: (count[name], name)))
