"""The metrics that external autoscalers (KEDA and HPAs) can scale on, by name.

Prometheus has more metrics (`loghub_operator.metrics.collector`); these are the metrics that measure the
load.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from loghub_operator.metrics.store import UnknownNumberError
from loghub_operator.model.group_metrics import GroupMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingMetric:
    """One metric, called ``word`` in a KEDA trigger and ``metric`` in an HPA. ``target`` is the default
    of the trigger's ``targetValue``; None where that is required."""

    word: str
    metric: str
    value: Callable[[GroupMetrics], float | None]
    target: float | None = None


OFFERS = (
    # How many workers the load requires, computed as in mode Auto and before any bound: one replica each.
    AutoscalingMetric(
        word="desiredWorkers", metric="loghub_desired_workers", value=lambda of: of.wanted, target=1.0
    ),
    AutoscalingMetric(word="lagLogGroups", metric="loghub_lag_log_groups", value=lambda of: of.lag_groups),
    AutoscalingMetric(word="lagSeconds", metric="loghub_lag_seconds", value=lambda of: of.lag_seconds),
    AutoscalingMetric(
        word="arrivalLogGroupsPerSecond",
        metric="loghub_arrival_log_groups_per_second",
        value=lambda of: of.arrival_per_s,
    ),
)
BY_WORD = {offer.word: offer for offer in OFFERS}
BY_METRIC = {offer.metric: offer for offer in OFFERS}


def number(offer: AutoscalingMetric, readings: GroupMetrics) -> float:
    """The current value. Raises `UnknownNumberError` if it is unknown: an unknown value is never 0."""
    value = offer.value(readings)
    if value is None or not math.isfinite(value):
        group = f"{readings.namespace}/{readings.name}"
        raise UnknownNumberError(f"{offer.metric} of {group} is currently unknown")
    return float(value)


def is_active(readings: GroupMetrics, *, above: float = 0.0) -> bool:
    """Whether more than ``above`` log groups wait to be consumed. Raises `UnknownNumberError`.

    If the log service responded and a shard's lag is nevertheless unknown, the shard has logs but no
    checkpoint yet. Its lag becomes known only once a worker consumes it, so the group counts as active.
    """
    begun = readings.lag_groups is not None
    if not begun and readings.assignable:
        return True
    return number(BY_WORD["lagLogGroups"], readings) > above
