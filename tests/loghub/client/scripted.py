"""A server that sends the answers of a script and records the requests.

Tests use it for answers that a healthy service never sends.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loghub.client.transport import INFO_PATH
from tests.support import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. ``hang_up``: none at all, the connection is closed after the request was read.

    ``cut`` closes it in the middle of the body. ``trickle`` sends the body a byte at a time, and each
    only a moment after the one before.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False
    cut: bool = False
    trickle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One request as it was received."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes


HANG_GUARD_S = 120
_TRICKLE_S = 0.02

OK = Reply()
HANG_UP = Reply(hang_up=True)


def reply_json(value: object, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode(), headers={"x-log-requestid": "REQ7"})


def reply_error(code: str, status: int, message: str = "words") -> Reply:
    return reply_json({"errorCode": code, "errorMessage": message}, status)


NO_INFO = reply_error("InvalidMethod", 405)  # a service that is not the embedded one


class ScriptedServer(ThreadingHTTPServer):
    """Sends the replies in order, and repeats the last one.

    The question of a client which service this is (``/_loghub/v1/info``) is not part of the script and not
    recorded: its answer is ``info``. Without it, it is one of the replies.
    """

    daemon_threads = True

    def __init__(self, replies: list[Reply], info: Reply | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.info = info
        self.requests: list[ReceivedRequest] = []
        self.lock = threading.Lock()
        self.speaking = threading.Event()  # clear it to hold every answer back
        self.speaking.set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def await_requests(self, count: int) -> list[ReceivedRequest]:
        """All requests, once so many have come: a client that gives up early may be ahead of this server."""
        wait_until(lambda: len(self.requests) >= count, f"{count} requests")
        return self.requests

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore it: in some tests the client closes the connection early."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def next_reply(self, requests: ReceivedRequest) -> Reply:
        if self.info is not None and requests.target.endswith(INFO_PATH):
            return self.info
        with self.lock:
            self.requests.append(requests)
        self.speaking.wait(HANG_GUARD_S)
        with self.lock:
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.next_reply(
            ReceivedRequest(method=self.command, target=self.path, headers=headers, body=body)
        )
        if reply.hang_up:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        # It adds the present time as Date.
        respond = self.send_response_only if "Date" in reply.headers else self.send_response
        respond(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body) + (10 if reply.cut else 0)))
        self.end_headers()
        self._write_body(reply)
        self.close_connection = reply.cut

    def _write_body(self, reply: Reply) -> None:
        step = 1 if reply.trickle else max(1, len(reply.body))
        for start in range(0, len(reply.body), step):
            self.wfile.write(reply.body[start : start + step])
            if reply.trickle:
                time.sleep(_TRICKLE_S)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - http.server's names


@contextmanager
def scripted(*replies: Reply, info: Reply | None = NO_INFO) -> Iterator[ScriptedServer]:
    """A running server; it is ended at the end."""
    server = ScriptedServer(list(replies), info)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def refused_endpoint() -> str:
    """An address without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
