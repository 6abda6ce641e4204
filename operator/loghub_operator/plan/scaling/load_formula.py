"""Computes how many workers the load needs, by one formula, and limits the number by the bounds.

The formula is wanted = ceil((arrival + lag / catch-up time) / rate of one worker); the status shows it with
its numbers. A shard has one consumer and the log service balances by count, so the worker with the most
shards is decisive: 8 shards are no faster with 5, 6 or 7 workers than with 4. The ``target`` is the fewest
workers of which none has more shards than it can consume. Two more numbers keep a load near a limit from
changing anything: ``low``, with which workers would be ten percent over their rate, and ``high``, with which
each would have ten percent to spare. A number from ``low`` to ``high`` is kept.
"""

import math
from dataclasses import dataclass
from typing import Literal

from loghub_operator.api.fields import MAX_REPLICAS

OVER = 1.1
SPARE = 0.9
Bound = Literal["Minimum", "Maximum", "Shards", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInputs:
    """What a decision is based on, in log groups and seconds; None: unknown."""

    arrival_per_s: float | None
    lag_groups: int | None
    worker_per_s: float | None
    catch_up_s: int
    assignable: int | None
    ready: int
    retry_groups: int | None = 0  # which wait in the retry logstore, and need one worker, not more

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do, now or when its time comes. What is unknown may be something."""
        return self.lag_groups == 0 and self.arrival_per_s == 0.0 and self.retry_groups == 0

    @property
    def demand_per_s(self) -> float | None:
        """What must be consumed per second to work off the lag in time."""
        if self.arrival_per_s is None or self.lag_groups is None:
            return None
        return self.arrival_per_s + self.lag_groups / self.catch_up_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """Workers that the load needs; ``wanted`` by the formula, ``low <= target <= high`` in whole shards."""

    wanted: int
    low: int
    target: int
    high: int

    @classmethod
    def exactly(cls, workers: int) -> "ReplicaRange":
        return cls(wanted=workers, low=workers, target=workers, high=workers)


def replica_range_of(inputs: LoadInputs) -> ReplicaRange | None:
    """None: unknown. Without any load the answer is zero, even while the rate is unknown."""
    demand = inputs.demand_per_s
    if demand is None:
        return None
    if demand == 0.0:
        return ReplicaRange.exactly(0)
    if inputs.worker_per_s is None or inputs.worker_per_s <= 0.0:
        return None
    load = demand / inputs.worker_per_s
    return ReplicaRange(
        wanted=_workers(load),
        low=spread(load / OVER, inputs.assignable),
        target=spread(load, inputs.assignable),
        high=spread(load / SPARE, inputs.assignable),
    )


def spread(load: float, shards: int | None) -> int:
    """The fewest workers of which none holds more shards than it can consume, if all shards are alike."""
    if not shards or load > shards or load <= 0.0:
        return _workers(load)
    each = math.floor(round(shards / load, 3))
    return math.ceil(shards / each)


def _workers(load: float) -> int:
    """Whole workers, at least one for any load; an excess below a thousandth of a worker does not count."""
    return min(MAX_REPLICAS, max(1, math.ceil(round(load, 3)))) if load > 0.0 else 0


def formula(inputs: LoadInputs, replica_range: ReplicaRange | None) -> str | None:
    """The formula with its numbers, for users; None if a number is missing."""
    arrival, lag, rate = inputs.arrival_per_s, inputs.lag_groups, inputs.worker_per_s
    if replica_range is None or arrival is None or lag is None or not rate:
        return None
    numbers = f"({short(arrival)}/s + {lag} / {inputs.catch_up_s} s) / {short(rate)}/s"
    spreads = (
        f"; {inputs.assignable} shards spread over {replica_range.target}"
        if replica_range.target != replica_range.wanted
        else ""
    )
    return f"ceil({numbers}) = {replica_range.wanted}{spreads}"


def short(number: float) -> str:
    """Three significant digits, for messages."""
    return f"{rounded(number):g}"


def rounded(number: float) -> float:
    """To three significant digits: smaller fluctuations are not worth reporting."""
    return float(f"{number:.3g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """The number of workers is between these; ``shards`` None: unknown, so it does not limit."""

    least: int
    most: int
    shards: int | None

    def cut(self, workers: int) -> tuple[int, Bound | None]:
        """The number within the bounds, and the last bound that limited it."""
        cut, bound = workers, None
        if cut > self.most:
            cut, bound = self.most, "Maximum"
        elif cut < self.least:
            cut, bound = self.least, "Minimum"
        if self.shards is not None and cut > self.shards:
            cut, bound = self.shards, "Shards"
        return cut, bound  # type: ignore[return-value]
