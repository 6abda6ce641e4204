"""What Prometheus can know about the clients of an endpoint, Kafka's or Pulsar's. No label has a name that a
client chooses."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loghub_service.connections.listener import HttpConnections


class ClientCounts(Protocol):
    """Totals since the start."""

    requests: Counter[str]  # by the kind of request
    failed_requests: int  # by an error of ours
    refused_logins: int
    received_bytes: int
    sent_bytes: int
    produced_logs: int


class ClientMetrics:
    """The metrics of one endpoint. ``client`` is the protocol, and ``requests`` and ``answers`` are its words
    for what is received and sent."""

    def __init__(self, client: str, *, requests: str, answers: str) -> None:
        self.prefix = f"loghub_service_{client.lower()}_"
        self._client = client
        self._requests = requests
        self._answers = answers

    def collect(self, counts: ClientCounts, connections: HttpConnections, *, label: str) -> Iterable[Metric]:
        """``label`` is the label of the kind of request."""
        clients, requests = f"{self._client} clients", self._requests.capitalize()
        yield self.by_label(
            "connections",
            f"Open connections of {clients}, by whether they have logged in.",
            {"true": connections.authenticated_count, "false": connections.unauthenticated_count},
            label="authenticated",
        )
        by_kind = CounterMetricFamily(self.prefix + "requests", f"{requests} of {clients}.", labels=(label,))
        for kind, number in counts.requests.items():
            by_kind.add_metric((kind,), number)
        yield by_kind
        yield from self.totals(
            {
                "requests_failed": (
                    f"{requests} of {clients} that ended their connection by an internal error.",
                    counts.failed_requests,
                ),
                "logins_refused": (f"Logins of {clients} that were refused.", counts.refused_logins),
                "received_bytes": (f"Bytes of {self._requests} of {clients}.", counts.received_bytes),
                "sent_bytes": (f"Bytes of {self._answers} to {clients}.", counts.sent_bytes),
                "produced_logs": (f"Logs that {clients} have written.", counts.produced_logs),
            }
        )

    def totals(self, values: Mapping[str, tuple[str, int]]) -> Iterable[Metric]:
        """Counters without labels: name -> description and value."""
        for name, (text, value) in values.items():
            yield CounterMetricFamily(self.prefix + name, text, value=value)

    def by_label(self, name: str, text: str, values: Mapping[str, float], *, label: str) -> Metric:
        """A gauge with one label."""
        family = GaugeMetricFamily(self.prefix + name, text, labels=(label,))
        for value, number in values.items():
            family.add_metric((value,), number)
        return family
