"""``/metrics``, ``/healthz``, ``/readyz`` and ``/status`` of a worker, for Prometheus, the kubelet and the
operator, with their HTTP server.

Any program in the pod network can connect, and the kubelet ends a worker whose probes are not answered. So
threads and connections are bounded, a new connection replaces the oldest one, and metrics, which wait for a
lock of the worker, cannot take all threads from the probes, which do not.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from loghub.contract.worker import (
    STATUS_FRESH_S,
    STATUS_PATH,
    KeptState,
    ProcessProgress,
    WorkerReason,
    WorkerStatus,
)
from loghub.listening import listen
from loghub_consumer.acknowledgments import DeliveryCounts
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import ShardTotals
from loghub_consumer.processes.remote_processor import ProcessorCounts

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
        for failing_shard in status.failing:
            failing.add_metric([str(failing_shard.shard)], 1.0)
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


def failure_counters(failures: Mapping[int, ShardTotals]) -> tuple[Counter, ...]:
    """All of them, by shard."""
    return (
        Counter(
            "loghub_worker_failed_attempts",
            "Number of failed attempts to deliver a range of log groups, by shard.",
            {shard: one.failed_attempts for shard, one in failures.items()},
        ),
        Counter(
            "loghub_worker_log_groups_skipped",
            "Number of log groups skipped because the pipeline or the sink rejects them, by shard.",
            {shard: one.skipped for shard, one in failures.items()},
        ),
        Counter(
            "loghub_worker_log_groups_dead_lettered",
            "Number of log groups written to the dead letter, by shard.",
            {shard: one.dead_lettered for shard, one in failures.items()},
        ),
    )


REQUEST_S = 10.0  # a connection that sends nothing for this long is closed; a probe gives up earlier
MAX_CONNECTIONS = 16  # kubelet, Prometheus and the operator have one or two each
# Some may belong to connections that were closed for newer ones and have not noticed yet.
MAX_THREADS = 2 * MAX_CONNECTIONS
MAX_SCRAPES = 4  # at the same time; usually there is one Prometheus, or two
BACKLOG = 64  # kernel's queue while a scrape is written; several times MAX_CONNECTIONS


class MetricsServer:
    """Serves `loghub_worker.metrics.answer` from threads of its own. `status` returns the status that was
    last written, so that its age shows whether the worker hangs."""

    def __init__(
        self,
        address: str,
        figures: Collector,
        status: Callable[[], WorkerStatus],
        unix_s: Callable[[], float],
    ) -> None:
        registry = CollectorRegistry()
        registry.register(figures)
        scrapes = threading.BoundedSemaphore(MAX_SCRAPES)

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                if self.path != METRICS_PATH:
                    self._send(*answer(self.path, registry, status(), now_unix_s=unix_s()))
                elif scrapes.acquire(blocking=False):
                    try:
                        self._send(*answer(self.path, registry, status(), now_unix_s=unix_s()))
                    finally:
                        scrapes.release()
                else:
                    self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"too many requests at once\n")

            def _send(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: probes arrive every few seconds."""

        host, _, port = address.rpartition(":")
        self._server = _BoundedServer(listen(host, int(port), backlog=BACKLOG), Handler)
        self.port = self._server.socket.getsockname()[1]

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    """A thread for each connection, with the bounds of this module."""

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._running = 0
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()  # its family is fixed
        self.socket = listening

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if self._running >= MAX_THREADS:
                self.close_request(request)
                return
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._open[request] = None
            self._running += 1
        arguments = (request, client_address)
        thread = threading.Thread(
            target=self.process_request_thread, args=arguments, name="metrics-request", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the process has as many threads as it may have
            self._forget(request)
            self.close_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing, because a client that disconnects is no error of the worker."""

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._running -= 1


def processor_counters(
    counts: ProcessorCounts,
    failures: FailureReport,
    processes: Sequence[ProcessProgress],
    deliveries: DeliveryCounts,
) -> tuple[Counter, ...]:
    """All of them, as of now."""
    return (
        Counter(
            "loghub_worker_subscription_logs_delivered",
            "Number of logs that a subscription has delivered to the worker.",
            deliveries.delivered,
        ),
        Counter(
            "loghub_worker_subscription_logs_redelivered",
            "Number of these that were refused before.",
            deliveries.redelivered,
        ),
        Counter(
            "loghub_worker_subscription_logs_acknowledged",
            "Number of logs of a subscription that the worker has acknowledged.",
            deliveries.acknowledged,
        ),
        Counter(
            "loghub_worker_subscription_logs_refused",
            "Number of logs that the worker has given back to be delivered again.",
            deliveries.refused,
        ),
        Counter("loghub_worker_batches", "Number of batches processed.", counts.batches),
        Counter(
            "loghub_worker_batches_timed_out",
            "Number of batches that took longer than their timeout.",
            counts.timed_out,
        ),
        Counter(
            "loghub_worker_batch_duration_seconds",
            "Total duration of the processed batches.",
            counts.seconds,
        ),
        Counter(
            "loghub_worker_process_starts",
            "Number of starts of processes that run processors.",
            sum(one.starts for one in processes),
        ),
        Counter(
            "loghub_worker_log_groups_postponed",
            "Number of log groups written to the retry logstore, by shard.",
            {shard: one.postponed for shard, one in failures.totals.items()},
        ),
        *failure_counters(failures.totals),
    )
