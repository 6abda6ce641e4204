"""The shared behavior of both adapters over HTTP: retries, time limits and the maximum size of an answer.

A request is sent again only when that cannot do it twice: when the service certainly did not act on it
(no connection, ServerBusy), or when doing it twice has the same effect as doing it once. By default the
vendor's SDK sends every request up to ten times, including PutLogs (docs/sls-protocol.md 2.4).
"""

import ssl
import threading
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

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
from loghub.clock import Clock
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError

T = TypeVar("T")
# Before the second and the third attempt: short, because the whole call has a time limit of seconds.
_BACKOFF_S = (0.1, 0.5)
# As `loggroup.MAX_PULL_BYTES`. Answers have 10 MB at most; the bound keeps a broken one from filling memory.
_MAX_BODY_BYTES = 64 << 20
# A read takes about this much, so the deadline is checked often and few calls are made
_PIECE_BYTES = 1 << 20


class Repeat(Enum):
    """The effect of a second request when the outcome of the first is unknown."""

    READ = "it changes nothing"
    IDEMPOTENT = "done twice is the same as done once"
    ONCE = "it would be done twice"


class Retries:
    """At most three attempts of a call within ``total_s``; safe to use from several threads."""

    def __init__(self, *, clock: Clock, total_s: float) -> None:
        self._clock = clock
        self._total_s = total_s
        self._closed = threading.Event()

    def close(self) -> None:
        """End any pause between two attempts: no further attempt begins."""
        self._closed.set()

    def run(self, send: Callable[[float], T], repeat: Repeat) -> T:
        """The result of ``send``, which gets the deadline in monotonic seconds.

        Raises LogHubError or EndpointUnreachable.
        """
        began = self._clock.monotonic_s()
        for pause_s in (*_BACKOFF_S, None):
            try:
                return send(began + self._total_s)
            except (LogHubError, EndpointUnreachable) as error:
                spent = self._clock.monotonic_s() - began
                if pause_s is None or not _may_repeat(repeat, error) or spent > self._total_s:
                    raise
                if self._closed.wait(pause_s):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def read(self, response: urllib3.BaseHTTPResponse, deadline_s: float, *, decode: bool = False) -> bytes:
        """The whole body. The connection returns to the pool; a body that is too long or too slow closes it.

        Each piece is what has arrived so far, so that a slow trickle still reaches the deadline. The
        loop runs to the empty piece, because only there does urllib3 detect a truncated body. Raises
        LogHubError BadResponse for a body that is too long, and urllib3's TimeoutError for a body that
        is too slow.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(_PIECE_BYTES, decode_content=decode):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_BODY_BYTES:
                response.close()
                raise LogHubError(
                    Code.BAD_RESPONSE, response.status, f"the answer has more than {_MAX_BODY_BYTES} bytes"
                )
            if response.length_remaining != 0 and self._clock.monotonic_s() > deadline_s:
                response.close()
                raise TooSlow(f"timed out: the answer was not complete after {self._total_s:g} s")
        response.release_conn()
        return b"".join(pieces)


def check_sendable(key: Credentials) -> None:
    """Raise LogHubError for credentials that no header can carry.

    The HTTP library would quote them in its own error, and so they would reach a log.
    """
    parts = {
        "access key id": key.access_key_id,
        "security token": key.security_token,
        "region": key.region,
    }
    for name, part in parts.items():
        if not (part.isascii() and part.isprintable()):
            message = f"the {name} contains a character that is not allowed in a header, such as a line break"
            raise LogHubError(Code.UNAUTHORIZED, 401, message)


def unreachable(endpoint: str, error: HTTPError) -> EndpointUnreachable:
    """The error for callers. Raise it from ``error``, which `Retries` inspects."""
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    # Without the object address that precedes urllib3's messages.
    reason = str(cause).rpartition(">: ")[2] or type(cause).__name__
    return EndpointUnreachable(endpoint, reason, definite=_is_unsent(cause))


def _may_repeat(repeat: Repeat, error: LogHubError | EndpointUnreachable) -> bool:
    if isinstance(error, EndpointUnreachable):
        # A request that was abandoned as too slow may still arrive, after a later heartbeat or checkpoint
        # of this caller. The caller must know that, so the caller decides whether to send it again.
        too_slow = isinstance(error.__cause__, TooSlow)
        return error.definite or repeat is Repeat.READ or (repeat is Repeat.IDEMPOTENT and not too_slow)
    if error.code == Code.SERVER_BUSY:
        return True
    return repeat is not Repeat.ONCE and error.status >= 500


def _is_unsent(error: BaseException) -> bool:
    """Whether no byte of the request can have reached the service."""
    cause = error.original_error if isinstance(error, ProxyError) else error
    if isinstance(cause, SSLError):  # in the handshake; a later error may follow a sent request
        return any(isinstance(reason, ssl.SSLCertVerificationError) for reason in cause.args)
    return isinstance(cause, NewConnectionError | ConnectTimeoutError)
