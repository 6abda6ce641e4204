"""Requests as bytes, and a server of an engine in this process that takes them."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httptools
import pytest
from hypothesis import strategies as st

from loghub.wire import compression
from loghub.wire.compression import Compression
from loghub_service.access_keys import AccessKey, Right
from loghub_service.connections.listener import HttpConnection
from loghub_service.engine import Engine
from loghub_service.http.app import Application
from loghub_service.http.auth import authenticate
from loghub_service.http.direct_calls import Call
from loghub_service.http.direct_put_logs import Answer
from loghub_service.http.protocol import BoundedProtocol, Direct
from loghub_service.http.server import HttpServer
from loghub_service.messages import Head
from loghub_service.settings import Limits
from tests.loghub_service.inprocess import KEY, InProcess, in_process
from tests.loghub_service.rawclient import group_of, signed_headers

GUARD_S = 120.0
NOW_S = 1_700_000_000.0
LB = "/logstores/access/shards/lb"
# The secret of each is the same.
KEYS = {
    key.key_id: key
    for key in (
        AccessKey(key_id=KEY.access_key_id, secret=KEY.access_key_secret),
        AccessKey(key_id="reader", secret=KEY.access_key_secret, rights=frozenset({Right.READ})),
        AccessKey(key_id="writer", secret=KEY.access_key_secret, rights=frozenset({Right.WRITE})),
        AccessKey(key_id="elsewhere", secret=KEY.access_key_secret, projects=frozenset({"other"})),
        AccessKey(key_id="old", secret=KEY.access_key_secret, expires_unix_s=NOW_S - 1),
        AccessKey(key_id="sts", secret=KEY.access_key_secret, security_token="token"),
    )
}
GROUP = group_of("a" * 300, "b" * 2000)


def put(
    group: bytes = GROUP,
    *,
    path: str = LB,
    query: str = "",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    end: str = "",
) -> bytes:
    """A signed PutLogs in LZ4; ``headers`` are signed, while ``end`` follows the signed head."""
    if body is None:
        body = compression.compress(group, Compression.LZ4)
    usual = {
        "Content-Type": "application/x-protobuf",
        "x-log-bodyrawsize": str(len(group)),
        "x-log-compresstype": "lz4",
    }
    return signed("POST", path, query, body=body, headers=usual | (headers or {}), end=end)


def signed(
    method: str,
    path: str,
    query: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    end: str = "",
) -> bytes:
    """Any request; ``headers`` are signed, while ``end`` follows the signed head."""
    parameters = dict(unquote(pair).split("=") for pair in query.split("&") if pair)
    usual = {"Host": "demo.127.0.0.1"} | (headers or {})
    sent = signed_headers(method, path, parameters, body=body, headers=usual, key=KEY, unix_s=NOW_S)
    target = f"{path}?{query}" if query else path
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return ("\r\n".join(lines) + f"\r\n{end}\r\n").encode() + body


class Counted:
    """Counts the requests that are served without ASGI: PutLogs, and all others."""

    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self.accepted = self.calls = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        begin_put, begin_call = self._direct.puts.begin, self._direct.calls.begin

        def put(request: Any, authenticated: Any, answer: Answer) -> bool:
            is_accepted = begin_put(request, authenticated, answer)
            self.accepted += is_accepted
            return is_accepted

        def call(data: bytes, authenticated: Any) -> Call | None:
            accepted = begin_call(data, authenticated)
            self.calls += accepted is not None
            return accepted

        patch.setattr(self._direct.puts, "begin", put)
        patch.setattr(self._direct.calls, "begin", call)


@dataclass(slots=True)
class PutServer:
    """The running server. `directly` says whether requests may do without ASGI."""

    service: InProcess
    app: Application
    server: HttpServer
    counted: Counted
    address: tuple[str, int]
    received: int = 0  # bytes
    clients: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.service.engine

    def directly(self, is_direct: bool) -> None:
        self.server.direct = self.app.direct if is_direct else None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        self.clients.append(writer)
        return reader, writer

    async def exchange(self, request: bytes) -> bytes:
        """The answer to a request on a connection of its own."""
        reader, writer = await self.connect()
        writer.write(request)
        return await answered(reader)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the server run until something holds."""
        async with asyncio.timeout(GUARD_S):
            while not holds():
                await asyncio.sleep(0)

    async def deliver(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Send something, and wait until the server has received it."""
        expected = self.received + len(data)
        writer.write(data)
        await self.until(lambda: self.received >= expected)

    @property
    def memory_in_use(self) -> int:
        """Of PutLogs, in bytes."""
        return self.app.budgets[0].used

    @property
    def connection(self) -> HttpConnection:
        """The only one, as the bound on connections sees it."""
        (protocol,) = self.server.server_state.connections
        assert isinstance(protocol, BoundedProtocol)
        return protocol._connection

    @property
    def is_stopping(self) -> bool:
        """Whether the server has asked its connections to end."""
        known = self.server.server_state.connections
        return all(not one.cycle.keep_alive for one in known if isinstance(one, BoundedProtocol))

    def stored(self) -> list[bytes]:
        """The stored form of every log group."""
        groups = []
        for log in self.engine.logs.values():
            extent = log.extent
            read = log.read(
                cursor=extent.oldest_cursor,
                end_cursor=extent.end_cursor,
                max_groups=1000,
                max_bytes=1 << 20,
            )
            groups += [entry.group for entry in read.entries]
        return groups


async def answered(reader: asyncio.StreamReader) -> bytes:
    """One answer, without what differs from one to the next: its id, and the time."""
    async with asyncio.timeout(GUARD_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
    head = re.sub(rb"x-log-requestid: [0-9A-F]{24}\r\n", b"x-log-requestid: ..\r\n", head)
    return re.sub(rb"date: [^\r]+\r\n", b"date: ..\r\n", head) + body


@asynccontextmanager
async def put_server(
    data: Path, *, limits: Limits | None = None, keep_alive_s: int = 60
) -> AsyncIterator[PutServer]:
    async with in_process(data, limits=limits) as service:
        listening = socket.create_server(("127.0.0.1", 0))
        app = Application(service.engine, find_key=KEYS.get, metrics=service.metrics)
        server = HttpServer(app, listening, limits=limits or Limits(), keep_alive_s=keep_alive_s)
        running = PutServer(service, app, server, Counted(app.direct), listening.getsockname()[:2])
        running.directly(True)
        receive = BoundedProtocol.data_received

        def data_received(protocol: BoundedProtocol, data: bytes) -> None:
            running.received += len(data)
            receive(protocol, data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BoundedProtocol, "data_received", data_received)
            running.counted.install(patch)
            serving = asyncio.create_task(server.serve())
            try:
                await running.until(lambda: server.started)
                yield running
            finally:
                for client in running.clients:
                    client.close()
                server.should_exit = True
                await serving


class HeldFutures:
    """What a method returns instead, so that nothing is done before the test says so."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()

    def begin(self, *_: object, **__: object) -> "asyncio.Future[int]":
        held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.begun.put_nowait(held)
        return held

    async def next(self) -> "asyncio.Future[int]":
        async with asyncio.timeout(GUARD_S):
            return await self.begun.get()


@contextmanager
def held_appends(engine: Engine) -> Iterator[HeldFutures]:
    with pytest.MonkeyPatch.context() as patch:
        held = HeldFutures()
        patch.setattr(engine, "append", held.begin)
        yield held


@contextmanager
def held_steps(engine: Engine) -> Iterator[HeldFutures]:
    """Commits of steps of groups."""
    with pytest.MonkeyPatch.context() as patch:
        held = HeldFutures()
        patch.setattr(engine.groups._batches, "submit", held.begin)
        yield held


class Parsed:
    """What uvicorn's parser finds in bytes."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.complete = b"", b"", 0
        self.headers: list[tuple[str, str]] = []
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1

    @property
    def head(self) -> Head:
        url = httptools.parse_url(self.url)
        path = url.path.decode()
        return Head(
            method=self.parser.get_method().decode(),
            path=path,
            parts=tuple(path.split("/")[1:]),
            query=dict(pair.split("=") for pair in (url.query or b"").decode().split("&") if pair),
            headers=dict(self.headers),
            project=None,
        )

    @property
    def is_signed(self) -> bool:
        """With the secret of the tests, and is one whole request on a connection that stays."""
        is_one = (self.complete, self.parser.should_keep_alive()) == (1, True)
        has_one_of_each = len(self.headers) == len(self.head.headers)
        signer = authenticate(self.head, _key_named, now_s=NOW_S)
        return is_one and has_one_of_each and bool(signer.key_id)


def _key_named(key_id: str) -> AccessKey:
    return AccessKey(key_id=key_id, secret=KEY.access_key_secret)


def changed(requests: Iterable[bytes]) -> st.SearchStrategy[bytes]:
    """One of the requests, with a few bytes of its head changed, cut out or put in."""
    odd = st.sampled_from(
        [b"\r\n", b"\r", b"\n", b" ", b"\t", b":", b"?", b"%", b"&", b"=", b"\0", b"\xe9", b"A", b"1", b""]
    )
    choices = list(requests)

    @st.composite
    def request(draw: st.DrawFn) -> bytes:
        chosen = draw(st.sampled_from(choices))
        head = bytearray(chosen[: chosen.index(b"\r\n\r\n") + 4])
        rest = chosen[len(head) :]
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(head)))
            head[at : at + draw(st.integers(0, 2))] = draw(odd)
        return bytes(head) + rest

    return request()
