"""Clients that read slowly or never: the memory and the time that they occupy are bounded."""

import asyncio
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from loghub.service.http import protocol
from loghub.service.settings import MIB, Limits
from loghub.wire import loggroup
from tests.loghub.service.rawclient import GUARD_S, RawClient
from tests.support import ServiceProcess, running_service, wait_until

GROUP = loggroup.encode(
    loggroup.LogGroup(logs=(loggroup.Log(time=1, contents=(("line", os.urandom(9 * MIB)),)),))
)
FITTING = Limits().response_bytes // len(GROUP)  # whole answers; what LZ4 adds is far less than one


def _unread(service: ServiceProcess) -> RawClient:
    """A client whose end of the connection takes next to nothing by itself."""
    client = RawClient(service)
    client.connection.sock = socket.socket()
    client.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connection.sock.settimeout(GUARD_S)
    client.connection.sock.connect((service.host, service.port))
    return client


def _begin_pull(client: RawClient, cursor: str) -> None:
    query = {"type": "logs", "cursor": cursor, "count": "1"}
    client.begin("GET", "/logstores/access/shards/0", query, body=b"", headers={"Accept-Encoding": "lz4"})


def test_the_total_of_unread_responses_is_bounded(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, RawClient(service) as client, ExitStack() as stack:
        client.create()
        assert client.put(GROUP).status == 200
        cursor = client.cursor()
        readers = [stack.enter_context(_unread(service)) for _ in range(FITTING)]
        for reader in readers:
            _begin_pull(reader, cursor)
            assert reader.answered(within_s=GUARD_S)
        _begin_pull(client, cursor)
        refused = client.end()
        assert (refused.status, refused.code) == (503, "ServerBusy")
        client.create_group()  # what is small, and what writes, goes on
        assert client.heartbeat("a", []) == [0]
        assert len(readers[0].end().body) > len(GROUP)
        readers[1].connection.close()
        assert client.pull(cursor, count=1)[1] == [GROUP]


class _Served:
    """A protocol's server in a thread: every request is answered with these bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.loop = asyncio.new_event_loop()
        self.state = ServerState()
        self.port = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        length = str(len(self._body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self._body})

    def run(self) -> None:
        config = uvicorn.Config(self._application, lifespan="off", log_config=None, interface="asgi3")
        server = self.loop.run_until_complete(
            self.loop.create_server(
                lambda: protocol.BoundedProtocol(config, self.state, {}, self.loop), "127.0.0.1", 0
            )
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()
        server.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@contextmanager
def _serving(body: bytes) -> Iterator[_Served]:
    served = _Served(body)
    served.thread.start()
    assert served.ready.wait(GUARD_S)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(served.loop.stop)
        served.thread.join(GUARD_S)


def test_a_reader_that_stops_reading_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "RESPONSE_TIMEOUT_S", 0.2)
    body = bytes(64 * MIB)
    with _serving(body) as served, socket.create_connection(("127.0.0.1", served.port), GUARD_S) as reader:
        reader.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        reader.recv(1)
        wait_until(lambda: not served.state.connections, "the connection to be cut", guard_s=GUARD_S)


def test_a_reader_that_read_in_time_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is for one response, not for the connection."""
    monkeypatch.setattr(protocol, "RESPONSE_TIMEOUT_S", 2.0)
    body = bytes(16 * MIB)
    with _serving(body) as served:
        reader = http.client.HTTPConnection("127.0.0.1", served.port, timeout=GUARD_S)
        reader.request("GET", "/")
        assert reader.getresponse().read() == body
        threading.Event().wait(2.2)  # longer than an answer may take; nothing must happen meanwhile
        reader.request("GET", "/")
        assert reader.getresponse().read() == body
        reader.close()
