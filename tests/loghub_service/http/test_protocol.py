"""Clients that are silent, slow, or send too much before a request is complete, over real sockets."""

import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from loghub_service.http.protocol import ARRIVED
from loghub_service.settings import MIB, Limits
from tests.loghub_service.http.served import GUARD_S, Served, answering, is_closed, receiving, serving
from tests.support import wait_until

QUICK = Limits(head_timeout_s=0.3, linger_s=0.3)
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
KNOWN = b"GET /known HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def quick() -> Iterator[Served]:
    with serving(answering(), limits=QUICK) as served:
        yield served


def drip(connection: socket.socket, piece: bytes) -> int:
    """Send pieces until the connection is closed; how many were sent."""
    sent = 0
    try:
        while sent < GUARD_S * 20:
            connection.sendall(piece)
            sent += 1
            connection.settimeout(0.05)
            try:
                if connection.recv(65536) == b"":
                    return sent
            except TimeoutError:
                pass
    except ConnectionError:
        return sent
    raise AssertionError(f"the connection is open after {sent} pieces")


def test_a_silent_connection_is_closed(quick: Served) -> None:
    with quick.connect() as connection:
        assert is_closed(connection)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", b"\r\n"),  # allowed before a request, and no part of it
        (b"", b"G"),
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (b"GET / HTTP/1.1\r\nx: ", b"y"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n", b"y"),  # refused without being read
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\ny\r\n"),
        (GET, b"\r\n"),
        (GET + b"GET", b" "),
    ],
)
def test_a_drip_keeps_no_connection_open(quick: Served, head: bytes, piece: bytes) -> None:
    with quick.connect() as connection:
        connection.sendall(head)
        assert drip(connection, piece) > 0


def test_the_rest_of_a_refused_body_is_discarded_and_the_next_request_is_served(quick: Served) -> None:
    client = http.client.HTTPConnection(*quick.address, timeout=GUARD_S)
    for _ in range(3):
        client.request("POST", "/", body=bytes(MIB))
        assert client.getresponse().read() == b""
    client.close()


@pytest.mark.long
def test_an_idle_connection_of_a_client_without_a_key_is_closed_early() -> None:
    with serving(answering(), limits=QUICK) as served, served.connect() as known, served.connect() as other:
        known.sendall(KNOWN)
        assert known.recv(65536).startswith(b"HTTP/1.1 200")
        other.sendall(GET)
        assert is_closed(other)
        threading.Event().wait(2 * QUICK.head_timeout_s)  # nothing must happen meanwhile
        known.sendall(KNOWN)
        assert known.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.long
def test_an_idle_connection_of_a_client_with_a_key_is_closed_too() -> None:
    with serving(answering(), limits=QUICK, keep_alive_s=1) as served, served.connect() as known:
        known.sendall(KNOWN)
        assert is_closed(known)


def test_many_headers_are_refused(quick: Served) -> None:
    with quick.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 200)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        assert is_closed(connection)


def test_trailers_count_as_headers(quick: Served) -> None:
    with quick.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a:\r\n" * 200)
        assert is_closed(connection)


@pytest.mark.parametrize("endless", [b"0\r\nname: ", b"1\r\ny\r\n0\r\nname: ", b"1;name="])
def test_an_endless_trailer_or_chunk_extension_ends_the_connection(endless: bytes) -> None:
    """The parser keeps a trailer in memory until it is complete."""
    with serving(answering(), limits=Limits()) as served, served.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + endless)
        sent = 0
        try:
            while sent < 64 * MIB:
                connection.sendall(bytes(b"v" * MIB))
                sent += MIB
        except ConnectionError:
            pass
        assert sent < 64 * MIB


def test_a_body_in_small_chunks_is_no_long_head(quick: Served) -> None:
    """Most of what arrives is neither body nor head."""
    chunks = b"1\r\ny\r\n" * QUICK.head_bytes
    with quick.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        connection.sendall(b"0\r\n\r\n" + GET)
        wait_until(lambda: connection.recv(65536, socket.MSG_PEEK).count(b"HTTP/1.1 200") == 2, "2 answers")


def test_a_few_requests_at_once_are_answered_in_order_and_many_are_refused(quick: Served) -> None:
    with quick.connect() as connection:
        connection.sendall(GET * 4)
        wait_until(lambda: connection.recv(65536, socket.MSG_PEEK).count(b"HTTP/1.1 200") == 4, "4 answers")
    with quick.connect() as connection:
        connection.sendall(GET * 1000)
        assert is_closed(connection)


def test_a_long_head_is_refused_although_each_header_is_short() -> None:
    limits = Limits(headers=1 << 20)
    with serving(answering(), limits=limits) as served, served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < MIB:
                connection.sendall(b"name: value\r\n" * 10)
                sent += 130
        except ConnectionError:
            pass
        assert sent < MIB


@pytest.mark.parametrize("long", [b"GET /%s HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nname: %s\r\n\r\n"])
def test_a_long_head_is_refused_although_it_arrives_at_once(quick: Served, long: bytes) -> None:
    for size, status in ((QUICK.head_bytes - 100, b"200"), (QUICK.head_bytes + 1, b"400")):
        with quick.connect() as connection:
            connection.sendall(long % (b"v" * size))
            assert connection.recv(12) == b"HTTP/1.1 " + status


def test_a_body_before_a_head_is_not_counted_as_head(quick: Served) -> None:
    """The next request's first bytes may arrive together with a body."""
    post = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % QUICK.head_bytes
    with quick.connect() as connection:
        connection.sendall(post + bytes(QUICK.head_bytes) + GET[:-2])
        connection.sendall(GET[-2:])
        wait_until(lambda: connection.recv(65536, socket.MSG_PEEK).count(b"HTTP/1.1 200") == 2, "2 answers")


def test_at_the_bound_new_connections_replace_those_of_clients_without_a_key() -> None:
    with serving(answering(), limits=Limits(connections=4)) as served, served.connect() as known:
        known.sendall(KNOWN)
        assert known.recv(65536)
        silent = [served.connect() for _ in range(10)]
        assert all(is_closed(connection) for connection in silent[:7])
        wait_until(lambda: served.open_connections == 4, "the bound to be reached")
        known.sendall(KNOWN)
        assert known.recv(65536).startswith(b"HTTP/1.1 200")
        for connection in silent:
            connection.close()
        wait_until(lambda: served.open_connections == 1, "the others to be forgotten")
        assert served.connections.evicted == 7


def test_a_pipelined_request_without_its_body_gives_way_at_the_bound() -> None:
    """The service works on the request before it, and then waits for the client."""
    first, second = b"GET /greedy HTTP/1.1\r\n\r\n", b"POST /greedy HTTP/1.1\r\ncontent-length: 9\r\n\r\n"
    with serving(receiving(), limits=Limits(connections=8, linger_s=GUARD_S)) as served:
        greedy = [served.connect() for _ in range(8)]
        for connection in greedy:
            connection.sendall(first + second)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            with served.connect() as consumer:
                consumer.sendall(b"GET /consumer HTTP/1.1\r\n\r\n")
                assert consumer.recv(65536).startswith(b"HTTP/1.1 200")
        assert served.connections.refused == 0
        for connection in greedy:
            connection.close()


@pytest.mark.long
@pytest.mark.parametrize("last", [b"GET /known HTTP/1.1\r\n\r\n", b"GET /known HTTP/1.0\r\n\r\n" + KNOWN])
def test_a_client_that_does_not_read_the_last_response_keeps_no_connection(last: bytes) -> None:
    """The response is shorter than what would make the service wait for the client, so nothing does."""
    limits = Limits(linger_s=0.3, response_timeout_s=0.3)
    with serving(answering(bytes(20_000)), limits=limits, keep_alive_s=1) as served:
        served.shrink_buffers()
        with served.connect() as connection:
            while not served.unsent_bytes:
                answered = served.responses
                connection.sendall(KNOWN)
                wait_until(lambda: served.responses > answered, "the response")  # noqa: B023
            connection.sendall(last)
            wait_until(lambda: served.open_connections == 0, "the connection to be closed")
            wait_until(lambda: served.protocols == 0, "it to be lost")


@pytest.mark.long
def test_a_flood_at_the_bound_leaves_nothing_behind() -> None:
    """Many connections are closed for newer ones while they are being opened."""
    with serving(answering(), limits=Limits(connections=4)) as served:
        for _ in range(20):
            for connection in [served.connect() for _ in range(20)]:
                connection.close()
        wait_until(lambda: served.open_connections == 0, "all to be forgotten")
        wait_until(lambda: served.protocols == 0, "all to be lost")


def test_a_stopped_server_accepts_nothing() -> None:
    with serving(answering()) as served:
        address = served.address
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, GUARD_S)


@pytest.mark.parametrize(
    "framing", [b"content-length: 1\r\n\r\n|y", b"transfer-encoding: chunked\r\n\r\n1\r\ny\r\n|0\r\n\r\n"]
)
def test_a_request_has_arrived_with_the_last_byte_of_its_body(framing: bytes) -> None:
    found: list[bool] = []
    receive_all = receiving()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope["state"][ARRIVED]())
        await receive_all(scope, receive, send)
        found.append(scope["state"][ARRIVED]())

    first, last = (b"POST /known HTTP/1.1\r\nhost: x\r\n" + framing).split(b"|")
    with serving(application) as served, served.connect() as client:
        client.sendall(first)
        wait_until(lambda: bool(found), "the request")
        client.sendall(last)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(first + last)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        wait_until(lambda: len(found) == 4, "both requests")
    assert found == [False, True, True, True]
