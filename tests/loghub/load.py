"""Loads a service with prepared requests over many connections, at as little cost as possible.

The requests are signed and serialized before the measurement, and of an answer only its length is
read, so that the client takes little of the processor that it shares with the service.
"""

import os
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from loghub.wire import compression
from loghub.wire.compression import Compression
from tests.loghub_service.rawclient import signed_headers
from tests.support import ServiceProcess

PROJECT, LOGSTORE = "demo", "access"
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_CHUNK_BYTES = 1 << 20
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
GUARD_S = 120.0


@dataclass(slots=True)
class Cost:
    """What the service used in a measurement: seconds on the clock and of its CPU time."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


def serialized(
    service: ServiceProcess,
    method: str,
    path: str,
    query: dict[str, str] | None = None,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> bytes:
    """A signed request as it goes over the wire."""
    host = {"Host": f"{PROJECT}.{service.host}"}
    sent = host | signed_headers(
        method, path, query or {}, body=body, headers=headers or {}, key=service.credentials
    )
    target = path + ("?" + urlencode(query, quote_via=quote) if query else "")
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join(lines).encode() + _HEAD_END + body


def put_request(service: ServiceProcess, group: bytes, *, logstore: str = LOGSTORE) -> bytes:
    """PutLogs of one log group, compressed with LZ4 as every client does."""
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-bodyrawsize": str(len(group)),
        "x-log-compresstype": "lz4",
    }
    body = compression.compress(group, Compression.LZ4)
    return serialized(service, "POST", f"/logstores/{logstore}/shards/lb", body=body, headers=headers)


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far, all of its threads, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


@contextmanager
def measured(service: ServiceProcess) -> Iterator[Cost]:
    cost = Cost()
    begin_s, begin_cpu_s = time.monotonic(), cpu_s(service.pid)
    yield cost
    cost.wall_s = time.monotonic() - begin_s
    cost.cpu_s = max(cpu_s(service.pid) - begin_cpu_s, _TICK_S)  # few requests may take less


class Connection:
    """One keep-alive connection with at most one request in progress."""

    def __init__(self, service: ServiceProcess) -> None:
        self.socket = socket.create_connection((service.host, service.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = b""  # of the last complete answer
        self._received = bytearray()
        self._expected: int | None = None  # of the whole answer

    def send(self, request: bytes) -> None:
        self._received.clear()
        self._expected = None
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Receive what is there; whether the answer is complete. It must be a 200."""
        received = self._received
        received += self.socket.recv(_CHUNK_BYTES)
        if self._expected is None and (end := received.find(_HEAD_END)) >= 0:
            head = bytes(received[:end])
            assert head.startswith(b"HTTP/1.1 200"), bytes(received[:1000])
            length = head.partition(_LENGTH)[2].partition(b"\r\n")[0]
            self.head, self._expected = head, end + len(_HEAD_END) + int(length)
        return self._expected == len(received)

    def exchange(self, request: bytes) -> bytes:
        """Send one request and wait for its answer; returns the head."""
        self.send(request)
        while not self.receive():
            pass
        return self.head


def run(service: ServiceProcess, requests: list[bytes], *, total: int, in_flight: int) -> Cost:
    """Send ``total`` requests, in turn those of the list, of which ``in_flight`` are always in progress."""
    connections = [Connection(service) for _ in range(min(in_flight, total))]
    with selectors.DefaultSelector() as selector, measured(service) as cost:
        sent = done = 0
        for one in connections:
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.send(requests[sent % len(requests)])
            sent += 1
        while done < total:
            ready = selector.select(GUARD_S)
            assert ready, f"no answer after {done} of {total} requests"
            for key, _ in ready:
                if key.data.receive():
                    done += 1
                    if sent < total:
                        key.data.send(requests[sent % len(requests)])
                        sent += 1
    for one in connections:
        one.socket.close()
    return cost
