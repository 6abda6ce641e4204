"""Pulls that wait for their turn while their clients leave: they must not delay those of other clients."""

import asyncio
from pathlib import Path
from typing import Any

from loghub.service.http.protocol import GONE
from tests.loghub.service.http.served import GUARD_S, serving
from tests.loghub.service.inprocess import InProcess, in_process
from tests.loghub.service.rawclient import group_of
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
