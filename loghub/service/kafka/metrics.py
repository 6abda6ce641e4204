"""What Prometheus can know about the Kafka endpoint.

Only the lag of a group has labels with names that clients choose. Their number is bounded
(`loghub.service.kafka.lag`), and a series ends with its group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loghub.kafka.broker.calls import Broker
from loghub.kafka.coordinator.states import GroupState
from loghub.service.engine import Engine
from loghub.service.http.connections import Connections
from loghub.service.kafka.lag import GroupLag

_PREFIX = "loghub_service_kafka_"


def collect(broker: Broker, connections: Connections) -> Iterable[Metric]:
    counts = broker.counts
    yield _by_label(
        "connections",
        "Open connections of Kafka clients, by whether they have logged in.",
        {"true": connections.authenticated_count, "false": connections.unauthenticated_count},
        label="authenticated",
    )
    requests = CounterMetricFamily(_PREFIX + "requests", "Requests of Kafka clients.", labels=("api",))
    for api, number in counts.requests.items():
        requests.add_metric((api,), number)
    yield requests
    errors = CounterMetricFamily(
        _PREFIX + "errors", "Errors that Kafka clients were answered with.", labels=("api", "error")
    )
    for labels, number in counts.errors.items():
        errors.add_metric(labels, number)
    yield errors
    totals = {
        "requests_failed": (
            "Requests of Kafka clients that ended their connection by an internal error.",
            counts.failed_requests,
        ),
        "logins_refused": ("Logins of Kafka clients that were refused.", counts.refused_logins),
        "received_bytes": ("Bytes of requests of Kafka clients.", counts.received_bytes),
        "sent_bytes": ("Bytes of answers to Kafka clients.", counts.sent_bytes),
        "produced_logs": ("Logs that Kafka clients have written.", counts.produced_logs),
        "fetched_logs": ("Logs that Kafka clients were sent.", counts.fetched_logs),
    }
    for name, (text, value) in totals.items():
        yield CounterMetricFamily(_PREFIX + name, text, value=value)
    yield GaugeMetricFamily(
        _PREFIX + "producers", "Idempotent producers that are remembered.", value=len(broker.producers)
    )


def collect_groups(engine: Engine, lag: GroupLag) -> Iterable[Metric]:
    """Of all projects together. The lag is left out while it is not known."""
    groups = list(engine.kafka_groups.all())
    states = Counter(group.state.value for group in groups)
    yield _by_label(
        "groups",
        "Consumer groups of Kafka clients, by state.",
        {state.value: states[state.value] for state in GroupState},
        label="state",
    )
    yield GaugeMetricFamily(
        _PREFIX + "members",
        "Members of the consumer groups of Kafka clients.",
        value=sum(len(group.members) for group in groups),
    )
    if lag.total is not None:
        yield from _lags(lag, lag.total)


def _lags(lag: GroupLag, total: int) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        _PREFIX + "lag_logs", "Logs after the committed offsets of all groups.", value=total
    )
    by_group = GaugeMetricFamily(
        _PREFIX + "group_lag_logs",
        "Logs after the committed offsets of a group at a logstore; the largest of each project.",
        labels=("project", "group", "logstore"),
    )
    for one in lag.largest:
        by_group.add_metric((one.project, one.group, one.logstore), one.logs)
    yield by_group
    yield GaugeMetricFamily(
        _PREFIX + "group_lags_left_out",
        "Lags of groups at logstores that group_lag_logs does not have, since there are too many.",
        value=lag.left_out,
    )


def _by_label(name: str, text: str, values: Mapping[str, float], *, label: str) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
