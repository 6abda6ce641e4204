"""The metrics of the service for Prometheus.

No label names a project, a logstore, a group or a consumer: clients choose these names, and every series
lives as long as the process. The operator has the series of groups, and the Kafka endpoint a bounded number
of series of Kafka groups (`loghub_service.kafka.store.metrics`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from loghub_service.connections.listener import HttpConnections
from loghub_service.engine import Engine
from loghub_service.ports import Usage
from loghub_service.start import RecoveryProgress
from loghub_service.storage.group_commit import CommitMonitor

UNAUTHENTICATED = "unauthenticated"  # instead of an API's name
_PREFIX = "loghub_service_"


class MeasuredBudget(Protocol):
    """A bound on memory, with its present use."""

    @property
    def name(self) -> str: ...
    @property
    def used(self) -> int: ...
    @property
    def limit(self) -> int: ...


class Source(Protocol):
    """A part of the service with metrics and budgets of its own."""

    @property
    def budgets(self) -> tuple[MeasuredBudget, ...]: ...
    def collect(self) -> Iterable[Metric]: ...


class RequestMetrics(Collector):
    """Counts requests and the bytes of their bodies. ``actions`` are the names of all APIs.

    On the event loop only, so that it needs none of the locks of the library's counters.
    """

    def __init__(self, actions: Iterable[str]) -> None:
        # `rate` does not see the first value of a new series, and alerts use these series.
        unavailable = HTTPStatus.SERVICE_UNAVAILABLE.value
        self._by_result = {(action, unavailable): 0 for action in sorted({UNAUTHENTICATED, *actions})}
        self._received_bytes = self._sent_bytes = 0
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def received(self, size: int) -> None:
        self._received_bytes += size

    def responded(self, action: str, status: int, size: int) -> None:
        result = (action, status)
        self._by_result[result] = self._by_result.get(result, 0) + 1
        self._sent_bytes += size

    def describe(self) -> Iterable[Metric]:
        """Nothing, because the registry would otherwise collect at registration."""
        return ()

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            _PREFIX + "requests",
            "Requests, by the API that they call and the HTTP status of the response. The API is "
            "'unauthenticated' if the request was refused before it was known.",
            labels=("action", "status"),
        )
        for (action, status), count in self._by_result.items():
            requests.add_metric((action, str(status)), count)
        yield requests
        yield CounterMetricFamily(
            _PREFIX + "received_bytes",
            "Bytes of the bodies of authenticated requests, as received.",
            value=self._received_bytes,
        )
        yield CounterMetricFamily(
            _PREFIX + "sent_bytes", "Bytes of the bodies of responses.", value=self._sent_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """Facts that are known from the start. ``problems`` returns, for each kind of file that may be replaced
    while the service runs, why it could not be read; "" if it could. ``lost_lines`` counts lines of the log,
    by reason."""

    progress: RecoveryProgress
    connections: HttpConnections
    problems: Callable[[], Mapping[str, str]]
    lost_lines: Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The parts that exist once the recovery is complete."""

    engine: Engine
    budgets: tuple[MeasuredBudget, ...]


class ServiceExposition(Collector):
    """All metrics in the text format of Prometheus. Set ``serving`` once the recovery is complete."""

    def __init__(self, requests: RequestMetrics, process: ProcessFacts) -> None:
        self.serving: Serving | None = None
        self.endpoints: list[Source] = []  # of other protocols
        self._registry = requests.registry
        self._process = process
        self._usage: Usage | None = None
        self._registry.register(self)

    def text(self, usage: Usage) -> bytes:
        """The text of all metrics. ``usage`` is the usage of the data directory's file system, which the
        caller determines because that may block."""
        self._usage = usage
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing, because the registry would otherwise collect at registration."""
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from _recovery(self._process.progress, complete=self.serving is not None)
        yield from _connections(self._process.connections)
        yield _by_label(
            "rotation_failed",
            "1 if files that may be replaced while the service runs cannot be read, so that their previous "
            "content stays in use; otherwise 0.",
            "files",
            {files: float(bool(problem)) for files, problem in self._process.problems().items()},
        )
        lost = CounterMetricFamily(
            _PREFIX + "log_lines_lost",
            "Lines that are not in the log of the service: they repeat others, or nobody has read the log.",
            labels=("reason",),
        )
        for reason, count in self._process.lost_lines().items():
            lost.add_metric((reason,), count)
        yield lost
        if self._usage is not None:
            yield from _disk(self._usage)
        if self.serving is not None:
            yield from _commits(self.serving.engine.commits)
            of_endpoints = (budget for endpoint in self.endpoints for budget in endpoint.budgets)
            yield from _budgets((*self.serving.budgets, *of_endpoints))
            yield from _objects(self.serving.engine)
            yield from _subscriptions(self.serving.engine)
        for endpoint in self.endpoints:
            yield from endpoint.collect()


def _recovery(progress: RecoveryProgress, *, complete: bool) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        _PREFIX + "recovering",
        "1 while the service recovers its data and refuses requests, otherwise 0.",
        value=float(not complete),
    )
    yield GaugeMetricFamily(
        _PREFIX + "recovery_shards", "Shards that the recovery has to read.", value=progress.shards
    )
    yield GaugeMetricFamily(
        _PREFIX + "recovery_shards_done", "Shards that are recovered.", value=progress.done
    )


def _commits(commits: Mapping[str, CommitMonitor]) -> Iterable[Metric]:
    duration = HistogramMetricFamily(
        _PREFIX + "commit_duration_seconds",
        "Time from the submission of a change to its durability, by what is committed: logs or metadata.",
        labels=("log",),
    )
    for log, monitor in commits.items():
        buckets = [
            ("+Inf" if bound == float("inf") else str(bound), float(count))
            for bound, count in monitor.latencies.cumulative()
        ]
        duration.add_metric((log,), buckets, monitor.latencies.total_s)
    yield duration
    yield _by_label(
        "commit_waiting",
        "Changes that wait for their commit.",
        "log",
        {log: monitor.waiting for log, monitor in commits.items()},
    )
    yield _by_label(
        "commit_waiting_bytes",
        "Bytes of the log groups that wait for their commit.",
        "log",
        {"logs": commits["logs"].waiting_size},
    )
    yield _by_label(
        "commit_stalled_seconds",
        "Time without any commit although changes wait; 0 if none waits.",
        "log",
        {log: monitor.stalled_s() for log, monitor in commits.items()},
    )


def _budgets(budgets: tuple[MeasuredBudget, ...]) -> Iterable[Metric]:
    yield _by_label(
        "memory_used_bytes",
        "Bytes in use of each budget of memory; a request that finds it used up gets status 503, or waits if "
        "it is one of a Kafka client.",
        "budget",
        {budget.name: budget.used for budget in budgets},
    )
    yield _by_label(
        "memory_limit_bytes",
        "Size of each budget of memory.",
        "budget",
        {budget.name: budget.limit for budget in budgets},
    )


def _connections(connections: HttpConnections) -> Iterable[Metric]:
    yield _by_label(
        "connections",
        "Open connections, by whether a request on them was authenticated.",
        "authenticated",
        {"true": connections.authenticated_count, "false": connections.unauthenticated_count},
    )
    yield GaugeMetricFamily(
        _PREFIX + "connections_limit", "Connections that may be open.", value=connections.maximum
    )
    yield CounterMetricFamily(
        _PREFIX + "connections_evicted",
        "Connections that were closed to make room for another one.",
        value=connections.evicted,
    )
    yield CounterMetricFamily(
        _PREFIX + "connections_refused",
        "Connections that were refused because all others were in use.",
        value=connections.refused,
    )


def _objects(engine: Engine) -> Iterable[Metric]:
    logstores = list(engine.catalog.logstores_by_id.values())
    groups = [group for logstore in logstores for group in engine.groups.of(logstore.saved.id).values()]
    numbers = {
        "projects": len(engine.catalog.projects),
        "logstores": len(logstores),
        "shards": sum(len(logstore.shards) for logstore in logstores),
        "consumer_groups": len(groups),
        "consumers": sum(len(group.state.consumers) for group in groups),
        "subscriptions": len(engine.subscriptions),
    }
    for name, number in numbers.items():
        yield GaugeMetricFamily(_PREFIX + name, f"Number of {name.replace('_', ' ')}.", value=number)


def _subscriptions(engine: Engine) -> Iterable[Metric]:
    family = GaugeMetricFamily(
        _PREFIX + "subscription_shards",
        "Shards of subscriptions by their state (docs/subscription-states.md).",
        labels=["state"],
    )
    for state, shards in engine.subscriptions.shards_by_state().items():
        family.add_metric([state.value], shards)
    yield family
    yield GaugeMetricFamily(
        _PREFIX + "subscription_sessions",
        "Consumers of subscriptions over HTTP (docs/subscriptions-protocol.md 2).",
        value=len(engine.sessions),
    )
    counts = engine.dispatches.counts
    totals = {
        "delivered_logs": (
            "Logs that subscriptions have dealt to consumers of any endpoint.",
            counts.delivered_logs,
        ),
        "redelivered_logs": (
            "Logs that were dealt again, since a consumer wanted that.",
            counts.redelivered_logs,
        ),
        "failures": (
            "Subscriptions that ended by an internal error; their consumers join again.",
            counts.failed,
        ),
    }
    for name, (text, value) in totals.items():
        yield CounterMetricFamily(f"{_PREFIX}subscription_{name}", text, value=value)


def _disk(usage: Usage) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        _PREFIX + "disk_free_bytes",
        "Free bytes of the file system with the data directory.",
        value=usage.free_bytes,
    )
    yield GaugeMetricFamily(_PREFIX + "disk_size_bytes", "Size of that file system.", value=usage.size_bytes)


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
