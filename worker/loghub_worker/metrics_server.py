"""The HTTP server of a worker for Prometheus, the kubelet and the operator.

Anything in the pod network can connect, and the kubelet ends a worker whose probes are not answered. So
threads and connections are bounded, a new connection replaces the oldest one, and metrics, which wait for a
lock of the worker, cannot take all threads from the probes, which do not."""

import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from loghub.listening import listen
from loghub.worker_contract import WorkerStatus
from loghub_worker.metrics import METRICS_PATH, answer

REQUEST_S = 10.0  # a connection that sends nothing for this long is closed
MAX_CONNECTIONS = 16
# Some may belong to connections that were closed for newer ones and have not noticed yet.
MAX_THREADS = 2 * MAX_CONNECTIONS
MAX_SCRAPES = 4  # at the same time; usually there is one Prometheus, or two
BACKLOG = 64


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
        """Log nothing: a client that goes away is no error of the worker."""

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._running -= 1
