"""The client port over the vendor's SDK, whose makers run its requests against the cloud service.

The operator uses it on a real SLS endpoint, and the contract suite, which runs over every adapter, uses
it as a second implementation. This is the only module that knows the SDK. Import it only where it is
needed, since the SDK adds 0.05 s and 6 MiB to the operator's own packages.

The SDK forms, signs and reads the requests. Retries, the time limit of a call and the errors are ours,
the same as over `http`: by default the SDK sends every request up to ten times a second apart,
including PutLogs, follows redirects, and reads an answer of any length. It has no extensions of the
embedded service. It puts the project before any host name, which an IP address does not allow, so it
reaches an address through the embedded service's forward-proxy mode (docs/sls-protocol.md 1.1).

One client serves several threads: the SDK's client keeps no state of a request, the session's pool is
locked, and its only shared mutable state, the cookie jar, accepts no cookies. To sign, the SDK sets the
process's LC_TIME to "C" each time, which is the value that it has unless the program changes it.
"""

import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NoReturn, TypeVar

import aliyun.log
import aliyun.log.credentials
import msgspec
import requests
from aliyun.log.compress import Compressor, CompressType
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError, ProxyError

from loghub.client import service_clock
from loghub.client.http import user_agent
from loghub.client.paging import PAGE, all_pages
from loghub.client.port import (
    CheckpointInfo,
    Credentials,
    GroupInfo,
    GroupStatus,
    PackedPull,
    Position,
    Pulled,
    ShardInfo,
)
from loghub.client.retry import Repeat, Retries, check_sendable, unreachable
from loghub.client.schemas import CheckpointJson, GroupJson, ShardJson
from loghub.client.split_key import split_key
from loghub.client.target import BadEndpoint, parse, split_endpoint
from loghub.client.transport import PROTOBUF, Timeouts
from loghub.client.validation import check_count, check_group, check_logstore, exists
from loghub.clock import Clock, SystemClock
from loghub.wire import hosts
from loghub.wire.errors import Code, EndpointUnreachable, ExtensionMissing, LogHubError

T = TypeVar("T")

# The SDK's own type stubs omit what a subclass needs.
_sdk: Any = aliyun.log
LogException: Any = _sdk.LogException

_SOURCE = "loghub"  # without a source the SDK determines this machine's address
_CONNECTIONS = 16  # kept per client; more are opened when needed and closed after use
_MAX_QUOTED_CHARS = 200
_NO_EXTENSIONS = (
    "the vendor SDK does not support the extensions of the embedded service; use the http adapter"
)
# The SDK's classes raise these while they parse an answer of another form.
_UNREADABLE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


class AliyunLogHub:
    """One endpoint and one project; safe to use from several threads.

    The parameters are those of `http.HttpLogHub`. Raises target.BadEndpoint for an endpoint that is
    invalid or that the SDK cannot reach.
    """

    def __init__(
        self,
        endpoint: str,
        project: str,
        *,
        credentials: Credentials | Callable[[], Credentials],
        agent: str = "",
        clock: Clock | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.project = project
        limits = timeouts or Timeouts()
        self._retries = Retries(clock=clock or SystemClock(), total_s=limits.total_s)
        get_credentials = credentials if callable(credentials) else lambda: credentials
        self._sdk: Any = _Client(endpoint, project, get_credentials, retries=self._retries)
        self._sdk.set_user_agent(user_agent(agent))
        self._sdk.timeout = (limits.connect_s, limits.read_s)

    def close(self) -> None:
        """End any pause between two attempts, and close the idle connections."""
        self._retries.close()
        self._sdk.close()

    def _call(self, call: Callable[..., Any], *args: Any, repeat: Repeat, **kwargs: Any) -> Any:
        """Call one method of the SDK's client, as many times as ``repeat`` permits."""
        bound = partial(call, self.project, *args, **kwargs)
        return self._retries.run(lambda deadline_s: self._sdk.once(bound, deadline_s), repeat)

    def _read(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._call(call, *args, repeat=Repeat.READ, **kwargs)

    def _write(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._call(call, *args, repeat=Repeat.ONCE, **kwargs)

    def _set(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._call(call, *args, repeat=Repeat.IDEMPOTENT, **kwargs)

    # --- project and logstores ---------------------------------------------------------------

    def create_project(self, description: str = "") -> None:
        self._write(self._sdk.create_project, description)

    def project_exists(self) -> bool:
        return exists(lambda: self._read(self._sdk.get_project), Code.PROJECT_NOT_EXIST)

    def delete_project(self) -> None:
        self._write(self._sdk.delete_project)

    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None:
        check_logstore(logstore)
        self._write(self._sdk.create_logstore, logstore, ttl=ttl_days, shard_count=shards, auto_split=False)

    def logstore_exists(self, logstore: str) -> bool:
        check_logstore(logstore)
        return exists(lambda: self._read(self._sdk.get_logstore, logstore), Code.LOG_STORE_NOT_EXIST)

    def list_logstores(self) -> tuple[str, ...]:
        def page(offset: int) -> tuple[list[str], int]:
            answer = self._read(self._sdk.list_logstore, offset=offset, size=PAGE)
            return list(answer.get_logstores()), int(answer.get_logstores_total())

        return all_pages(page)

    def delete_logstore(self, logstore: str) -> None:
        check_logstore(logstore)
        self._write(self._sdk.delete_logstore, logstore)

    # --- shards ------------------------------------------------------------------------------

    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        return _shards(self._read(self._sdk.list_shards, logstore))

    def split_shard(self, logstore: str, shard: int, *, key: str | None = None) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        at = split_key(self.list_shards(logstore), shard) if key is None else key
        return _shards(self._write(self._sdk.split_shard, logstore, shard, at))

    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        return _shards(self._write(self._sdk.merge_shard, logstore, shard))

    # --- data --------------------------------------------------------------------------------

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        check_logstore(logstore)
        self._write(self._sdk.put_bytes, logstore, log_group, hash_key)

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        check_logstore(logstore)
        return _converted(self._read(self._sdk.get_cursor, logstore, shard, position).get_cursor(), str)

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        check_logstore(logstore)
        answer = self._read(self._sdk.get_cursor_time, logstore, shard, cursor)
        return _converted(answer.get_cursor_time(), int)

    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled:
        check_logstore(logstore)
        check_count(count)
        answer = self._read(self._sdk.pull_logs, logstore, shard, cursor, count=count, end_cursor=end_cursor)
        groups = answer.get_loggroup_count()
        next_cursor = answer.get_next_cursor() or cursor
        unchanged = groups == 0 and next_cursor == cursor and end_cursor is None
        at_end = str(answer.get_header("x-log-end-of-cursor") or "") == "1"
        return Pulled(
            body=_body(answer), count=groups, next_cursor=next_cursor, end_of_shard=at_end or unchanged
        )

    def pull_packed(self, logstore: str, shard: int, *, cursor: str, count: int) -> PackedPull:
        return PackedPull.of(self.pull_logs(logstore, shard, cursor=cursor, count=count))

    # --- consumer groups ---------------------------------------------------------------------

    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]:
        check_logstore(logstore)
        answer = self._read(self._sdk.list_consumer_group, logstore)
        return tuple(group.info() for group in _converted(answer.resp, list[GroupJson]))

    def create_group(self, logstore: str, group: GroupInfo) -> None:
        check_logstore(logstore)
        check_group(group.name)
        self._write(self._sdk.create_consumer_group, logstore, group.name, group.timeout_s, group.order)

    def update_group(self, logstore: str, group: GroupInfo) -> None:
        check_logstore(logstore)
        check_group(group.name)
        settings = {"timeout": group.timeout_s, "in_order": group.order}
        self._set(self._sdk.update_consumer_group, logstore, group.name, **settings)

    def delete_group(self, logstore: str, group: str) -> None:
        check_logstore(logstore)
        check_group(group)
        self._write(self._sdk.delete_consumer_group, logstore, group)

    def heartbeat(
        self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]
    ) -> tuple[int, ...]:
        check_logstore(logstore)
        check_group(group)
        answer = self._set(self._sdk.heart_beat, logstore, group, consumer, list(held))
        return tuple(_converted(answer.get_shards(), list[int]))

    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]:
        check_logstore(logstore)
        check_group(group)
        answer = self._read(self._sdk.get_check_point, logstore, group, -1 if shard is None else shard)
        entries = _converted(answer.get_consumer_group_check_points(), list[CheckpointJson])
        ahead_s = service_clock.ahead_s(answer.get_all_headers(), now_unix_s=time.time())
        return tuple(entry.info(ahead_s=ahead_s) for entry in entries)

    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None:
        check_logstore(logstore)
        check_group(group)
        fields = {"consumer": consumer, "force_success": force}
        self._set(self._sdk.update_check_point, logstore, group, shard, cursor, **fields)

    # --- extensions --------------------------------------------------------------------------

    def has_extensions(self) -> bool:
        """Always False: the SDK cannot request the extensions, whatever service answers."""
        return False

    def group_status(self, logstore: str, group: str) -> GroupStatus:  # noqa: ARG002 - the port's
        raise ExtensionMissing(_NO_EXTENSIONS)

    def leave(self, logstore: str, group: str, *, consumer: str) -> None:  # noqa: ARG002 - the port's
        raise ExtensionMissing(_NO_EXTENSIONS)


class _Credentials:
    """The SDK's credentials provider over our callable; every call returns current credentials."""

    def __init__(self, get_credentials: Callable[[], Credentials]) -> None:
        self._get_credentials = get_credentials

    def get_credentials(self) -> Any:
        key = self._get_credentials()
        check_sendable(key)
        return aliyun.log.credentials.Credentials(
            key.access_key_id, key.access_key_secret, key.security_token or None
        )


class _Client(_sdk.LogClient):  # type: ignore[misc]
    """The SDK's client with our limits, our errors and its own session."""

    def __init__(
        self, endpoint: str, project: str, get_credentials: Callable[[], Credentials], *, retries: Retries
    ) -> None:
        scheme, host, port = split_endpoint(endpoint)
        self._is_direct = hosts.is_direct(host)
        if self._is_direct and (scheme != "http" or ":" in host):
            raise BadEndpoint(f"{endpoint!r}: the vendor SDK supports only IPv4 and http for an IP address")
        super().__init__(
            f"{scheme}://{host}:{port}", source=_SOURCE, credentials_provider=_Credentials(get_credentials)
        )
        self._configured_endpoint = endpoint
        self._retries = retries
        self._try = threading.local()  # .deadline_s of the attempt that runs in this thread
        through = f"http://{host}:{port}" if self._is_direct else parse(endpoint, project).proxy
        self._prepare_session({scheme: through} if through else {})

    def _prepare_session(self, proxies: dict[str, str]) -> None:
        # Set per client: the environment applies to the whole process, a .netrc would replace the
        # signature, and a proxy would be used for this machine too.
        self._session.trust_env = False
        self._session.proxies = proxies
        # The authorities that OpenSSL trusts, as over `http`; by default requests uses its own list.
        paths = ssl.get_default_verify_paths()
        self._session.verify = paths.cafile or paths.capath or True
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))

    def close(self) -> None:
        self._session.close()

    def once(self, call: Callable[[], T], deadline_s: float) -> T:
        """One attempt. The SDK's error becomes ours; an answer that the SDK cannot read is a BadResponse."""
        self._try.deadline_s = deadline_s
        try:
            return call()
        except LogException as error:
            _raise(error)
        except _UNREADABLE as error:
            raise _unreadable(error) from None

    def put_bytes(self, project: str, logstore: str, log_group: bytes, hash_key: str | None) -> None:
        """Like the SDK's put_log_raw, which accepts neither bytes nor a key."""
        headers = {
            "Content-Type": PROTOBUF,
            "x-log-bodyrawsize": str(len(log_group)),
            "x-log-compresstype": str(CompressType.LZ4),
        }
        route, params = ("lb", {}) if hash_key is None else ("route", {"key": hash_key})
        body = Compressor.compress(log_group, CompressType.LZ4)
        self._send("POST", project, body, f"/logstores/{logstore}/shards/{route}", params, headers)

    def _getHttpResponse(self, *request: Any) -> Any:  # noqa: N802 - the SDK's name
        """The SDK retries on a LogException; an error of ours passes through its loop."""
        method, url, params, body, headers = request
        headers["User-Agent"] = self._user_agent
        try:
            answer = self._session.request(
                method,
                url,
                params=params,
                data=body,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            )
            content = self._retries.read(answer.raw, self._try.deadline_s, decode=True)
        except (requests.RequestException, HTTPError) as error:
            self._raise_unreachable(error)
        return answer.status_code, content, answer.headers

    def _raise_unreachable(self, error: Exception) -> NoReturn:
        cause = error.args[0] if isinstance(error, requests.RequestException) and error.args else error
        if isinstance(cause, MaxRetryError) and cause.reason is not None:
            cause = cause.reason
        if self._is_direct and isinstance(cause, ProxyError):  # the proxy is the service itself
            cause = cause.original_error
        if isinstance(cause, OSError | HTTPException) and not isinstance(cause, requests.RequestException):
            cause = ProtocolError(str(cause) or type(cause).__name__, cause)
        if isinstance(cause, HTTPError):
            raise unreachable(self._configured_endpoint, cause) from cause
        # If requests rejects the request before sending it, it raises a ValueError that may quote a header.
        rejected = isinstance(error, ValueError)
        raise EndpointUnreachable(
            self._configured_endpoint, type(error).__name__, definite=rejected
        ) from None

    def _sendRequest(self, *request: Any, **options: Any) -> Any:  # noqa: N802 - the SDK's name
        try:
            return super()._sendRequest(*request, **options)
        except LogException as error:
            _raise(error)


def _raise(error: Any) -> NoReturn:
    """Raise our error without the SDK's as its cause, because that contains the whole answer."""
    code, message = error.get_error_code(), str(error.get_error_message())
    if code in ("LogRequestError", "BadResponse"):
        code, message = Code.BAD_RESPONSE, f"this is not an answer of SLS: {message[:_MAX_QUOTED_CHARS]}"
    raise LogHubError(code, error.get_resp_status(), message, error.get_request_id()) from None


def _unreadable(error: Exception) -> LogHubError:
    quoted = repr(error)[:_MAX_QUOTED_CHARS]
    return LogHubError(Code.BAD_RESPONSE, 200, f"this is not an answer of SLS: {quoted}")


def _converted(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _unreadable(error) from None


def _shards(answer: Any) -> tuple[ShardInfo, ...]:
    return tuple(shard.info() for shard in _converted(answer.get_shards_info(), list[ShardJson]))


def _body(answer: Any) -> bytes:
    """The pulled list as it arrived; the SDK keeps these bytes until the parsed list is requested."""
    raw = getattr(answer, "_raw_uncompressed_body", None)
    if raw is None and answer.get_loggroup_count():
        raw = answer.get_loggroup_list().SerializeToString()
    return bytes(raw or b"")
