"""What the operator itself did: counted where it happens.

What for: the rounds, the apiserver's port and the log services' clients tell it. What it must not
know: groups; a name in a label would be kept for ever. Read next:
`loghub_operator.numbers.prometheus` (shows it).
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
from loghub.wire.codes import Code
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException
from loghub_operator.hubs import Connect

T = TypeVar("T")
_ROUND_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KNOWN_CODES = frozenset(str(code) for code in Code)
OTHER = "other"


class Meters:
    """One process's counters; safe to use from threads."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, that nobody reads
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._acting = self._gauge("acting", "1 while this process may write: alone, or holder of the lease.")
        self._rounds = self._counter("rounds", "Rounds over one group, by how they ended.", "outcome")
        self._round_s = Histogram(
            "loghub_operator_round_duration_seconds",
            "Time of one round over one group.",
            registry=self.registry,
            buckets=_ROUND_S,
        )
        self._kube = self._counter("kubernetes_requests", "Calls of the Kubernetes API.", "method", "code")
        self._hub = self._counter("log_service_requests", "Calls of log services.", "call", "code")

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(f"loghub_operator_{name}", words, registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"loghub_operator_{name}", words, labels, registry=self.registry)

    def acting(self, now: bool) -> None:
        """May this process write?"""
        self._acting.set(now)

    def round_ended(self, outcome: str, seconds: float) -> None:
        """``done``, ``failed`` (somebody refused or did not answer) or ``broken`` (a fault of ours)."""
        self._rounds.labels(outcome).inc()
        self._round_s.observe(seconds)

    def kube_answered(self, method: str, status: int) -> None:
        """The apiserver answered with this HTTP status; 0: it did not."""
        self._kube.labels(method, str(status)).inc()

    def hub_answered(self, call: str, code: str) -> None:
        """A log service's client returned ("OK") or raised this code."""
        self._hub.labels(call, code).inc()


def metered_connect(connect: Connect, meters: Meters) -> Connect:
    """The same clients, counted."""

    def metered(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(LogHub, _MeteredHub(connect(endpoint, project, credentials), meters))

    return metered


class _MeteredHub:
    """A `LogHub` whose calls are counted."""

    def __init__(self, hub: LogHub, meters: Meters) -> None:
        self._hub = hub
        self._meters = meters
        self._knows_extensions = False

    def has_extensions(self) -> bool:
        """A client asks until it is answered once (`loghub.client.http`); after that it is no call."""
        if self._knows_extensions:
            return self._hub.has_extensions()
        found = self._counted("has_extensions", self._hub.has_extensions)()
        self._knows_extensions = True
        return found

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._hub, name)
        return call if name == "close" else self._counted(name, call)

    def _counted(self, name: str, call: Callable[..., T]) -> Callable[..., T]:
        def counted(*args: Any, **kwargs: Any) -> T:
            try:
                answer = call(*args, **kwargs)
            except LogHubException as error:
                self._meters.hub_answered(name, _code(error))
                raise
            self._meters.hub_answered(name, "OK")
            return answer

        return counted


def _code(error: LogHubException) -> str:
    """Of a bounded set: a service may answer with any text."""
    if isinstance(error, EndpointUnreachable):
        return "EndpointUnreachable"
    if isinstance(error, LogHubError) and str(error.code) in _KNOWN_CODES:
        return str(error.code)
    return OTHER
