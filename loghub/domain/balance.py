"""The balancer: which consumer each shard should be counted for.

What for: counts of live consumers that differ by at most one, with the fewest moves
(docs/shard-states.md 3). What it must not know: states, time, how a shard gets there.
Read next: `coordinator`, which carries it out edge by edge.

An example. Consumers a, b, c; a is counted for shards 0 1 2 3, b for 4, nobody for 5::

    six shards, three consumers      -> two each
    a has 4, may keep 2: the lowest  -> keeps 0 1, gives up 2 3
    loose by now: 2 3 5              -> b needs one, c needs two
    the least loaded first, by name  -> 2 to c, 3 to b, 5 to c

With seven shards one consumer may have three. It is the one that has most already (a), so that
one shard less moves; between equals it is who still works on shards that are under way from it, then
the first by name.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One shard as the balance finds it.

    ``counted_for``: the consumer that has it, or that it is under way to; None or a consumer
    that is not live: it is loose. ``under_way_from``: who still works on it meanwhile.
    """

    shard: int
    counted_for: str | None = None
    under_way_from: str | None = None


def balance(standings: Iterable[Standing], consumers: Iterable[str]) -> dict[int, str]:
    """Shard -> consumer, for every shard; {} without consumers. The order of the inputs is of no matter.

    Counts differ by at most one, no other such outcome changes ``counted_for`` of fewer
    shards, and a balanced input comes back as it is.
    """
    names = sorted(set(consumers))
    if not names:
        return {}
    ordered = sorted(standings, key=lambda s: s.shard)
    has = {name: [s for s in ordered if s.counted_for == name] for name in names}
    quota = _quotas({name: len(has[name]) for name in names}, ordered)
    kept = {name: sorted(has[name], key=_keep_first)[: quota[name]] for name in names}
    result = {s.shard: name for name in names for s in kept[name]}
    _place_loose([s for s in ordered if s.shard not in result], quota, result)
    return result


def _quotas(counts: dict[str, int], standings: list[Standing]) -> dict[str, int]:
    """How many each shall have. One more goes first to those with most already, then to those
    who still work on what is under way from them, so that some of it may simply stay."""
    low, extra = divmod(len(standings), len(counts))
    works_on = Counter(s.under_way_from for s in standings)
    ranked = sorted(counts, key=lambda name: (-counts[name], -works_on[name], name))
    return {name: low + (rank < extra) for rank, name in enumerate(ranked)}


def _keep_first(standing: Standing) -> tuple[bool, int]:
    """What a consumer already works on rather than what is only under way to it."""
    return (standing.under_way_from is not None, standing.shard)


def _place_loose(loose: list[Standing], quota: dict[str, int], result: dict[int, str]) -> None:
    """Back to who still works on it where there is room, then to the least loaded."""
    count = dict.fromkeys(quota, 0)
    for name in result.values():
        count[name] += 1

    def place(standing: Standing, name: str) -> None:
        result[standing.shard] = name
        count[name] += 1

    for standing in loose:
        back = standing.under_way_from
        if back is not None and count.get(back, 0) < quota.get(back, 0):
            place(standing, back)
    for standing in loose:
        if standing.shard not in result:
            room = (name for name in quota if count[name] < quota[name])
            place(standing, min(room, key=lambda name: (count[name], name)))
