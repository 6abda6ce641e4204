"""Connections that send no request are closed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from loghub_operator import http_server
from loghub_operator.http_server import Response, Route, text

GUARD_S = 120.0
SOON_S = 0.05
REQUEST = b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


def play(story: Callable[[Connect], Awaitable[None]], route: Route = lambda: text("fine")) -> None:
    async def played() -> None:
        async with http_server.serving("127.0.0.1:0", {"/ok": route}) as address, asyncio.timeout(GUARD_S):
            host, _, port = address.rpartition(":")
            opened: list[Streams] = []

            async def connect() -> Streams:
                opened.append(await asyncio.open_connection(host, int(port)))
                return opened[-1]

            try:
                await story(connect)
            finally:
                for _, writer in opened:
                    writer.close()

    asyncio.run(played())


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Until the other side ends it, which an abort may do rudely."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("said", [b"", b"GET /ok HT", REQUEST[:-2]])
def test_a_connection_without_a_complete_first_request_is_closed(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(said)
        assert await rest(reader) == b""

    monkeypatch.setattr(http_server, "FIRST_REQUEST_BOUND_S", SOON_S)
    play(story)


@pytest.mark.parametrize("said", [b"", REQUEST[:-2]])
def test_a_connection_without_a_complete_next_request_is_closed(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(said)
        assert (await rest(reader)).endswith(b"fine\n")

    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", SOON_S)
    play(story)


@pytest.mark.long
def test_a_slow_response_to_the_first_request_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until after the check of its connection: a later one was closed by then."""
    others: list[Connect] = []

    async def slow() -> Response:
        reader, _ = await others[0]()
        assert await rest(reader) == b""
        return text("fine")

    async def story(connect: Connect) -> None:
        others.append(connect)
        reader, writer = await connect()
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    monkeypatch.setattr(http_server, "FIRST_REQUEST_BOUND_S", 10 * SOON_S)
    play(story, slow)
