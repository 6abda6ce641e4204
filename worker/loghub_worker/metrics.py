"""``/metrics``, ``/healthz``, ``/readyz`` and ``/status`` of a worker, for Prometheus, the kubelet and the
operator."""

import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from loghub.worker_contract import STATUS_FRESH_S, STATUS_PATH, WorkerStatus

STALE_S = 30.0  # an older status means that a thread hangs, perhaps while holding the lock
REQUEST_S = 10.0  # a connection that sends nothing for this long is closed


class Figures(Collector):
    """Builds the metrics from the status at each scrape. `numbers` returns further counters:
    name -> (help, value)."""

    def __init__(
        self, status: Callable[[], WorkerStatus], numbers: Callable[[], dict[str, tuple[str, float]]]
    ) -> None:
        self._status = status
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        lag = GaugeMetricFamily(
            "loghub_worker_shard_lag_seconds",
            "Age of the log group that is read next, by shard.",
            labels=["shard"],
        )
        logs = CounterMetricFamily(
            "loghub_worker_shard_logs", "Number of logs in committed batches, by shard.", labels=["shard"]
        )
        for shard in status.shards:
            logs.add_metric([str(shard.shard)], shard.logs)
            if shard.lag_s is not None:
                lag.add_metric([str(shard.shard)], shard.lag_s)
        yield lag
        yield logs
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
            "loghub_worker_rows_written", "Number of rows written to the sink.", value=status.rows_written
        )
        for name, (text, value) in self._numbers().items():
            yield CounterMetricFamily(name, text, value=value)


class MetricsServer:
    """A small HTTP server with threads of its own. `status` returns the status that was last written, so that
    its age shows whether the worker hangs."""

    def __init__(
        self, address: str, figures: Figures, status: Callable[[], WorkerStatus], unix_s: Callable[[], float]
    ) -> None:
        registry = CollectorRegistry()
        registry.register(figures)

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                code, kind, body = answer(self.path, registry, status(), now_unix_s=unix_s())
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: probes arrive every few seconds."""

        host, _, port = address.rpartition(":")
        self._server = ThreadingHTTPServer((host, int(port)), Handler)
        self.port = self._server.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(
    path: str, registry: CollectorRegistry, status: WorkerStatus, *, now_unix_s: float
) -> tuple[int, str, bytes]:
    """Status code, content type and body for a path.

    A worker that has left the group is not ready. With an endpoint that does not report the members of a
    group, the operator learns only from this that the worker has left.
    """
    if path == "/metrics":
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)
    age_s = abs(now_unix_s - status.written_at)  # the clock may have been set back while the worker hangs
    if path == STATUS_PATH:
        return _report(status, age_s)
    alive = status.phase != "failed" and age_s < STALE_S
    ready = alive and status.phase in ("running", "draining")
    good = {"/healthz": alive, "/readyz": ready}.get(path)
    if good is None:
        return HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /healthz /readyz /status\n"
    code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return code, "text/plain", f"{status.phase} {status.reason}\n".encode()


def _report(status: WorkerStatus, age_s: float) -> tuple[int, str, bytes]:
    """The status without its message. Its age is checked here, because the reader's clock may differ; the
    last written status is used, because a lock that a hanging thread holds must not delay the reader."""
    if age_s > STATUS_FRESH_S:
        text = f"the status has not been renewed for {age_s:.0f} s\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", text.encode()
    return HTTPStatus.OK, "application/json", msgspec.json.encode(msgspec.structs.replace(status, message=""))
