"""``/metrics``, ``/healthz``, ``/readyz`` and ``/status`` of a worker, for Prometheus, the kubelet and the
operator."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from loghub.incomplete_state import KeptState
from loghub.worker_contract import STATUS_FRESH_S, STATUS_PATH, WorkerReason, WorkerStatus

STALE_S = 30.0  # an older status means that a thread hangs, perhaps while holding the lock
METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter without the suffix ``_total``. A mapping has one value for each shard."""

    name: str
    help: str
    value: float | Mapping[int, float]

    def metric(self) -> Metric:
        if not isinstance(self.value, Mapping):
            return CounterMetricFamily(self.name, self.help, value=self.value)
        metric = CounterMetricFamily(self.name, self.help, labels=["shard"])
        for shard, value in sorted(self.value.items()):
            metric.add_metric([str(shard)], value)
        return metric


class Figures(Collector):
    """Builds the metrics from the status at each scrape, and from further counters."""

    def __init__(self, status: Callable[[], WorkerStatus], counters: Callable[[], Iterable[Counter]]) -> None:
        self._status = status
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        lag = GaugeMetricFamily(
            "loghub_worker_shard_lag_seconds",
            "Age of the log group that is read next, by shard.",
            labels=["shard"],
        )
        beyond = GaugeMetricFamily(
            "loghub_worker_shard_beyond_end_log_groups",
            "Log groups by which the position lies beyond the end of the shard, by shard; more than 0 if the"
            " log service has lost logs.",
            labels=["shard"],
        )
        logs = CounterMetricFamily(
            "loghub_worker_shard_logs", "Number of logs in committed batches, by shard.", labels=["shard"]
        )
        for shard in status.shards:
            logs.add_metric([str(shard.shard)], shard.logs)
            beyond.add_metric([str(shard.shard)], shard.beyond_end)
            if shard.lag_s is not None:
                lag.add_metric([str(shard.shard)], shard.lag_s)
        failing = GaugeMetricFamily(
            "loghub_worker_shard_failing",
            "1 while the shard waits at a log group that the pipeline or the sink rejects, by shard.",
            labels=["shard"],
        )
        for one in status.failing:
            failing.add_metric([str(one.shard)], 1.0)
        if status.state is not None:
            yield from _of_state(status.state)
        yield lag
        yield logs
        yield beyond
        yield failing
        yield GaugeMetricFamily(
            "loghub_worker_batch_age_seconds",
            "How long the running micro-batch takes already; 0 if none runs.",
            value=status.batch_age_s or 0.0,
        )
        fenced = float(status.phase == "fenced")
        yield GaugeMetricFamily(
            "loghub_worker_fenced",
            "1 while the worker must not write because its group session may have expired, otherwise 0.",
            value=fenced,
        )
        if status.last_heartbeat_age_s is not None:
            age = status.last_heartbeat_age_s
            yield GaugeMetricFamily(
                "loghub_worker_heartbeat_age_seconds", "Time since the last successful heartbeat.", value=age
            )
        yield CounterMetricFamily(
            "loghub_worker_rows_written",
            "Number of rows written to the sink, or of logs that a processor has read.",
            value=status.rows_written,
        )
        for counter in self._counters():
            yield counter.metric()


def _of_state(state: KeptState) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "loghub_worker_state_rows", "Number of rows of the state of a stateful pipeline.", value=state.rows
    )
    yield GaugeMetricFamily(
        "loghub_worker_state_bytes", "Memory that the state of a stateful pipeline takes.", value=state.bytes
    )
    if state.watermark_s is not None:
        yield GaugeMetricFamily(
            "loghub_worker_watermark_timestamp_seconds",
            "The watermark of a stateful pipeline during the last micro-batch, in unix seconds.",
            value=state.watermark_s,
        )
    yield CounterMetricFamily(
        "loghub_worker_rows_dropped_as_late",
        "Number of rows that a stateful pipeline dropped because they lay behind the watermark.",
        value=state.late_rows,
    )


def answer(
    path: str, registry: CollectorRegistry, status: WorkerStatus, *, now_unix_s: float
) -> tuple[int, str, bytes]:
    """Status code, content type and body for a path.

    A worker that has left the group is not ready. With an endpoint that does not report the members of a
    group, the operator learns only from this that the worker has left.
    """
    if path == METRICS_PATH:
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)
    age_s = abs(now_unix_s - status.written_at)  # the clock may have been set back while the worker hangs
    if path == STATUS_PATH:
        return _report(status, age_s)
    # A worker whose batch hangs ends itself; one that does not do that hangs as well.
    is_hung = (status.batch_age_s or 0.0) + age_s > status.batch_hung_after_s + STALE_S
    alive = status.phase != "failed" and age_s < STALE_S and not is_hung
    ready = alive and status.phase in ("running", "draining")
    good = {"/healthz": alive, "/readyz": ready}.get(path)
    if good is None:
        return HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /healthz /readyz /status\n"
    code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return code, "text/plain", f"{status.phase} {status.reason}\n".encode()


def _report(status: WorkerStatus, age_s: float) -> tuple[int, str, bytes]:
    """The status, without its message unless that is about the target. Its age is checked here, because the
    reader's clock may differ; the last written status is used, because a lock that a hanging thread holds
    must not delay the reader."""
    if age_s > STATUS_FRESH_S:
        text = f"the status has not been renewed for {age_s:.0f} s\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", text.encode()
    if status.reason != WorkerReason.SINK_UNAVAILABLE:
        status = msgspec.structs.replace(status, message="")  # it may quote a log
    return HTTPStatus.OK, "application/json", msgspec.json.encode(status)
