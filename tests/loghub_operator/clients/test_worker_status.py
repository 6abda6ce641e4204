"""The statuses of workers over real connections: valid answers, and everything that counts as none."""

import asyncio
import contextlib
import socket

import aiohttp
import msgspec
import pytest
from aiohttp import web

from loghub.contract.worker import STATUS_PATH, WorkerStatus
from loghub_operator.observe import pods as module
from loghub_operator.observe.pods import MAX_AT_ONCE, MAX_BYTES, read_statuses
from tests.loghub.client.scripted import refused_endpoint
from tests.loghub_operator.support.status_server import Handler, returning, served, worker_status
from tests.ports import free_port

LONG_S = 60.0  # a bound that no test waits for
STATUS = worker_status()
BODY = msgspec.json.encode(STATUS)
answers = returning(STATUS)


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop of a test may be late; the one test of this bound sets its own."""
    monkeypatch.setattr(module, "CONNECT_S", LONG_S)


def read(handler: Handler, *, timeout_s: float = LONG_S, path: str = STATUS_PATH) -> WorkerStatus | None:
    async def run() -> WorkerStatus | None:
        async with served(handler, path) as address:
            return (await read_statuses({"access-0": address}, timeout_s=timeout_s))["access-0"]

    return asyncio.run(run())


def test_a_status_is_returned_as_the_worker_wrote_it() -> None:
    assert read(answers) == STATUS


def test_fields_of_a_newer_worker_are_ignored() -> None:
    async def newer(_: web.Request) -> web.StreamResponse:
        return web.json_response({**msgspec.to_builtins(STATUS), "further": [1]})

    assert read(newer) == STATUS


DEEP = b'{"further":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"<html>",
        b"\xff\xfe",
        BODY.replace(b"access-0", b"access\xff"),
        BODY[:-1],
        b'{"consumer": "access-0"}',
        BODY + b"{}",
        DEEP,
    ],
    ids=["empty", "null", "html", "no utf-8", "a text not utf-8", "cut", "incomplete", "two", "deep"],
)
def test_an_invalid_body_counts_as_no_answer(body: bytes) -> None:
    async def garbage(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    assert read(garbage) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 100_000 + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: \xff=\xff\r\nContent-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff; charset=\xff\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n{}",
    ],
)
def test_malformed_http_counts_as_no_answer(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    async def run() -> dict[str, WorkerStatus | None]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await read_statuses({"access-0": f"127.0.0.1:{port}"}, timeout_s=LONG_S)

    assert asyncio.run(run()) == {"access-0": None}


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:  # until the connection is closed
            await response.write(b" " * 65536)
            sent += 65536

    assert read(endless) is None
    assert sent >= MAX_BYTES
    assert sent < 100 * MAX_BYTES, "the buffers of the sockets, and no more"


@pytest.mark.parametrize(
    "endless",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ids=["interim responses", "tiny chunks"],
)
def test_a_flood_of_tiny_pieces_is_not_read_to_its_end(endless: bytes) -> None:
    """However little of it is body. Each piece would cost time of the operator's event loop."""
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(endless)
        piece = endless if b"100" in endless else b"1\r\n{\r\n"
        with contextlib.suppress(OSError):
            while sent < 100 * MAX_BYTES:
                writer.write(piece * 1000)
                await writer.drain()
                sent += len(piece) * 1000
        writer.close()

    async def run() -> dict[str, WorkerStatus | None]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await read_statuses({"access-0": f"127.0.0.1:{port}"}, timeout_s=LONG_S)

    assert asyncio.run(run()) == {"access-0": None}
    assert sent < 50 * MAX_BYTES, "the buffers of the sockets, and no more"


def test_a_compressed_answer_is_not_expanded() -> None:
    async def compressed(_: web.Request) -> web.StreamResponse:
        response = web.Response(body=BODY)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    assert read(compressed) is None


@pytest.mark.parametrize("status", [404, 500, 503])
def test_an_http_error_counts_as_no_answer_even_with_a_status_in_its_body(status: int) -> None:
    async def fails(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=BODY)

    assert read(fails) is None


def test_a_redirect_is_not_followed() -> None:
    followed = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        if request.path != STATUS_PATH:
            followed.append(request.path)
            return web.Response(body=BODY)
        raise web.HTTPFound("/elsewhere")

    assert read(elsewhere, path="/{any}") is None
    assert followed == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, refused_endpoint())
    monkeypatch.delenv("no_proxy", raising=False)
    assert read(answers) == STATUS


@pytest.mark.long
def test_a_slow_worker_does_not_delay_the_others() -> None:
    """The bound is for all together, whether an answer does not begin or does not end."""

    async def run() -> dict[str, WorkerStatus | None]:
        reached = asyncio.Event()

        async def hangs(_: web.Request) -> web.StreamResponse:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def stops(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(BODY[:-1])
            await asyncio.Event().wait()
            raise AssertionError

        async with served(hangs) as silent, served(stops) as half, served(answers) as quick:
            addresses = {"access-0": quick, "access-1": silent, "access-2": half}
            result = await asyncio.wait_for(read_statuses(addresses), LONG_S)
            assert reached.is_set()
            return result

    assert asyncio.run(run()) == {"access-0": STATUS, "access-1": None, "access-2": None}


@pytest.mark.long
def test_workers_that_cannot_be_reached_take_little_time_and_no_place_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network policy, or a lost node, drops what is sent to them. So does a socket with a full backlog."""
    monkeypatch.setattr(module, "CONNECT_S", 0.5)

    async def run() -> dict[str, WorkerStatus | None]:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = "127.0.0.1:{1}".format(*full.getsockname())
            waiting = [socket.create_connection(full.getsockname())]
            away = {f"access-{n}": address for n in range(1, 1 + MAX_AT_ONCE)}
            try:
                async with served(answers) as quick:
                    reading = read_statuses({**away, "access-0": quick}, timeout_s=LONG_S)
                    return await asyncio.wait_for(reading, LONG_S / 4)
            finally:
                for one in waiting:
                    one.close()

    found = asyncio.run(run())
    assert found.pop("access-0") == STATUS
    assert set(found.values()) == {None}


def test_a_refused_connection_counts_as_no_answer() -> None:
    async def run() -> dict[str, WorkerStatus | None]:
        return await read_statuses({"access-0": f"127.0.0.1:{free_port()}"}, timeout_s=LONG_S)

    assert asyncio.run(run()) == {"access-0": None}


def test_two_hundred_workers_are_queried_in_parallel_with_bounded_concurrency() -> None:
    now, maximum = 0, 0

    async def run() -> dict[str, WorkerStatus | None]:
        full, release = asyncio.Event(), asyncio.Event()

        async def counted(request: web.Request) -> web.StreamResponse:
            nonlocal now, maximum
            if request.path == STATUS_PATH:
                now += 1
                maximum = max(maximum, now)
                if now == MAX_AT_ONCE:
                    full.set()
                await release.wait()
                now -= 1
            return web.Response(body=BODY)

        async with served(counted, "/{any}") as address, aiohttp.ClientSession() as session:
            many = {f"access-{n}": address for n in range(200)}
            reading = asyncio.create_task(read_statuses(many, timeout_s=LONG_S))
            await asyncio.wait_for(full.wait(), LONG_S)
            for _ in range(5):  # whatever was sent before is accepted before these are
                async with session.get(f"http://{address}/other") as response:
                    assert response.status == 200
            release.set()
            return await reading

    result = asyncio.run(run())
    assert len(result) == 200
    assert all(status == STATUS for status in result.values())
    assert maximum == MAX_AT_ONCE


def test_nothing_is_requested_without_workers() -> None:
    assert asyncio.run(read_statuses({})) == {}
