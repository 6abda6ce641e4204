"""What an autoscaler elsewhere may ask for, by name.

What for: the one table of numbers that KEDA and HPAs are given. What it must not know: either
protocol. Read next: `loghub_operator.numbers.keda`, `loghub_operator.numbers.external_metrics`.

Prometheus has more (`loghub_operator.numbers.prometheus`); these are the ones that say how much
there is to do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from loghub_operator.numbers.board import UnknownNumberError
from loghub_operator.scaling.readings import GroupReadings


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One number: ``word`` in a KEDA trigger, ``metric`` in an HPA; ``target`` holds where none is given."""

    word: str
    metric: str
    value: Callable[[GroupReadings], float | None]
    target: float | None = None


OFFERS = (
    # How many workers it takes, worked out as for mode Auto: one replica for each.
    Offer(word="wanted", metric="loghub_wanted_workers", value=lambda of: of.wanted, target=1.0),
    Offer(word="lagLogGroups", metric="loghub_lag_log_groups", value=lambda of: of.lag_groups),
    Offer(word="lagSeconds", metric="loghub_lag_seconds", value=lambda of: of.lag_seconds),
    Offer(
        word="arrivalLogGroupsPerSecond",
        metric="loghub_arrival_log_groups_per_second",
        value=lambda of: of.arrival_per_s,
    ),
)
BY_WORD = {offer.word: offer for offer in OFFERS}
BY_METRIC = {offer.metric: offer for offer in OFFERS}


def number(offer: Offer, readings: GroupReadings) -> float:
    """The number. Raises `UnknownNumberError` for one that is not known, never makes it zero."""
    value = offer.value(readings)
    if value is None or not math.isfinite(value):
        raise UnknownNumberError(f"{offer.metric} of {readings.namespace}/{readings.name} is not known now")
    return float(value)


def is_active(readings: GroupReadings, *, above: float = 0.0) -> bool:
    """Is there something to consume: more than ``above`` log groups? Raises `UnknownNumberError`.

    Where the log service answered and some shard's lag is not known all the same, there are logs
    in it that nobody has begun to consume. How many is known only once a worker did, so one has to.
    """
    begun = readings.lag_groups is not None
    if not begun and readings.assignable:
        return True
    return number(BY_WORD["lagLogGroups"], readings) > above
