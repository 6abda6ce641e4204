"""The worker's HTTP server for metrics and probes answers whatever other clients do with it, and never has
more than a fixed number of threads and connections."""

import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from loghub.contract.worker import WorkerStatus
from loghub_worker import metrics
from loghub_worker.metrics import MAX_CONNECTIONS, MAX_SCRAPES, MAX_THREADS, Figures, MetricsServer
from tests.support import wait_until

STATUS = WorkerStatus(
    consumer="w-0",
    phase="running",
    reason="",
    message="",
    rows_written=0,
    last_heartbeat_age_s=1.0,
    shards=[],
    written_at=1000.0,
)
GUARD_S = 120.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection ends because of its own time limit while a test runs."""
    monkeypatch.setattr(metrics, "REQUEST_S", 10 * GUARD_S)


@contextmanager
def running(status: Callable[[], WorkerStatus] = lambda: STATUS) -> Iterator[MetricsServer]:
    """A server whose metrics come from `status`; the probes use `STATUS`."""
    server = MetricsServer("127.0.0.1:0", Figures(status, dict), lambda: STATUS, lambda: 1000.0)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=GUARD_S)


def get(server: MetricsServer, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=GUARD_S) as response:
        return bytes(response.read())


def handler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "metrics-request"]


@pytest.mark.long
def test_probes_are_answered_while_silent_connections_are_open() -> None:
    with running() as server, ExitStack() as connections:
        for _ in range(5 * MAX_CONNECTIONS):
            connections.enter_context(connect(server))
        for path in ("/healthz", "/readyz", "/status", "/metrics"):
            assert get(server, path)
        assert len(handler_threads()) <= MAX_THREADS


@pytest.mark.long
def test_the_oldest_connection_is_closed_for_a_new_one() -> None:
    with running() as server, ExitStack() as connections:
        oldest = connections.enter_context(connect(server))
        oldest.sendall(b"GET /healthz HTTP/1.1\r\n")  # and never the end of the head
        for _ in range(MAX_CONNECTIONS):
            connections.enter_context(connect(server))
        assert oldest.recv(1) == b""


@pytest.mark.long
def test_requests_that_hang_do_not_accumulate_and_leave_room_for_the_probes() -> None:
    """As with a lock that another thread never releases: /metrics waits for it, the probes do not."""
    go_on, waiting = threading.Event(), 0

    def hangs() -> WorkerStatus:
        nonlocal waiting
        waiting += 1
        assert go_on.wait(GUARD_S)
        return STATUS

    with running(hangs) as server, ExitStack() as connections:
        try:
            for _ in range(3 * MAX_THREADS):
                scrape = connections.enter_context(connect(server))
                scrape.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            wait_until(lambda: waiting == MAX_SCRAPES, "the first requests", guard_s=GUARD_S)
            assert msgspec.json.decode(get(server, "/status"), type=WorkerStatus) == STATUS
            assert get(server, "/healthz")
            assert len(handler_threads()) <= MAX_THREADS
            assert waiting == MAX_SCRAPES
        finally:
            go_on.set()
        wait_until(lambda: not handler_threads(), "the threads to end", guard_s=GUARD_S)


@pytest.mark.long
@pytest.mark.parametrize("request_text", [b"\x00\xff\r\n\r\n", b"POST / HTTP/1.0\r\n\r\n", b""])
def test_a_connection_ends_after_its_request(request_text: bytes) -> None:
    with running() as server, connect(server) as client:
        client.sendall(request_text)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
        assert get(server, "/healthz")
