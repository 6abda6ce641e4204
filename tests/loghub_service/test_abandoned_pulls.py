"""Requests whose clients have left: pulls that wait for their turn must not delay those of other clients, and
nobody answers them."""

import asyncio
import logging
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from loghub_service.http.protocol import GONE
from tests.loghub_service.http.served import GUARD_S, serving
from tests.loghub_service.inprocess import InProcess, in_process
from tests.loghub_service.rawclient import group_of
from tests.support import wait_until

SHARD = "/logstores/access/shards/0"


async def pull(service: InProcess, cursor: str, *, gone: bool) -> bytes:
    """The body of the answer to a pull that had to wait."""
    query = {"type": "logs", "cursor": cursor, "count": "10"}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await service.app(scope | {"state": {GONE: lambda: gone}}, receive, send)

    exchange = service.begin_scope(service.scope("GET", SHARD, query), [(b"", False)], app=application)
    reply = await exchange.reply()
    assert reply is not None
    return reply.body


def test_a_pull_whose_client_has_left_is_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with in_process(tmp_path) as service:
            headers = {"Content-Type": "application/x-protobuf"}
            path = "/logstores/access/shards/lb"
            await service.ok("POST", path, body=group_of("line"), headers=headers)
            answer = await service.ok("GET", SHARD, {"type": "cursor", "from": "begin"})
            assert await pull(service, answer.json()["cursor"], gone=False)
            assert not await pull(service, answer.json()["cursor"], gone=True)

    asyncio.run(main())


def test_the_listener_says_when_a_client_has_left() -> None:
    gone: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        gone.append(scope["state"][GONE])
        await asyncio.wait_for(receive(), GUARD_S)
        await asyncio.wait_for(receive(), GUARD_S)

    with serving(application) as served, served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_until(lambda: bool(gone), "the request")
        assert not gone[0]()
        connection.close()
        wait_until(gone[0], "the service to notice")


def test_every_request_of_a_client_that_has_left_learns_it() -> None:
    begun, left = threading.Event(), threading.Event()

    async def application(_scope: Any, receive: Any, _send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    with serving(application) as served, served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 2)  # the second one waits for its turn
        assert begun.wait(GUARD_S)
        connection.close()
        assert left.wait(GUARD_S)


def test_an_answer_to_a_client_that_has_just_left_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    answered = threading.Event()

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        while not scope["state"][GONE]():
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})
        answered.set()

    with serving(application) as served, served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert answered.wait(GUARD_S)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
