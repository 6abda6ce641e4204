"""The port over the vendor SDK: for those who want exactly its requests, and as a second opinion.

What for: the same contract over other people's code; the contract suite runs against both. The
only module that knows the SDK. What it must not know: how our own transport works. Read next:
`port`, docs/sls-protocol.md 1.1 and 4.

Where it differs from `http`: no extensions (the SDK has none), no second try of anything, and
on this machine it goes through the service's forward-proxy mode, since the SDK puts the project
in front of any address. The SDK's own habit of sending everything up to ten times, PutLogs too,
is switched off: a group written twice is worse than an error (docs/decisions/client.md).
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import aliyun.log
import aliyun.log.credentials
import msgspec
import requests
from aliyun.log.compress import Compressor, CompressType
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from loghub.client.checks import check_count, check_group, check_logstore, exists
from loghub.client.http import user_agent
from loghub.client.middle import split_key
from loghub.client.paging import PAGE, all_pages
from loghub.client.port import (
    CheckpointInfo,
    Credentials,
    GroupInfo,
    GroupStatus,
    Position,
    Pulled,
    ShardInfo,
)
from loghub.client.shapes import Checkpoint, Group, Shard
from loghub.client.target import BadEndpoint, split_endpoint
from loghub.client.transport import PROTOBUF, Timeouts
from loghub.wire import hosts
from loghub.wire.errors import Code, EndpointUnreachable, ExtensionMissing, LogHubError

T = TypeVar("T")

# The SDK's own type stubs leave out what a subclass needs.
_sdk: Any = aliyun.log
LogException: Any = _sdk.LogException

_SOURCE = "loghub"  # without one the SDK looks up this machine's address
_NO_EXTENSIONS = "the vendor SDK knows no extensions of the embedded service; use the http adapter"


class AliyunLogHub:
    """One endpoint and one project. The parameters are those of `http.HttpLogHub`."""

    def __init__(
        self,
        endpoint: str,
        project: str,
        *,
        credentials: Credentials | Callable[[], Credentials],
        agent: str = "",
        timeouts: Timeouts | None = None,
    ) -> None:
        self.project = project
        limits = timeouts or Timeouts()
        self._sdk: Any = _Client(endpoint, credentials if callable(credentials) else lambda: credentials)
        self._sdk.set_user_agent(user_agent(agent))
        self._sdk.timeout = (limits.connect_s, limits.read_s)

    def close(self) -> None:
        self._sdk.close()

    # --- project and logstores ---------------------------------------------------------------

    def create_project(self, description: str = "") -> None:
        _told(lambda: self._sdk.create_project(self.project, description))

    def project_exists(self) -> bool:
        return exists(lambda: _told(lambda: self._sdk.get_project(self.project)), Code.PROJECT_NOT_EXIST)

    def delete_project(self) -> None:
        _told(lambda: self._sdk.delete_project(self.project))

    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None:
        check_logstore(logstore)
        _told(
            lambda: self._sdk.create_logstore(
                self.project, logstore, ttl=ttl_days, shard_count=shards, auto_split=False
            )
        )

    def logstore_exists(self, logstore: str) -> bool:
        check_logstore(logstore)
        return exists(
            lambda: _told(lambda: self._sdk.get_logstore(self.project, logstore)), Code.LOG_STORE_NOT_EXIST
        )

    def list_logstores(self) -> tuple[str, ...]:
        def page(offset: int) -> tuple[list[str], int]:
            answer = _told(lambda: self._sdk.list_logstore(self.project, offset=offset, size=PAGE))
            return list(answer.get_logstores()), int(answer.get_logstores_total())

        return all_pages(page)

    def delete_logstore(self, logstore: str) -> None:
        check_logstore(logstore)
        _told(lambda: self._sdk.delete_logstore(self.project, logstore))

    # --- shards ------------------------------------------------------------------------------

    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        return _shards(_told(lambda: self._sdk.list_shards(self.project, logstore)))

    def split_shard(self, logstore: str, shard: int, *, key: str | None = None) -> tuple[ShardInfo, ...]:
        at = split_key(self.list_shards(logstore), shard) if key is None else key
        return _shards(_told(lambda: self._sdk.split_shard(self.project, logstore, shard, at)))

    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        return _shards(_told(lambda: self._sdk.merge_shard(self.project, logstore, shard)))

    # --- data --------------------------------------------------------------------------------

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        check_logstore(logstore)
        _told(lambda: self._sdk.put_bytes(self.project, logstore, log_group, hash_key))

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        check_logstore(logstore)
        answer = _told(lambda: self._sdk.get_cursor(self.project, logstore, shard, position))
        return str(answer.get_cursor())

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        check_logstore(logstore)
        answer = _told(lambda: self._sdk.get_cursor_time(self.project, logstore, shard, cursor))
        return int(answer.get_cursor_time())

    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled:
        check_logstore(logstore)
        check_count(count)
        answer = _told(
            lambda: self._sdk.pull_logs(
                self.project, logstore, shard, cursor, count=count, end_cursor=end_cursor
            )
        )
        groups = answer.get_loggroup_count()
        next_cursor = answer.get_next_cursor() or cursor
        unchanged = groups == 0 and next_cursor == cursor and end_cursor is None
        told = str(answer.get_header("x-log-end-of-cursor") or "") == "1"
        return Pulled(
            body=_body(answer), count=groups, next_cursor=next_cursor, end_of_shard=told or unchanged
        )

    # --- consumer groups ---------------------------------------------------------------------

    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]:
        check_logstore(logstore)
        answer = _told(lambda: self._sdk.list_consumer_group(self.project, logstore))
        return tuple(group.info() for group in _converted(answer.resp, list[Group]))

    def create_group(self, logstore: str, group: GroupInfo) -> None:
        check_logstore(logstore)
        check_group(group.name)
        _told(
            lambda: self._sdk.create_consumer_group(
                self.project, logstore, group.name, group.timeout_s, group.order
            )
        )

    def update_group(self, logstore: str, group: GroupInfo) -> None:
        check_logstore(logstore)
        check_group(group.name)
        _told(
            lambda: self._sdk.update_consumer_group(
                self.project, logstore, group.name, timeout=group.timeout_s, in_order=group.order
            )
        )

    def delete_group(self, logstore: str, group: str) -> None:
        check_logstore(logstore)
        check_group(group)
        _told(lambda: self._sdk.delete_consumer_group(self.project, logstore, group))

    def heartbeat(
        self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]
    ) -> tuple[int, ...]:
        check_logstore(logstore)
        check_group(group)
        answer = _told(lambda: self._sdk.heart_beat(self.project, logstore, group, consumer, list(held)))
        return tuple(_converted(answer.get_shards(), list[int]))

    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]:
        check_logstore(logstore)
        check_group(group)
        wanted = -1 if shard is None else shard
        answer = _told(lambda: self._sdk.get_check_point(self.project, logstore, group, wanted))
        found = _converted(answer.get_consumer_group_check_points(), list[Checkpoint])
        return tuple(entry.info() for entry in found)

    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None:
        check_logstore(logstore)
        check_group(group)
        _told(
            lambda: self._sdk.update_check_point(
                self.project, logstore, group, shard, cursor, consumer=consumer, force_success=force
            )
        )

    # --- extensions --------------------------------------------------------------------------

    def has_extensions(self) -> bool:
        """Never: the SDK cannot ask for them, whatever answers."""
        return False

    def group_status(self, logstore: str, group: str) -> GroupStatus:  # noqa: ARG002 - the port's
        raise ExtensionMissing(_NO_EXTENSIONS)

    def leave(self, logstore: str, group: str, *, consumer: str) -> None:  # noqa: ARG002 - the port's
        raise ExtensionMissing(_NO_EXTENSIONS)


class _Credentials:
    """The SDK's provider over ours; one value is its provider and its credentials."""

    def __init__(self, ask: Callable[[], Credentials]) -> None:
        self._ask = ask

    def get_credentials(self) -> Any:
        key = self._ask()
        return aliyun.log.credentials.Credentials(
            key.access_key_id, key.access_key_secret, key.security_token or None
        )


class _Client(_sdk.LogClient):  # type: ignore[misc]
    """The SDK's client with our limits: one try, our errors, a proxy of its own."""

    def __init__(self, endpoint: str, ask: Callable[[], Credentials]) -> None:
        scheme, host, port = split_endpoint(endpoint)
        super().__init__(
            f"{scheme}://{host}:{port}",
            source=_SOURCE,
            credentials_provider=_Credentials(ask),
        )
        self._told_endpoint = endpoint
        if hosts.is_direct(host):
            if scheme != "http":
                raise BadEndpoint(f"{endpoint!r}: the vendor SDK reaches an address over http only")
            # Per client, not by HTTP_PROXY: the environment is the whole process's.
            self._session.trust_env = False
            self._session.proxies = {"http": f"http://{host}:{port}"}

    def close(self) -> None:
        self._session.close()

    def put_bytes(self, project: str, logstore: str, log_group: bytes, hash_key: str | None) -> None:
        """As the SDK's put_log_raw, which takes neither bytes nor a key."""
        headers = {
            "Content-Type": PROTOBUF,
            "x-log-bodyrawsize": str(len(log_group)),
            "x-log-compresstype": str(CompressType.LZ4),
        }
        route, params = ("lb", {}) if hash_key is None else ("route", {"key": hash_key})
        body = Compressor.compress(log_group, CompressType.LZ4)
        self._send("POST", project, body, f"/logstores/{logstore}/shards/{route}", params, headers)

    def _getHttpResponse(self, *request: Any) -> Any:  # noqa: N802 - the SDK's name
        """The SDK retries what it finds in a LogException; an error of ours passes its loop."""
        method, url, params, body, headers = request
        headers["User-Agent"] = self._user_agent
        try:
            answer = self._session.request(
                method, url, params=params, data=body, headers=headers, timeout=self._timeout
            )
        except requests.RequestException as error:
            raise EndpointUnreachable(
                self._told_endpoint, _words(error), definite=_never_sent(error)
            ) from error
        return answer.status_code, answer.content, answer.headers

    def _sendRequest(self, *request: Any, **options: Any) -> Any:  # noqa: N802 - the SDK's name
        try:
            return super()._sendRequest(*request, **options)
        except LogException as error:
            _raise(error)


def _told(ask: Callable[[], T]) -> T:
    """The SDK's error as ours; an answer that it cannot read is a BadResponse."""
    try:
        return ask()
    except LogException as error:
        _raise(error)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadEndpoint):
            raise
        raise LogHubError(Code.BAD_RESPONSE, 200, f"the answer is not one of SLS: {error!r}") from error


def _raise(error: Any) -> NoReturn:
    code = error.get_error_code()
    raise LogHubError(
        Code.BAD_RESPONSE if code == "LogRequestError" else code,
        error.get_resp_status(),
        error.get_error_message(),
        error.get_request_id(),
    ) from error


def _converted(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise LogHubError(Code.BAD_RESPONSE, 200, f"the answer is not one of SLS: {error}") from error


def _shards(answer: Any) -> tuple[ShardInfo, ...]:
    return tuple(shard.info() for shard in _converted(answer.get_shards_info(), list[Shard]))


def _body(answer: Any) -> bytes:
    """The pulled list as it came; the SDK keeps it until somebody asks for the parsed one."""
    raw = getattr(answer, "_raw_uncompressed_body", None)
    if raw is None and answer.get_loggroup_count():
        raw = answer.get_loggroup_list().SerializeToString()
    return bytes(raw or b"")


def _never_sent(error: requests.RequestException) -> bool:
    cause: object = error.args[0] if error.args else None
    reason = getattr(cause, "reason", cause)
    reason = getattr(reason, "original_error", reason)
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)


def _words(error: requests.RequestException) -> str:
    text = str(error)
    return text.rpartition(">: ")[2].rstrip("')") or type(error).__name__
