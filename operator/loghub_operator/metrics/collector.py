"""``/metrics`` in the text format of Prometheus.

Series of a group have the labels ``namespace`` and ``consumer_group``, the namespace and name of its
LogHubConsumerGroup. An unknown value has no series at that time; a group whose reconciles fail loses all
its series except ``loghub_operator_group_observed_timestamp_seconds``, and one that cannot be parsed or may
not be observed has that and its conditions. The number of series is bounded by the number of groups, and the
series of single shards by `LOGHUB_MAX_SHARD_SERIES` over all groups.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from loghub_operator.api.status import ShardStateText
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_operator.metrics.store import MetricsStore, StoredMetrics
from loghub_operator.model.group_metrics import GroupMetrics, SubscriptionMetrics

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_GROUP = "loghub_operator_group_"
_LABELS = ["namespace", "consumer_group"]
_STATES: tuple[str, ...] = get_args(ShardStateText)
Value = Callable[[GroupMetrics], float | int | None]


def _of_subscription(value: Callable[[SubscriptionMetrics], float | int | None]) -> Value:
    """The value of a subscription; a consumer group has none."""
    return lambda metrics: None if metrics.subscription is None else value(metrics.subscription)


# Families with one series per group.
_GROUP_FAMILIES: tuple[tuple[str, str, Value], ...] = (
    ("lag_seconds", "Age of the oldest log that is not checkpointed.", lambda metrics: metrics.lag_seconds),
    ("lag_log_groups", "Number of log groups that are not checkpointed.", lambda metrics: metrics.lag_groups),
    (
        "lag_logs",
        "Number of logs that are not checkpointed; only with an endpoint that reports it.",
        lambda metrics: metrics.lag_logs,
    ),
    (
        "retry_log_groups",
        "Number of log groups that wait in the retry logstore; 0 without one.",
        lambda metrics: metrics.retry_groups,
    ),
    (
        "dead_letter_log_groups",
        "Number of log groups in the logstore of the dead letter, of all writers.",
        lambda metrics: metrics.dead_letter_groups,
    ),
    (
        "arrival_log_groups_per_second",
        "Rate at which log groups are written to the logstore.",
        lambda metrics: metrics.arrival_per_s,
    ),
    (
        "consumed_log_groups_per_second",
        "Rate at which log groups are checkpointed.",
        lambda metrics: metrics.consumed_per_s,
    ),
    (
        "worker_log_groups_per_second",
        "Rate at which one worker consumes log groups, configured or measured.",
        lambda metrics: metrics.worker_per_s,
    ),
    (
        "subscription_backlog_logs",
        "Number of logs of a subscription that are not acknowledged.",
        _of_subscription(lambda seen: seen.backlog_logs),
    ),
    (
        "subscription_unacked_logs",
        "Number of logs of a subscription that are at consumers and not acknowledged.",
        _of_subscription(lambda seen: seen.unacked_logs),
    ),
    (
        "subscription_redelivered_logs",
        "Number of deliveries of a log of a subscription after the first, since the log service started.",
        _of_subscription(lambda seen: seen.redelivered_logs),
    ),
    (
        "subscription_consumers",
        "Number of consumers that are connected to a subscription, of all objects and clients.",
        _of_subscription(lambda seen: seen.consumers),
    ),
    (
        "subscription_withheld",
        "1 while logs of a subscription wait that the log service gives to no consumer, otherwise 0.",
        _of_subscription(lambda seen: int(seen.withheld)),
    ),
    (
        "subscription_arrival_logs_per_second",
        "Rate at which logs of a subscription are written to the logstore.",
        _of_subscription(lambda seen: seen.arrival_per_s),
    ),
    (
        "subscription_acknowledged_logs_per_second",
        "Rate at which logs of a subscription are acknowledged.",
        _of_subscription(lambda seen: seen.acknowledged_per_s),
    ),
    (
        "subscription_worker_logs_per_second",
        "Rate at which one worker acknowledges logs of a subscription, configured or measured.",
        _of_subscription(lambda seen: seen.worker_per_s),
    ),
    (
        "assignable_shards",
        "Number of shards that can be assigned to workers.",
        lambda metrics: metrics.assignable,
    ),
    (
        "suspended",
        "1 while the group is suspended or its checkpoints are being reset, otherwise 0.",
        lambda metrics: int(metrics.paused),
    ),
    (
        "replicas_uncapped",
        "Number of workers that the load requires, before any bound is applied.",
        lambda metrics: metrics.wanted,
    ),
    (
        "replicas_recommended",
        "Number of workers recommended after bounds and stabilization.",
        lambda metrics: metrics.recommended,
    ),
    ("replicas_desired", "Number of workers that the operator runs.", lambda metrics: metrics.applied),
    ("replicas_ready", "Number of workers that are ready.", lambda metrics: metrics.ready),
)


class GroupCollector(Collector):
    """Builds the series of all groups at each scrape."""

    def __init__(self, store: MetricsStore, *, max_shard_series: int) -> None:
        self._store = store
        self._max_shard_series = max_shard_series

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All families, including families without a series, so that their names can be discovered."""
        snapshot = self._store.snapshot()
        yield GaugeMetricFamily(
            "loghub_operator_groups", "Number of consumer groups that the operator manages.", len(snapshot)
        )
        yield _observed(snapshot)
        yield _elsewhere(self._store.elsewhere().values())
        fresh = [entry for entry in snapshot if entry.fresh]
        readings = [entry.readings for entry in fresh if entry.readings is not None]
        yield from (_family(*row, readings) for row in _GROUP_FAMILIES)
        yield _shards(readings)
        yield _conditions(fresh)
        yield from _shard_families(readings, max_shards=self._max_shard_series)


def _observed(snapshot: Iterable[StoredMetrics]) -> GaugeMetricFamily:
    documentation = (
        "Unix time of the last successful observation of the group, or of the first attempt if there is none."
    )
    family = GaugeMetricFamily(f"{_GROUP}observed_timestamp_seconds", documentation, labels=_LABELS)
    for entry in snapshot:
        family.add_metric(list(entry.name), entry.observed_at_unix_s)
    return family


def _elsewhere(operators: Iterable[str]) -> GaugeMetricFamily:
    documentation = (
        "Number of consumer groups that this operator watches and another one manages, by operator."
    )
    family = GaugeMetricFamily("loghub_operator_kept_off_groups", documentation, labels=["operator"])
    for operator, groups in sorted(Counter(operators).items()):
        family.add_metric([operator], groups)
    return family


def _family(name: str, documentation: str, value: Value, groups: Iterable[GroupMetrics]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_GROUP}{name}", documentation, labels=_LABELS)
    for readings in groups:
        _add(family, _names(readings), value(readings))
    return family


def _shards(groups: Iterable[GroupMetrics]) -> GaugeMetricFamily:
    documentation = "Number of shards in each state."
    family = GaugeMetricFamily(f"{_GROUP}shards", documentation, labels=[*_LABELS, "state"])
    for readings in groups:
        counts = Counter(shard.state for shard in readings.shards)
        for state in _STATES:
            _add(family, [*_names(readings), state], counts[state])  # type: ignore[index]
    return family


def _conditions(fresh: Iterable[StoredMetrics]) -> GaugeMetricFamily:
    documentation = "1 if the condition is True, 0 if it is False; no series while it is Unknown."
    family = GaugeMetricFamily(f"{_GROUP}condition", documentation, labels=[*_LABELS, "type"])
    for entry in fresh:
        for condition in entry.conditions:
            value = {"True": 1, "False": 0}.get(condition.status)
            _add(family, [*entry.name, condition.type], value)
    return family


def _shard_families(groups: Iterable[GroupMetrics], *, max_shards: int) -> Iterator[GaugeMetricFamily]:
    """Series of single shards: whole groups, by namespace and name, up to ``max_shards`` shards. This order
    is independent of the lags, so a shard's series does not appear and disappear as they change."""
    labels = [*_LABELS, "shard"]
    lag = GaugeMetricFamily(
        "loghub_operator_shard_lag_seconds",
        "Age of the oldest log of the shard that is not checkpointed.",
        labels=labels,
    )
    hot = GaugeMetricFamily(
        "loghub_operator_shard_hot",
        "1 if the shard receives more than one worker can consume, otherwise 0.",
        labels=labels,
    )
    dropped, remaining = 0, max_shards
    for readings in groups:
        shards = readings.shards
        if len(shards) > remaining:
            dropped += len(shards)
            continue
        remaining -= len(shards)
        for shard in shards:
            names = [*_names(readings), str(shard.shard)]
            _add(lag, names, shard.lag_seconds)
            _add(hot, names, int(shard.hot))
    yield lag
    yield hot
    documentation = "Number of shards without series of their own because of LOGHUB_MAX_SHARD_SERIES."
    yield GaugeMetricFamily("loghub_operator_shard_series_dropped", documentation, dropped)


def _names(readings: GroupMetrics) -> list[str]:
    return [readings.namespace, readings.name]


def _add(family: GaugeMetricFamily, labels: list[str], value: float | int | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


class OperatorExposition:
    """The whole text of ``/metrics``."""

    def __init__(
        self, operator_metrics: OperatorMetrics, store: MetricsStore, *, max_shard_series: int
    ) -> None:
        self._registries = (operator_metrics.registry, CollectorRegistry())
        self._registries[1].register(GroupCollector(store, max_shard_series=max_shard_series))

    def text(self) -> bytes:
        """Render all series. This lasts tenths of a second for thousands of series, so call it outside the
        event loop."""
        return b"".join(generate_latest(registry) for registry in self._registries)
