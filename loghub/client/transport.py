"""Signed requests over pooled connections, with answers as values and failures as errors.

This module handles all that the adapter `http` needs of HTTP: signature, headers, timeouts and the form of an
error answer. `retry` decides which request is sent again, and `target` the address to which it is sent.

An answer also shows by how much this machine's clock is ahead of the service's. The service stamps
checkpoints with its own time. Compared with the time of this machine, a live consumer looks silent if this
clock is ahead: the service accepts requests that are up to 15 minutes off. So the adapter returns times of
this machine's clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from loghub.client.port import Credentials, Timeouts
from loghub.client.retry import Repeat, Retries, check_sendable, unreachable
from loghub.client.schemas import InfoJson, decode
from loghub.client.target import HttpTarget
from loghub.clock import Clock
from loghub.wire import signing, signing_v4
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException

# The header Date has whole seconds, and an answer takes a while. The difference is rounded to multiples of
# this, so that a checkpoint has the same time in every answer.
STEP_S = 60


def ahead_s(headers: Mapping[str, str], *, now_unix_s: float) -> int:
    """Seconds, a multiple of `STEP_S`; negative if this clock is behind. 0 for an answer without a time (the
    header ``Date``, RFC 9110, 6.6.1)."""
    text = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        service_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError):
        return 0
    return round((now_unix_s - service_s) / STEP_S) * STEP_S


INFO_PATH = "/_loghub/v1/info"
API_VERSION = "0.6.0"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"

_OK = 200  # any other status is an error to every client (docs/sls-protocol.md 1.7)
_CONNECTIONS = 16  # kept per endpoint; more are opened when needed and closed after use
_MAX_QUOTED_CHARS = 200  # enough to recognize the page of a proxy; an error stays one line of a log
_ANY_REGION = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """One API call. ``repeatable``: doing it twice has the same effect as doing it once. ``done_code`` is the
    error that it gets the second time, such as that what it deletes does not exist."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    signed: bool = True
    repeatable: bool = False
    done_code: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer with status 200; header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes


DONE = HttpAnswer(headers={}, body=b"")  # in place of an answer that was lost


class _ErrorBody(msgspec.Struct):
    code: str = msgspec.field(name="errorCode")
    message: str = msgspec.field(name="errorMessage", default="")


class Transport:
    """The connection to one service; safe to use from several threads. ``credentials`` is called again for
    every attempt.

    Calls are signed with version 4 if the credentials have a region, or if the service says that it takes
    version 4, which is requested once (`discover`); otherwise with version 1.
    """

    def __init__(
        self,
        target: HttpTarget,
        *,
        credentials: Callable[[], Credentials],
        user_agent: str,
        clock: Clock,
        timeouts: Timeouts,
    ) -> None:
        self._info: InfoJson | None = None
        self._target = target
        self._credentials = credentials
        self._user_agent = user_agent
        self._clock = clock
        self._retries = Retries(clock=clock, total_s=timeouts.total_s)
        self._pool = _pool(target, timeouts)

    def close(self) -> None:
        """End any pause between two attempts; a connection in use is closed when it returns to the pool."""
        self._retries.close()
        self._pool.clear()

    def send(self, call: HttpCall) -> HttpAnswer:
        """The answer. Raises LogHubError, or EndpointUnreachable after at most three attempts. If an earlier
        attempt, whose answer was lost, has done the call (``done_code``), the answer is `DONE`."""
        repeat = Repeat.ONCE
        if call.repeatable:
            repeat = Repeat.READ if call.method == "GET" else Repeat.IDEMPOTENT
        may_be_done = False

        def attempt(deadline_s: float) -> HttpAnswer:
            nonlocal may_be_done
            try:
                return self._once(call, deadline_s)
            except EndpointUnreachable as error:
                may_be_done |= not error.definite
                raise
            except LogHubError as error:
                if may_be_done and error.code == call.done_code:
                    return DONE
                may_be_done |= error.status >= 500 and error.code != Code.SERVER_BUSY
                raise

        return self._retries.run(attempt, repeat)

    def discover(self) -> InfoJson:
        """What the embedded service says of itself; an empty answer for any other service. Raises the errors
        of `send`."""
        return self._retries.run(self._discover, Repeat.READ)

    def forget(self) -> None:
        """Ask the service again what it says of itself: it may be another version now."""
        self._info = None

    def _discover(self, deadline_s: float) -> InfoJson:
        if self._info is None:
            call = HttpCall(method="GET", path=INFO_PATH, signed=False)
            try:
                self._info = decode(self._once(call, deadline_s).body, InfoJson)
            except LogHubError as error:
                if error.status >= 500:  # a failure does not show which service this is
                    raise
                self._info = InfoJson()
        return self._info

    def _takes_v4(self, deadline_s: float) -> bool:
        try:
            return "v4" in self._discover(deadline_s).signatures
        except LogHubError:
            return False  # every service takes version 1; the next call requests the version again
        except EndpointUnreachable as error:  # nothing of the call itself was sent
            raise EndpointUnreachable(error.endpoint, error.reason, definite=True) from error.__cause__

    def _once(self, call: HttpCall, deadline_s: float) -> HttpAnswer:
        path = quote(call.path, safe="/")
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        headers = self._headers(call, path, deadline_s)
        try:
            response = self._pool.urlopen(
                call.method,
                self._target.url + path + query,
                body=call.body or None,
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            body = self._retries.read(response, deadline_s)
        except HTTPError as error:
            raise unreachable(self._target.endpoint, error) from error
        if response.status != _OK:
            raise _error(response.status, response.headers.get("x-log-requestid", ""), body)
        return HttpAnswer(headers={k.lower(): v for k, v in response.headers.items()}, body=body)

    def _headers(self, call: HttpCall, path: str, deadline_s: float) -> dict[str, str]:
        headers = {
            "Host": self._target.host_header,
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            "Date": formatdate(self._clock.unix_s(), usegmt=True),
            "x-log-apiversion": API_VERSION,
            "x-log-bodyrawsize": str(len(call.body)),
            **call.headers,
        }
        if not call.body and call.method in ("POST", "PUT"):
            headers["Content-Length"] = "0"
        if call.signed:
            key = self._key()
            check_sendable(key)
            if key.security_token:
                headers["x-acs-security-token"] = key.security_token
            if region := key.region or (_ANY_REGION if self._takes_v4(deadline_s) else ""):
                self._sign_v4(call, path, headers, key, region)
            else:
                self._sign_v1(call, path, headers, key)
        return headers

    def _key(self) -> Credentials:
        """The present key. The caller provides it, for example from files that are being replaced or from a
        service that issues keys. If it is not available, this request fails and nothing else. Raises
        `LogHubError` ``Unauthorized``."""
        try:
            return self._credentials()
        except LogHubException:
            raise
        except Exception as error:
            message = f"the access key cannot be read: {type(error).__name__}: {error}"
            raise LogHubError(Code.UNAUTHORIZED, HTTPStatus.UNAUTHORIZED, message) from error

    def _sign_v4(
        self, call: HttpCall, path: str, headers: dict[str, str], key: Credentials, region: str
    ) -> None:
        time = signing_v4.time_text(self._clock.unix_s())
        headers[signing_v4.TIME_HEADER] = time
        headers[signing_v4.HASH_HEADER] = signing_v4.content_sha256(call.body)
        text = signing_v4.string_to_sign(
            method=call.method, path=path, query=call.query.items(), headers=headers, region=region
        )
        headers["Authorization"] = signing_v4.authorization(
            text,
            access_key_id=key.access_key_id,
            secret=key.access_key_secret,
            date=signing_v4.date_of(time),
            region=region,
        )

    def _sign_v1(self, call: HttpCall, path: str, headers: dict[str, str], key: Credentials) -> None:
        headers["x-log-signaturemethod"] = signing.METHOD
        if call.body:
            headers["Content-MD5"] = signing.content_md5(call.body)
        text = signing.string_to_sign(
            method=call.method, path=path, query=call.query.items(), headers=headers
        )
        headers["Authorization"] = signing.authorization(
            text, access_key_id=key.access_key_id, secret=key.access_key_secret
        )


def _pool(target: HttpTarget, timeouts: Timeouts) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "maxsize": _CONNECTIONS,
        "block": False,
        "timeout": urllib3.Timeout(connect=timeouts.connect_s, read=timeouts.read_s),
        "cert_reqs": "CERT_REQUIRED",
    }
    if target.server_name:
        options["server_hostname"] = target.server_name
    if target.proxy:
        return urllib3.ProxyManager(target.proxy, **options)
    return urllib3.PoolManager(**options)


def _error(status: int, request_id: str, body: bytes) -> LogHubError:
    """The error of an answer that is not 200; without JSON that has an errorCode it is a BadResponse."""
    try:
        error_body = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deeply
        start = body[:_MAX_QUOTED_CHARS].decode("utf-8", "replace")
        return LogHubError(Code.BAD_RESPONSE, status, f"this is not an answer of SLS: {start!r}", request_id)
    return LogHubError(error_body.code, status, error_body.message, request_id)
