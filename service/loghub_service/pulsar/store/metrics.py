"""What Prometheus can know about the Pulsar endpoint. No label has a name that a client chooses."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loghub.domain.subscription import SubscriptionType
from loghub_service.connections.listener import HttpConnections
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.dispatch import Dispatches

_PREFIX = "loghub_service_pulsar_"


def collect(broker: PulsarBroker, dispatches: Dispatches, connections: HttpConnections) -> Iterable[Metric]:
    counts = broker.counts
    yield _by_label(
        "connections",
        "Open connections of Pulsar clients, by whether they have logged in.",
        {"true": connections.authenticated_count, "false": connections.unauthenticated_count},
        label="authenticated",
    )
    requests = CounterMetricFamily(_PREFIX + "requests", "Commands of Pulsar clients.", labels=("command",))
    for command, number in counts.requests.items():
        requests.add_metric((command,), number)
    yield requests
    errors = CounterMetricFamily(
        _PREFIX + "errors", "Errors that Pulsar clients were answered with.", labels=("error",)
    )
    for code, number in counts.errors.items():
        errors.add_metric((code,), number)
    yield errors
    totals = {
        "requests_failed": (
            "Commands of Pulsar clients that ended their connection by an internal error.",
            counts.failed_requests,
        ),
        "logins_refused": ("Logins of Pulsar clients that were refused.", counts.refused_logins),
        "received_bytes": ("Bytes of commands of Pulsar clients.", counts.received_bytes),
        "sent_bytes": ("Bytes of answers and messages to Pulsar clients.", counts.sent_bytes),
        "produced_logs": ("Logs that Pulsar clients have written.", counts.produced_logs),
        "delivered_logs": ("Logs that Pulsar clients were sent.", counts.delivered_logs),
        "too_large_logs": (
            "Logs that were left out, since no message can carry them.",
            counts.too_large_logs,
        ),
    }
    for name, (text, value) in totals.items():
        yield CounterMetricFamily(_PREFIX + name, text, value=value)
    types = Counter(dispatch.saved.state.settings.type.value for dispatch in dispatches)
    yield _by_label(
        "subscriptions_in_use",
        "Subscriptions that have consumers, by type.",
        {kind.value: types[kind.value] for kind in SubscriptionType},
        label="type",
    )
    yield GaugeMetricFamily(
        _PREFIX + "consumers",
        "Consumers of Pulsar clients, one for each partition.",
        value=sum(len(dispatch.consumers) for dispatch in dispatches),
    )


def _by_label(name: str, text: str, values: Mapping[str, float], *, label: str) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
