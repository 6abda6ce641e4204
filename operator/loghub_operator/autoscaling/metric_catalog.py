"""The metrics that external autoscalers (KEDA and HPAs) can scale on, by name.

Prometheus has more metrics (`loghub_operator.metrics.collector`); these are the metrics that measure the
load.

The metadata of a KEDA trigger, parsed and checked.

``consumerGroup``            name of the LogHubConsumerGroup, in the ScaledObject's own namespace
``metric``                   desiredWorkers (default), lagLogGroups, retryLogGroups, lagSeconds,
                             arrivalLogGroupsPerSecond or, with spec.subscription, backlogLogs
``targetValue``              target of the metric, greater than 0; default 1 for ``desiredWorkers``,
                             required for the other metrics
``activationLagLogGroups``   the group is active while its lag is above this number of log groups, or the
                             backlog of its subscription above this number of logs; default 0
"""

import math
from collections.abc import Callable, Mapping
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
        value=lambda metrics: (
            None if metrics.wanted is None or metrics.retry_groups is None else metrics.recommended
        ),
        target=1.0,
    ),
    AutoscalingMetric(
        keda_name="lagLogGroups", metric="loghub_lag_log_groups", value=lambda metrics: metrics.lag_groups
    ),
    # Not part of the lag: more workers do not bring their time any sooner. One is needed when it comes.
    AutoscalingMetric(
        keda_name="retryLogGroups",
        metric="loghub_retry_log_groups",
        value=lambda metrics: metrics.retry_groups,
    ),
    AutoscalingMetric(
        keda_name="lagSeconds", metric="loghub_lag_seconds", value=lambda metrics: metrics.lag_seconds
    ),
    AutoscalingMetric(
        keda_name="arrivalLogGroupsPerSecond",
        metric="loghub_arrival_log_groups_per_second",
        value=lambda metrics: metrics.arrival_per_s,
    ),
    # Known for a subscription only, of which the three metrics in log groups are not known.
    AutoscalingMetric(
        keda_name="backlogLogs",
        metric="loghub_subscription_backlog_logs",
        value=lambda metrics: None if metrics.subscription is None else metrics.subscription.backlog_logs,
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
    """Whether more than ``above`` log groups, or logs of a subscription, wait to be consumed, or log groups
    wait to be retried. Raises `UnknownValueError`.

    If the log service responded and a shard's lag is nevertheless unknown, the shard has logs but no
    checkpoint yet. Its lag becomes known only once a worker consumes it, so the group counts as active.
    """
    subscribes = readings.subscription is not None
    begun = subscribes or readings.lag_groups is not None
    if not begun and readings.assignable:
        return True
    lag = current_value(BY_KEDA_NAME["backlogLogs" if subscribes else "lagLogGroups"], readings)
    return lag > above or lag + current_value(BY_KEDA_NAME["retryLogGroups"], readings) > above


MAX_TARGET = 1e15  # KEDA's integers are signed 64-bit


class BadTriggerError(ValueError):
    """The metadata are invalid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaTrigger:
    """One trigger's settings."""

    namespace: str
    group: str
    definition: AutoscalingMetric
    target: float
    activation: float


def trigger_of(namespace: str, metadata: Mapping[str, str]) -> KedaTrigger:
    """The checked trigger. Raises `BadTriggerError`. The metadata also contain KEDA's own keys, such as
    ``scalerAddress``, which are ignored."""
    group = metadata.get("consumerGroup", "")
    if not namespace or not group:
        raise BadTriggerError("the trigger's metadata require consumerGroup: the LogHubConsumerGroup's name")
    definition = BY_KEDA_NAME.get(metadata.get("metric", "desiredWorkers"))
    if definition is None:
        raise BadTriggerError(
            f"metric must be one of {', '.join(BY_KEDA_NAME)}, not {metadata['metric']!r:.80}"
        )
    if "targetValue" not in metadata and definition.target is None:
        raise BadTriggerError(f"metric {definition.keda_name} requires a targetValue")
    target = _number("targetValue", metadata, definition.target or 0.0)
    if not 0 < target <= MAX_TARGET:
        raise BadTriggerError(f"targetValue must be greater than 0 and at most {MAX_TARGET:g}")
    activation = _number("activationLagLogGroups", metadata, 0.0)
    if activation < 0:
        raise BadTriggerError("activationLagLogGroups must be at least 0")
    return KedaTrigger(
        namespace=namespace, group=group, definition=definition, target=target, activation=activation
    )


def _number(key: str, metadata: Mapping[str, str], default: float) -> float:
    try:
        value = float(metadata.get(key, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadTriggerError(f"{key} is not a number: {metadata[key]!r:.80}")
    return value
