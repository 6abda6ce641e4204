"""Publishes a worker's status: the file once a second, and the HTTP server for metrics and probes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import structlog

from loghub.atomic_file import replace_file
from loghub.clock import Clock
from loghub.worker_contract import WorkerStatus
from loghub_worker.metrics import Counter, Figures
from loghub_worker.metrics_server import MetricsServer
from loghub_worker.settings import WorkerSettings

log = structlog.get_logger()

STATUS_S = 1.0


class StatusPublisher:
    """Publishes what `status` and `counters` return."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        status: Callable[[], WorkerStatus],
        counters: Callable[[], tuple[Counter, ...]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._status = status
        self._counters = counters
        self._ended = threading.Event()
        self._written = status()  # as last written

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish until the end, and once more then."""
        metrics = self._serve_metrics()
        self._write()
        ticker = threading.Thread(target=self._tick, name="status", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            self._ended.set()
            ticker.join()
            self._write()
            if metrics is not None:
                metrics.stop()

    def _tick(self) -> None:
        while not self._ended.wait(STATUS_S):
            self._write()

    def _write(self) -> None:
        self._written = self._status()
        try:
            replace_file(self._settings.status_file, msgspec.json.encode(self._written))
        except OSError as error:  # a full disk must not end the worker; `written_at` shows that it is stale
            log.warning("status file not written", message=str(error))

    def _serve_metrics(self) -> MetricsServer | None:
        if self._settings.metrics_address is None:
            return None
        figures = Figures(self._status, self._counters)
        written = partial(getattr, self, "_written")
        server = MetricsServer(self._settings.metrics_address, figures, written, self._clock.unix_s)
        server.start()
        return server
