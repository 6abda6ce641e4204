"""Metrics of the operator process itself: reconciles, and requests to the API server and to log services.

No label names a consumer group: a counter's label value lives as long as the process, so groups that
are created and deleted would accumulate series. Series of groups are in `loghub_operator.metrics.collector`.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from loghub.client.port import Credentials, LogHub
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException
from loghub_operator.clients.log_service import Connect

T = TypeVar("T")
# A round in memory takes 10 ms, one that waits for a slow log service up to a minute.
_RECONCILE_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KNOWN_CODES = frozenset(str(code) for code in Code)
OTHER = "other"
RESULTS = ("success", "error", "panic")


class OperatorMetrics:
    """The metrics of one process; safe to use from threads."""

    def __init__(self) -> None:
        # The _created series double the number of series, and nothing reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._leader = Gauge(
            "loghub_operator_leader",
            "1 if this process is the leader, 0 if it is on standby.",
            registry=self.registry,
        )
        self._reconcile = self._counter(
            "reconcile",
            "Reconciles of consumer groups, by result: success, error (a request failed) or panic (a bug).",
            "result",
        )
        # `increase` does not see the value that a series begins with, and a panic may remain the only one.
        for result in RESULTS:
            self._reconcile.labels(result)
        self._reconcile_s = Histogram(
            "loghub_operator_reconcile_duration_seconds",
            "Duration of one reconcile of one consumer group.",
            registry=self.registry,
            buckets=_RECONCILE_S,
        )
        self._kube = self._counter(
            "kubernetes_requests",
            "Requests to the Kubernetes API, by HTTP method and status code; code 0 means no response.",
            *("method", "code"),
        )
        self._log_service = self._counter(
            "log_service_requests",
            "Requests to log services, by operation and result code.",
            *("operation", "code"),
        )
        self._left_behind = self._counter(
            "groups_left_behind",
            "Consumer groups that were left at their log service although they should be deleted, or whose"
            " object moved to another endpoint; the operator's log and events name them.",
        )

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"loghub_operator_{name}", documentation, labels, registry=self.registry)

    def leading(self) -> None:
        """This process holds the lease, or needs none because it is the only replica."""
        self._leader.set(1)

    def reconciled(self, result: str, seconds: float) -> None:
        """``success``, ``error`` (a request was rejected or not answered) or ``panic`` (a bug)."""
        self._reconcile.labels(result).inc()
        self._reconcile_s.observe(seconds)

    def count_group_left_behind(self) -> None:
        """A user has to delete a consumer group by hand."""
        self._left_behind.inc()

    def count_kubernetes_request(self, method: str, status: int) -> None:
        """The API server responded with this HTTP status; 0 if it did not respond."""
        self._kube.labels(method, str(status)).inc()

    def count_log_service_request(self, operation: str, code: str) -> None:
        """A log service's client returned ("OK") or raised this code."""
        self._log_service.labels(operation, code).inc()


def metered_connect(connect: Connect, operator_metrics: OperatorMetrics) -> Connect:
    """The same clients, whose calls are counted."""

    def metered(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(LogHub, _MeteredClient(connect(endpoint, project, credentials), operator_metrics))

    return metered


class _MeteredClient:
    """A `LogHub` whose calls are counted."""

    def __init__(self, client: LogHub, operator_metrics: OperatorMetrics) -> None:
        self._client = client
        self._operator_metrics = operator_metrics
        self._knows_extensions = False

    def has_extensions(self) -> bool:
        """The client sends a request until it has received a response once (`loghub.client.http`). Later
        calls send none and are not counted."""
        if self._knows_extensions:
            return self._client.has_extensions()
        result = self._counted("has_extensions", self._client.has_extensions)()
        self._knows_extensions = True
        return result

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return call if name == "close" else self._counted(name, call)

    def _counted(self, name: str, call: Callable[..., T]) -> Callable[..., T]:
        def counted(*args: Any, **kwargs: Any) -> T:
            try:
                result = call(*args, **kwargs)
            except LogHubException as error:
                self._operator_metrics.count_log_service_request(name, _code(error))
                raise
            self._operator_metrics.count_log_service_request(name, "OK")
            return result

        return counted


def _code(error: LogHubException) -> str:
    """The label value of an error, from a bounded set: a service may respond with any text as code."""
    if isinstance(error, EndpointUnreachable):
        return "EndpointUnreachable"
    if isinstance(error, LogHubError) and str(error.code) in _KNOWN_CODES:
        return str(error.code)
    return OTHER
