"""Servers of all three programs answer over IPv6 and IPv4, and over IPv4 alone where there is no IPv6."""

import asyncio
import errno
import http.client
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from loghub import listening
from loghub.client.http import HttpLogHub
from loghub.contract.worker import WorkerStatus
from loghub_operator.autoscaling.keda import serving_keda
from loghub_operator.http_server import serving, text
from loghub_worker.metrics import Figures, MetricsServer
from tests.cluster import require
from tests.loghub_operator.support.group_metrics import store
from tests.support import running_service

LOOPBACKS = ("::1", "127.0.0.1")
GUARD_S = 120.0
DIRECT = [("grpc.enable_http_proxy", 0)]


@pytest.fixture(autouse=True)
def ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        require.absent("this machine has no IPv6 loopback address")


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=GUARD_S).close()
    except OSError:
        return False
    return True


def status_of(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=GUARD_S)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.mark.parametrize("host", ["", "::", "[::]"])
def test_every_address_is_that_of_both_families(host: str) -> None:
    with closing(listening.listen(host, 0)) as server:
        assert [one for one in LOOPBACKS if connects(one, server.getsockname()[1])] == list(LOOPBACKS)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_address_of_ipv4_is_no_other(host: str) -> None:
    with closing(listening.listen(host, 0)) as server:
        assert [one for one in LOOPBACKS if connects(one, server.getsockname()[1])] == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_is_no_other(host: str) -> None:
    with closing(listening.listen(host, 0)) as server:
        assert [one for one in LOOPBACKS if connects(one, server.getsockname()[1])] == ["::1"]


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_every_address_is_that_of_ipv4(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without_ipv6(address: tuple[str, int], **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with closing(listening.listen("", 0)) as server:
        assert connects("127.0.0.1", server.getsockname()[1])


def test_a_port_in_use_is_an_error() -> None:
    with closing(listening.listen("", 0)) as server, pytest.raises(OSError, match="in use"):
        listening.listen("", server.getsockname()[1])


def test_the_operators_server_answers_over_both() -> None:
    async def played() -> list[int]:
        async with serving(":0", {"/healthz": lambda: text("ok")}) as address:
            port = int(address.rpartition(":")[2])
            return [await asyncio.to_thread(status_of, host, port, "/healthz") for host in LOOPBACKS]

    assert asyncio.run(played()) == [200, 200]


def test_the_external_scaler_answers_over_both() -> None:
    async def played() -> None:
        async with serving_keda(":0", store()) as address, asyncio.timeout(GUARD_S):
            port = address.rpartition(":")[2]
            for host in ("[::1]", "127.0.0.1"):
                async with grpc.aio.insecure_channel(f"{host}:{port}", options=DIRECT) as channel:
                    await channel.channel_ready()

    asyncio.run(played())


@pytest.fixture
def worker_server() -> Iterator[MetricsServer]:
    status = WorkerStatus(
        consumer="access-0",
        phase="running",
        reason="",
        message="",
        rows_written=0,
        last_heartbeat_age_s=None,
        shards=[],
        written_at=1000.0,
    )
    server = MetricsServer(":0", Figures(lambda: status, tuple), lambda: status, lambda: 1000.0)
    server.start()
    yield server
    server.stop()


@pytest.mark.long
def test_the_workers_server_answers_over_both(worker_server: MetricsServer) -> None:
    assert [status_of(host, worker_server.port, "/readyz") for host in LOOPBACKS] == [200, 200]


@pytest.mark.long
@pytest.mark.parametrize("extra", [(), ("--base-name", "loghub.svc")], ids=["any name", "a base name"])
def test_a_client_reaches_a_project_at_an_ipv6_address(extra: tuple[str, ...], tmp_path: Path) -> None:
    with running_service(tmp_path, extra=("--listen", ":0", *extra)) as service:
        client = HttpLogHub(f"http://[::1]:{service.port}", "demo", credentials=service.credentials)
        with closing(client):
            client.create_project()
            client.create_logstore("access", shards=2)
            assert [shard.shard for shard in client.list_shards("access")] == [0, 1]


@pytest.mark.long
def test_the_service_answers_over_both(tmp_path: Path) -> None:
    with running_service(tmp_path, extra=("--listen", ":0")) as service:
        assert [status_of(host, service.port, "/healthz") for host in LOOPBACKS] == [200, 200]
