"""Clients that read slowly or never: the memory and the time that they occupy are bounded."""

import http.client
import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub_service.settings import MIB, Limits
from tests.loghub_service.http.served import answering, serving
from tests.loghub_service.rawclient import GUARD_S, RawClient
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


@pytest.mark.long
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


def test_a_reader_that_stops_reading_is_disconnected() -> None:
    limits = Limits(response_timeout_s=0.2)
    with serving(answering(bytes(64 * MIB)), limits=limits) as served, served.connect() as reader:
        reader.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        reader.recv(1)
        wait_until(lambda: served.open_connections == 0, "the connection to be cut", guard_s=GUARD_S)


@pytest.mark.long
def test_a_reader_that_read_in_time_stays_connected() -> None:
    """The time limit is for one response, not for the connection."""
    body = bytes(16 * MIB)
    with serving(answering(body), limits=Limits(response_timeout_s=2.0)) as served:
        reader = http.client.HTTPConnection(*served.address, timeout=GUARD_S)
        reader.request("GET", "/")
        assert reader.getresponse().read() == body
        threading.Event().wait(2.2)  # longer than an answer may take; nothing must happen meanwhile
        reader.request("GET", "/")
        assert reader.getresponse().read() == body
        reader.close()
