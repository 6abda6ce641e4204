"""One signed request after another over pooled connections; answers as values, failures as errors.

What for: everything about HTTP that the adapter `http` needs, once: signature, headers, time
limits, which failure may be tried again, the form of an error answer. What it must not know:
which API is called. Read next: `target` (where to), `loghub.wire.signing`, `http`.

A request is tried again only when that cannot do it twice: when it surely was not done
(no connection, ServerBusy), or when it is repeatable, i.e. doing it twice is doing it once
(docs/sls-protocol.md 2.4 shows what the other clients do: Python repeats even PutLogs).
"""

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as TooSlow

from loghub.client.port import Credentials
from loghub.client.target import Target
from loghub.clock import Clock
from loghub.wire import signing
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError

API_VERSION = "0.6.0"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"

_OK = 200  # any other status is an error to every client (docs/sls-protocol.md 1.7)
_CONNECTIONS = 16  # kept per endpoint; more are opened when needed, and then dropped
_MAX_ANSWER_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_MAX_QUOTED_CHARS = 200
_TRIES = 3
_BACKOFF_S = (0.1, 0.5)  # before the second and the third try


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """``total_s`` bounds a call with all its tries: none begins after it, and no body is read on after it.

    It is looked at between two reads, so a call may take ``read_s`` longer. In the head of an answer (64 KiB
    a line, 100 lines at the most) only ``read_s`` counts.
    """

    connect_s: float = 5.0
    read_s: float = 30.0  # between two bytes; the vendor's Java uses 60
    total_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One API call. ``repeatable``: done twice is the same as done once."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    signed: bool = True
    repeatable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A 200; header names in lower case."""

    headers: Mapping[str, str]
    body: bytes


class _ErrorBody(msgspec.Struct):
    code: str = msgspec.field(name="errorCode")
    message: str = msgspec.field(name="errorMessage", default="")


class Transport:
    """Safe to use from several threads. ``credentials`` is asked anew for every try."""

    def __init__(
        self,
        target: Target,
        *,
        credentials: Callable[[], Credentials],
        user_agent: str,
        clock: Clock,
        timeouts: Timeouts,
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._user_agent = user_agent
        self._clock = clock
        self._timeouts = timeouts
        self._pool = _pool(target, timeouts)
        self._closed = threading.Event()

    def close(self) -> None:
        """Ends a pause between two tries; connections in use are dropped when they come back."""
        self._closed.set()
        self._pool.clear()

    def send(self, call: Call) -> Answer:
        """The answer, or LogHubError, or EndpointUnreachable after at most three tries."""
        began = self._clock.monotonic_s()
        for pause_s in (*_BACKOFF_S, None):
            try:
                return self._once(call, deadline_s=began + self._timeouts.total_s)
            except (LogHubError, EndpointUnreachable) as error:
                spent = self._clock.monotonic_s() - began
                if pause_s is None or not _may_repeat(call, error) or spent > self._timeouts.total_s:
                    raise
                if self._closed.wait(pause_s):
                    raise
        raise AssertionError("the last try returns or raises")

    def _once(self, call: Call, *, deadline_s: float) -> Answer:
        path = quote(call.path, safe="/")
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        try:
            response = self._pool.urlopen(
                call.method,
                self._target.url + path + query,
                body=call.body or None,
                headers=self._headers(call, path),
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            body = self._read(response, deadline_s)
        except HTTPError as error:
            raise self._unreachable(error) from error
        if response.status != _OK:
            raise _error(response.status, response.headers.get("x-log-requestid", ""), body)
        return Answer(headers={k.lower(): v for k, v in response.headers.items()}, body=body)

    def _read(self, response: urllib3.BaseHTTPResponse, deadline_s: float) -> bytes:
        """The whole body; the connection goes back to the pool, or is closed if it is too much or too slow.

        Each piece is what has come by then, so that a trickle meets the deadline. Down to the empty
        one: only there does urllib3 notice that the body was cut.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_ANSWER_BYTES:
                response.close()
                words = f"more than {_MAX_ANSWER_BYTES} bytes"
                raise LogHubError(Code.BAD_RESPONSE, response.status, words)
            if response.length_remaining != 0 and self._clock.monotonic_s() > deadline_s:
                response.close()
                raise TooSlow(f"timed out: the answer was not whole after {self._timeouts.total_s:g} s")
        response.release_conn()
        return b"".join(pieces)

    def _headers(self, call: Call, path: str) -> dict[str, str]:
        headers = {
            "Host": self._target.host_header,
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            "Date": formatdate(self._clock.unix_s(), usegmt=True),
            "x-log-apiversion": API_VERSION,
            "x-log-bodyrawsize": str(len(call.body)),
            **call.headers,
        }
        if call.body:
            headers["Content-MD5"] = signing.content_md5(call.body)
        elif call.method in ("POST", "PUT"):
            headers["Content-Length"] = "0"
        if call.signed:
            self._sign(call, path, headers)
        return headers

    def _sign(self, call: Call, path: str, headers: dict[str, str]) -> None:
        key = self._credentials()
        _check_sendable(key)
        headers["x-log-signaturemethod"] = signing.METHOD
        if key.security_token:
            headers["x-acs-security-token"] = key.security_token
        text = signing.string_to_sign(
            method=call.method, path=path, query=call.query.items(), headers=headers
        )
        headers["Authorization"] = signing.authorization(
            text, access_key_id=key.access_key_id, secret=key.access_key_secret
        )

    def _unreachable(self, error: HTTPError) -> EndpointUnreachable:
        return EndpointUnreachable(self._target.endpoint, _words(error), definite=_never_sent(error))


def _check_sendable(key: Credentials) -> None:
    """What no header can carry would be quoted in the error of who refuses it, and so reach a log."""
    for name, part in (("access key id", key.access_key_id), ("security token", key.security_token)):
        if not (part.isascii() and part.isprintable()):
            words = f"the {name} has a character that no header can carry, a line's end perhaps"
            raise LogHubError(Code.UNAUTHORIZED, 401, words)


def _pool(target: Target, timeouts: Timeouts) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "maxsize": _CONNECTIONS,
        "block": False,
        "timeout": urllib3.Timeout(connect=timeouts.connect_s, read=timeouts.read_s),
        "cert_reqs": "CERT_REQUIRED",
    }
    if target.proxy:
        return urllib3.ProxyManager(target.proxy, **options)
    return urllib3.PoolManager(**options)


def _may_repeat(call: Call, error: LogHubError | EndpointUnreachable) -> bool:
    if isinstance(error, EndpointUnreachable):
        # What was given up as too slow may still arrive, after a later heartbeat or checkpoint of
        # this caller: that one must know, so it is the one who asks again.
        too_slow = isinstance(error.__cause__, TooSlow)
        return error.definite or (call.repeatable and not (too_slow and call.method != "GET"))
    if error.code == Code.SERVER_BUSY:
        return True
    return call.repeatable and error.status >= 500


def _error(status: int, request_id: str, body: bytes) -> LogHubError:
    """An error answer; one that is not JSON with errorCode did not come from SLS."""
    try:
        told = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.DecodeError:
        start = body[:_MAX_QUOTED_CHARS].decode("utf-8", "replace")
        return LogHubError(Code.BAD_RESPONSE, status, f"the answer is not one of SLS: {start!r}", request_id)
    return LogHubError(told.code, status, told.message, request_id)


def _never_sent(error: HTTPError) -> bool:
    """Whether no byte of the request can have reached the service."""
    cause: BaseException | None = error
    if isinstance(error, MaxRetryError):
        cause = error.reason
    if isinstance(cause, ProxyError):
        cause = cause.original_error
    if isinstance(cause, SSLError):  # in the handshake; a later one may follow a sent request
        return any(isinstance(reason, ssl.SSLCertVerificationError) for reason in cause.args)
    return isinstance(cause, NewConnectionError | ConnectTimeoutError)


def _words(error: HTTPError) -> str:
    """The error in one line, without the object addresses that urllib3 puts in front."""
    text = str(error)
    return text.rpartition(">: ")[2] or type(error).__name__
