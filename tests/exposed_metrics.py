"""What operator, service and worker expose at ``/metrics``: right after their start, and once there is
something of each kind to report."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loghub.contract.worker import FailingShard, KeptState, ShardProgress, WorkerStatus
from loghub_consumer.acknowledgments import DeliveryCounts
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import ShardTotals
from loghub_consumer.processes.remote_processor import ProcessorCounts
from loghub_operator.api.conditions import ConditionType
from loghub_operator.metrics.collector import OperatorExposition
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_service.connections.listener import HttpConnections
from loghub_service.http.metrics import ProcessFacts, ServiceExposition, Serving
from loghub_service.http.server import Shared
from loghub_service.kafka.store.endpoint import KafkaEndpoint, endpoint_of
from loghub_service.kafka.store.metrics import LogstoreLag
from loghub_service.log_setup import LogLines
from loghub_service.ports import usage_of
from loghub_service.pulsar.store.endpoint import PulsarEndpoint, pulsar_endpoint_of
from loghub_service.settings import KafkaSettings, PulsarSettings
from loghub_service.start import RecoveryProgress
from loghub_worker.metrics import Counter, Figures, processor_counters
from loghub_worker.query.streaming_query import QueryTotals, query_counters
from tests.loghub_operator.support.group_metrics import condition, readings, store, subscription_readings
from tests.loghub_service.inprocess import InProcess, in_process

Series = tuple[str, dict[str, str]]  # name and labels


def at_start(folder: Path) -> dict[str, list[Metric]]:
    """Metric families by the program that exposes them, before it has done anything. The service keeps its
    data in ``folder``."""
    operator = OperatorExposition(OperatorMetrics(), store(), max_shard_series=10).text()
    worker = _worker(_status(), query_counters(QueryTotals(), {}))
    service = asyncio.run(_service(folder, is_busy=False))
    return {"operator": _families(operator), "service": _families(service), "worker": _families(worker)}


def in_use(folder: Path) -> dict[str, list[Metric]]:
    """The same with a series of each family."""
    status = _status(
        shards=[ShardProgress(shard=0, cursor=None, checkpoint=None, logs=3, lag_s=2.0, draining=False)],
        failing=[FailingShard(shard=0, cursor="", state="retrying", reason="PipelineFailed", attempts=1)],
        state=KeptState(rows=1, bytes=2, watermark_s=3.0, late_rows=4, late_age_s=None),
    )
    totals = {0: ShardTotals(failed_attempts=1)}
    of_processor = processor_counters(ProcessorCounts(), FailureReport(totals=totals), [], DeliveryCounts())
    of_query = query_counters(QueryTotals(), totals)
    counters = {one.name: one for one in (*of_processor, *of_query)}
    service = asyncio.run(_service(folder, is_busy=True))
    return {
        "operator": _families(_operator_in_use()),
        "service": _families(service),
        "worker": _families(_worker(status, tuple(counters.values()))),
    }


def _families(text: bytes) -> list[Metric]:
    return list(text_string_to_metric_families(text.decode()))


def _operator_in_use() -> bytes:
    operator_metrics, on = OperatorMetrics(), store()
    operator_metrics.reconciled("success", 0.1)
    operator_metrics.count_kubernetes_request("GET", 200)
    operator_metrics.count_log_service_request("list_groups", "OK")
    on.update(readings(), tuple(condition(str(kind), "True") for kind in ConditionType))
    on.update(subscription_readings("jobs"), ())
    on.update_elsewhere("shop", "other", "team-a/loghub-operator")
    return OperatorExposition(operator_metrics, on, max_shard_series=10).text()


def _status(
    *,
    shards: list[ShardProgress] | None = None,
    failing: list[FailingShard] | None = None,
    state: KeptState | None = None,
) -> WorkerStatus:
    return WorkerStatus(
        consumer="access-0",
        phase="running",
        reason="",
        message="",
        rows_written=1,
        last_heartbeat_age_s=0.5,
        shards=shards or [],
        failing=failing or [],
        state=state,
        written_at=0.0,
    )


def _worker(status: WorkerStatus, counters: tuple[Counter, ...]) -> bytes:
    registry = CollectorRegistry()
    registry.register(Figures(lambda: status, lambda: counters))
    return generate_latest(registry)


async def _service(folder: Path, *, is_busy: bool) -> bytes:
    async with in_process(folder) as service:
        process = ProcessFacts(
            lost_lines=LogLines().lost,
            progress=RecoveryProgress(),
            connections=HttpConnections(9),
            problems=lambda: {"access keys": ""},
        )
        exposition = ServiceExposition(service.metrics, process)
        exposition.serving = Serving(engine=service.engine, budgets=service.app.budgets)
        endpoint = _kafka_endpoint(service)
        pulsar = _pulsar_endpoint(service)
        exposition.endpoints += [endpoint, pulsar]
        await endpoint.lag.refresh()
        if is_busy:
            pulsar.broker.counts.errors["TOPIC_NOT_FOUND"] += 1
            endpoint.broker.counts.errors["FETCH", "NONE"] += 1
            endpoint.lag.largest = (LogstoreLag(project="demo", group="g", logstore="access", logs=1),)
        return exposition.text(usage_of(str(folder)))


def _kafka_endpoint(service: InProcess) -> KafkaEndpoint:
    shared = Shared(find_key=lambda _: None, tls=None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return endpoint_of(service.engine, KafkaSettings(host="", port=0), listening, shared)


def _pulsar_endpoint(service: InProcess) -> PulsarEndpoint:
    shared = Shared(find_key=lambda _: None, tls=None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return pulsar_endpoint_of(service.engine, PulsarSettings(host="", port=0), listening, shared)


def samples(families: dict[str, list[Metric]]) -> Iterator[Series]:
    for of_program in families.values():
        for family in of_program:
            yield from ((sample.name, sample.labels) for sample in family.samples)
