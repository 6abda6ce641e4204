"""The metrics of the Pulsar endpoint for Prometheus. No label has a name that a client chooses."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loghub.domain.subscription import SubscriptionType
from loghub_service.connections.client_metrics import ClientMetrics
from loghub_service.connections.listener import HttpConnections
from loghub_service.dispatch.driver import Dispatches
from loghub_service.pulsar.broker.call import PulsarBroker

_METRICS = ClientMetrics("Pulsar", requests="commands", answers="answers and messages")


def collect(broker: PulsarBroker, dispatches: Dispatches, connections: HttpConnections) -> Iterable[Metric]:
    counts = broker.counts
    yield from _METRICS.collect(counts, connections, label="command")
    errors = CounterMetricFamily(
        _METRICS.prefix + "errors", "Errors that Pulsar clients were answered with.", labels=("error",)
    )
    for code, number in counts.errors.items():
        errors.add_metric((code,), number)
    yield errors
    yield from _METRICS.totals(
        {
            "delivered_logs": ("Logs that Pulsar clients were sent.", counts.delivered_logs),
            "too_large_logs": (
                "Logs that were left out, since no message can carry them.",
                counts.too_large_logs,
            ),
        }
    )
    in_use = [dispatch for dispatch in dispatches if dispatch.preparation is not None]
    types = Counter(dispatch.saved.state.settings.type.value for dispatch in in_use)
    yield _METRICS.by_label(
        "subscriptions_in_use",
        "Subscriptions that have consumers of Pulsar clients, by type.",
        {kind.value: types[kind.value] for kind in SubscriptionType},
        label="type",
    )
    yield GaugeMetricFamily(
        _METRICS.prefix + "consumers",
        "Consumers of Pulsar clients, one for each partition.",
        value=sum(
            receiver.endpoint == "pulsar" for dispatch in in_use for receiver in dispatch.consumers.values()
        ),
    )
