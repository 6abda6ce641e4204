"""The metrics that external autoscalers (KEDA and HPAs) can scale on, by name.

Prometheus has more metrics (`loghub_operator.metrics.collector`); these are the metrics that measure the
load.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from loghub_operator.metrics.store import UnknownValueError
from loghub_operator.model.group_metrics import GroupMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingMetric:
    """One metric, called ``keda_name`` in a KEDA trigger and ``metric`` in an HPA. ``target`` is the default
    of the trigger's ``targetValue``; None where that is required."""

    keda_name: str
    metric: str
    value: Callable[[GroupMetrics], float | None]
    target: float | None = None


METRICS = (
    # How many workers mode Auto would run: what the load requires, in whole shards for each worker,
    # stabilized and within the bounds; unknown while the load is. The plain number of the formula changes
    # with every few logs.
    AutoscalingMetric(
        keda_name="desiredWorkers",
        metric="loghub_desired_workers",
        value=lambda of: None if of.wanted is None or of.retry_groups is None else of.recommended,
        target=1.0,
    ),
    AutoscalingMetric(
        keda_name="lagLogGroups", metric="loghub_lag_log_groups", value=lambda of: of.lag_groups
    ),
    # Not part of the lag: more workers do not bring their time any sooner. One is needed when it comes.
    AutoscalingMetric(
        keda_name="retryLogGroups", metric="loghub_retry_log_groups", value=lambda of: of.retry_groups
    ),
    AutoscalingMetric(keda_name="lagSeconds", metric="loghub_lag_seconds", value=lambda of: of.lag_seconds),
    AutoscalingMetric(
        keda_name="arrivalLogGroupsPerSecond",
        metric="loghub_arrival_log_groups_per_second",
        value=lambda of: of.arrival_per_s,
    ),
)
BY_KEDA_NAME = {definition.keda_name: definition for definition in METRICS}
BY_METRIC = {definition.metric: definition for definition in METRICS}


def current_value(definition: AutoscalingMetric, readings: GroupMetrics) -> float:
    """The current value. Raises `UnknownValueError` if it is unknown: an unknown value is never 0."""
    value = definition.value(readings)
    if value is None or not math.isfinite(value):
        group = f"{readings.namespace}/{readings.name}"
        raise UnknownValueError(f"{definition.metric} of {group} is currently unknown")
    return float(value)


def is_active(readings: GroupMetrics, *, above: float = 0.0) -> bool:
    """Whether more than ``above`` log groups wait to be consumed or retried. Raises `UnknownValueError`.

    If the log service responded and a shard's lag is nevertheless unknown, the shard has logs but no
    checkpoint yet. Its lag becomes known only once a worker consumes it, so the group counts as active.
    """
    begun = readings.lag_groups is not None
    if not begun and readings.assignable:
        return True
    lag = current_value(BY_KEDA_NAME["lagLogGroups"], readings)
    return lag > above or lag + current_value(BY_KEDA_NAME["retryLogGroups"], readings) > above
