"""The client port over the project's own HTTP client.

Workers, the demo and, on the embedded service, the operator use this adapter. Each API has one method that
sends a call and reads its answer (docs/sls-protocol.md 2). `transport` sends the calls and retries them,
`schemas` has the JSON of the answers.

Paging and the query of a split are shared with the other adapters, so that all have the same bounds. The real
SLS requires a key for a split into two, so the adapters compute the middle of the shard from ListShards
(docs/sls-protocol.md 2.3).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

import msgspec

from loghub import __version__
from loghub.client import target
from loghub.client.http_subscriptions import HttpSubscriptions
from loghub.client.port import (
    CheckpointInfo,
    Credentials,
    GroupInfo,
    GroupRevision,
    GroupStatus,
    KafkaGroupStatus,
    LogstoreInfo,
    PackedPull,
    Poll,
    Position,
    ProjectInfo,
    Pulled,
    ShardEnds,
    ShardInfo,
    Timeouts,
    check_count,
    check_group,
    check_logstore,
    check_project,
    exists,
)
from loghub.client.schemas import (
    CheckpointJson,
    CursorJson,
    CursorTimeJson,
    GroupJson,
    KafkaGroupsJson,
    LogstoreJson,
    LogstoresJson,
    ProjectJson,
    ProjectsJson,
    RejectedJson,
    ShardJson,
    decode,
)
from loghub.client.transport import JSON, PROTOBUF, HttpAnswer, HttpCall, Transport
from loghub.clock import Clock, SystemClock
from loghub.domain.shards import BadHashKey, HashRange
from loghub.wire.compression import Compression, Packed, compress
from loghub.wire.errors import Code, ExtensionMissing, LogHubError, MalformedInput
from loghub.wire.loggroup import MAX_PULL_BYTES

T = TypeVar("T")

PAGE = 500  # the maximum that SLS returns in one page
# 50,000 names, far above the quotas of SLS. The bound ends the loop if a service never returns the total.
_MAX_PAGES = 100


def all_pages(request: Callable[[int], tuple[Sequence[T], int]]) -> tuple[T, ...]:
    """The whole list. ``request(offset)`` returns a page and the total count; an empty page also ends it."""
    items: list[T] = []
    for _ in range(_MAX_PAGES):
        page, total = request(len(items))
        items += page
        if not page or len(items) >= total:
            break
    return tuple(items)


def split_key(shards: Iterable[ShardInfo], shard: int) -> str:
    """The key in the middle of a shard, as 32 hex digits. Raises LogHubError ShardNotExist, or
    ParameterInvalid for a shard that is too small."""
    for info in shards:
        if info.shard == shard:
            try:
                keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
                return keys.parts(2)[1].begin_key
            except BadHashKey as error:
                raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error
    raise LogHubError.of(Code.SHARD_NOT_EXIST, f"shard {shard} does not exist")


def split_query(
    list_shards: Callable[[], Iterable[ShardInfo]], shard: int, *, key: str | None, parts: int
) -> dict[str, str]:
    """The query of SplitShard: at ``key``, else into ``parts`` equal ranges. Raises the errors of
    `split_key`, and LogHubError ParameterInvalid for a key together with more than two parts."""
    if parts < 2:
        raise LogHubError.of(
            Code.PARAMETER_INVALID, f"a shard is split into 2 parts or more, not into {parts}"
        )
    if parts == 2:
        return {"action": "split", "key": split_key(list_shards(), shard) if key is None else key}
    if key is not None:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"a key splits a shard into 2, not into {parts}")
    return {"action": "split", "shardCount": str(parts)}


EXTENSIONS = frozenset({"leave", "group_status"})
POLLS = frozenset({"await_ends", "await_group", "save_checkpoints"})
_EXTENSION_PATH = "/_loghub/v1"
_KAFKA_PATH = f"{_EXTENSION_PATH}/kafka/groups"


class HttpLogHub(HttpSubscriptions):
    """One endpoint and one project; safe to use from several threads.

    ``credentials`` is a value, or a callable that is called before every request, so that keys can
    rotate. ``agent`` names the caller, usually ``<group>/<consumer>``, and is part of the User-Agent.
    Raises target.BadEndpoint for an invalid endpoint, LogHubError ParameterInvalid for an invalid project.
    """

    def __init__(
        self,
        endpoint: str | target.EndpointAt,
        project: str,
        *,
        credentials: Credentials | Callable[[], Credentials],
        agent: str = "",
        clock: Clock | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.project = project = check_project(project)

        def transport(to: target.HttpTarget) -> Transport:
            return Transport(
                to,
                credentials=credentials if callable(credentials) else lambda: credentials,
                user_agent=user_agent(agent),
                clock=clock or SystemClock(),
                timeouts=timeouts or Timeouts(),
            )

        self._transport = transport(target.parse(endpoint, project))
        # The host of ListProjects names no project, so the call may need another connection.
        self._without_project = partial(transport, target.parse(endpoint, ""))

    def close(self) -> None:
        self._transport.close()

    # --- project and logstores ---------------------------------------------------------------

    def list_projects(self) -> tuple[ProjectInfo, ...]:
        def page(offset: int) -> tuple[list[ProjectInfo], int]:
            query = {"offset": str(offset), "size": str(PAGE)}
            call = HttpCall(method="GET", path="/", query=query, repeatable=True)
            page_json = decode(transport.send(call).body, ProjectsJson)
            return [project.info() for project in page_json.projects], page_json.total

        with closing(self._without_project()) as transport:
            return all_pages(page)

    def create_project(self, description: str = "") -> None:
        self._post("/", {"projectName": self.project, "description": description})

    def get_project(self) -> ProjectInfo:
        return decode(self._get("/").body, ProjectJson).info()

    def project_exists(self) -> bool:
        return exists(lambda: self._get("/"), Code.PROJECT_NOT_EXIST)

    def delete_project(self) -> None:
        self._transport.send(HttpCall(method="DELETE", path="/"))

    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None:
        check_logstore(logstore)
        fields = {
            "logstoreName": logstore,
            "ttl": ttl_days,
            "shardCount": shards,
            "enable_tracking": False,
            "autoSplit": False,
            "maxSplitShard": 64,
            "appendMeta": False,
            "telemetryType": "",
        }
        self._post("/logstores", fields)

    def get_logstore(self, logstore: str) -> LogstoreInfo:
        return decode(self._get(_logstore(logstore)).body, LogstoreJson).info()

    def logstore_exists(self, logstore: str) -> bool:
        return exists(lambda: self._get(_logstore(logstore)), Code.LOG_STORE_NOT_EXIST)

    def list_logstores(self) -> tuple[str, ...]:
        def page(offset: int) -> tuple[list[str], int]:
            query = {"offset": str(offset), "size": str(PAGE)}
            page_json = decode(self._get("/logstores", query).body, LogstoresJson)
            return page_json.logstores, page_json.total

        return all_pages(page)

    def delete_logstore(self, logstore: str) -> None:
        self._transport.send(HttpCall(method="DELETE", path=_logstore(logstore)))

    # --- shards ------------------------------------------------------------------------------

    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]:
        return _shards(self._get(f"{_logstore(logstore)}/shards"))

    def split_shard(
        self, logstore: str, shard: int, *, key: str | None = None, parts: int = 2
    ) -> tuple[ShardInfo, ...]:
        query = split_query(lambda: self.list_shards(logstore), shard, key=key, parts=parts)
        return _shards(self._post(_shard(logstore, shard), query=query))

    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]:
        return _shards(self._post(_shard(logstore, shard), query={"action": "merge"}))

    def delete_shard(self, logstore: str, shard: int) -> None:
        self._transport.send(HttpCall(method="DELETE", path=_shard(logstore, shard)))

    # --- data --------------------------------------------------------------------------------

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        route, query = ("lb", {}) if hash_key is None else ("route", {"key": hash_key})
        headers = {
            "Content-Type": PROTOBUF,
            "x-log-bodyrawsize": str(len(log_group)),
            "x-log-compresstype": Compression.LZ4.value,
        }
        body = compress(log_group, Compression.LZ4)
        path = f"{_logstore(logstore)}/shards/{route}"
        self._transport.send(HttpCall(method="POST", path=path, query=query, headers=headers, body=body))

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        query = {"type": "cursor", "from": str(position)}
        return decode(self._get(_shard(logstore, shard), query).body, CursorJson).cursor

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        answer = self._get(_shard(logstore, shard), {"type": "cursor_time", "cursor": cursor})
        return decode(answer.body, CursorTimeJson).cursor_time

    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled:
        bound = {"end_cursor": end_cursor} if end_cursor is not None else {}
        return self._pull(logstore, shard, cursor, count, bound).unpacked()

    def pull_packed(
        self, logstore: str, shard: int, *, cursor: str, count: int, query: str | None = None
    ) -> PackedPull:
        more = {} if query is None else {"query": query, "pullMode": "scan_on_stream"}
        return self._pull(logstore, shard, cursor, count, more)

    def _pull(self, logstore: str, shard: int, cursor: str, count: int, more: dict[str, str]) -> PackedPull:
        query = {"type": "log", "cursor": cursor, "count": str(check_count(count)), **more}
        headers = {"Accept": PROTOBUF, "Accept-Encoding": Compression.LZ4.value}
        answer = self._get(_shard(logstore, shard), query, headers)
        try:
            return _pulled(answer, cursor=cursor, bounded="end_cursor" in more)
        except (MalformedInput, KeyError, ValueError) as error:
            raise LogHubError(Code.BAD_RESPONSE, 200, f"this is not an answer of SLS: {error}") from error

    # --- consumer groups ---------------------------------------------------------------------

    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]:
        groups = decode(self._get(f"{_logstore(logstore)}/consumergroups").body, list[GroupJson])
        return tuple(group.info() for group in groups)

    def create_group(self, logstore: str, group: GroupInfo) -> None:
        check_group(group.name)
        fields = {"consumerGroup": group.name, "timeout": group.timeout_s, "order": group.order}
        self._post(f"{_logstore(logstore)}/consumergroups", fields)

    def update_group(self, logstore: str, group: GroupInfo) -> None:
        body = msgspec.json.encode({"order": group.order, "timeout": group.timeout_s})
        path = _group(logstore, group.name)
        call = HttpCall(method="PUT", path=path, headers={"Content-Type": JSON}, body=body, repeatable=True)
        self._transport.send(call)

    def delete_group(self, logstore: str, group: str) -> None:
        self._transport.send(HttpCall(method="DELETE", path=_group(logstore, group)))

    def heartbeat(
        self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]
    ) -> tuple[int, ...]:
        query = {"type": "heartbeat", "consumer": consumer}
        answer = self._post(_group(logstore, group), list(held), query=query, repeatable=True)
        return tuple(decode(answer.body, list[int]))

    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]:
        query = {} if shard is None else {"shard": str(shard)}
        entries = decode(self._get(_group(logstore, group), query).body, list[CheckpointJson])
        return tuple(entry.info() for entry in entries)

    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None:
        query = {"type": "checkpoint", "consumer": consumer, "forceSuccess": "true" if force else "false"}
        fields = {"shard": shard, "checkpoint": cursor}
        self._post(_group(logstore, group), fields, query=query, repeatable=True)

    # --- extensions of the embedded service --------------------------------------------------

    def has_extensions(self) -> bool:
        """Requested only once; an answer that is not the embedded service's means no."""
        return set(self._transport.discover().extensions) >= EXTENSIONS

    def group_status(self, logstore: str, group: str) -> GroupStatus:
        self._require_extensions("the status of a group's shards")
        return decode(self._get(f"{_EXTENSION_PATH}{_group(logstore, group)}").body, GroupStatus)

    def leave(self, logstore: str, group: str, *, consumer: str) -> None:
        self._require_extensions("leaving a group")
        path = f"{_EXTENSION_PATH}{_group(logstore, group)}/leave"
        self._post(path, query={"consumer": consumer}, repeatable=True)

    def list_kafka_groups(
        self, logstore: str | None = None, group: str | None = None
    ) -> tuple[KafkaGroupStatus, ...]:
        # An older embedded service lacks it, too
        if "kafka_groups" not in self._transport.discover().extensions:
            raise ExtensionMissing("groups of Kafka clients are listed by the embedded service only")
        named = {"logstore": logstore and check_logstore(logstore), "group": group}
        query = {name: value for name, value in named.items() if value is not None}

        def page(offset: int) -> tuple[list[KafkaGroupStatus], int]:
            answer = decode(self._get(_KAFKA_PATH, {**query, "offset": str(offset)}).body, KafkaGroupsJson)
            return answer.groups, answer.total

        return all_pages(page)

    def has_polls(self) -> bool:
        """Whether the service has the polls. Requested only once, with `has_extensions`."""
        return set(self._transport.discover().extensions) >= POLLS

    def await_ends(
        self, logstore: str, known_ends: Mapping[int, str], *, poll: Poll
    ) -> tuple[ShardEnds, ...]:
        path = f"{_EXTENSION_PATH}{_logstore(logstore)}/ends"
        answer = self._poll(
            "POST", path, _query_of(poll), {str(shard): end for shard, end in known_ends.items()}
        )
        return tuple(decode(answer.body, list[ShardEnds]))

    def await_group(
        self, logstore: str, group: str, *, consumer: str, revision: int, poll: Poll
    ) -> GroupRevision:
        query = {"consumer": consumer, "revision": str(revision), **_query_of(poll)}
        answer = self._poll("GET", f"{_EXTENSION_PATH}{_group(logstore, group)}/revision", query)
        return decode(answer.body, GroupRevision)

    def save_checkpoints(
        self, logstore: str, group: str, cursors: Mapping[int, str], *, consumer: str
    ) -> dict[int, LogHubError]:
        path = f"{_EXTENSION_PATH}{_group(logstore, group)}/checkpoints"
        fields = {str(shard): cursor for shard, cursor in cursors.items()}
        answer = self._poll("POST", path, {"consumer": consumer}, fields)
        return decode(answer.body, RejectedJson).errors()

    def _poll(self, method: str, path: str, query: Mapping[str, str], value: object = None) -> HttpAnswer:
        """A call that only a service with `has_polls` answers. If the service no longer has the polls,
        because an older one was installed meanwhile, `has_polls` asks again."""
        if not self.has_polls():
            raise ExtensionMissing("long polls are an extension of the embedded service")
        try:
            if method == "GET":
                return self._get(path, query)
            return self._post(path, value, query=query, repeatable=True)
        except LogHubError as error:
            if error.code == Code.INVALID_METHOD:
                self._transport.forget()
            raise

    def _require_extensions(self, feature: str) -> None:
        if not self.has_extensions():
            raise ExtensionMissing(
                f"{feature} is an extension of the embedded service, which this endpoint is not"
            )

    # --- the two kinds of calls --------------------------------------------------------------

    def _get(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        call = HttpCall(method="GET", path=path, query=query or {}, headers=headers or {}, repeatable=True)
        return self._transport.send(call)

    def _post(
        self,
        path: str,
        value: object = None,
        *,
        query: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> HttpAnswer:
        body = b"" if value is None else msgspec.json.encode(value)
        headers = {"Content-Type": JSON}
        return self._transport.send(
            HttpCall(
                method="POST",
                path=path,
                query=query or {},
                headers=headers,
                body=body,
                repeatable=repeatable,
            )
        )


def user_agent(agent: str) -> str:
    """``loghub-client/<version> <agent>``, by which `loghub.wire.errors` distinguishes clients."""
    clean = "".join(char for char in agent if "!" <= char <= "~")
    return f"loghub-client/{__version__} {clean}".rstrip()


def _query_of(poll: Poll) -> dict[str, str]:
    return {"poll": poll.name, "wait_ms": str(round(poll.wait_s * 1000))}


def _logstore(logstore: str) -> str:
    return f"/logstores/{check_logstore(logstore)}"


def _shard(logstore: str, shard: int) -> str:
    return f"{_logstore(logstore)}/shards/{shard}"


def _group(logstore: str, group: str) -> str:
    return f"{_logstore(logstore)}/consumergroups/{check_group(group)}"


def _shards(answer: HttpAnswer) -> tuple[ShardInfo, ...]:
    return tuple(shard.info() for shard in decode(answer.body, list[ShardJson]))


def _pulled(answer: HttpAnswer, *, cursor: str, bounded: bool) -> PackedPull:
    """A PullLogs answer (docs/sls-protocol.md 2.2)."""
    headers = answer.headers
    count, raw_size = int(headers["x-log-count"]), int(headers["x-log-bodyrawsize"])
    next_cursor = headers["x-log-cursor"] or cursor  # empty means unchanged (2.1)
    body = Packed.plain(b"")
    if raw_size:
        if not 0 < raw_size <= MAX_PULL_BYTES:
            raise MalformedInput(f"the announced size is {raw_size} bytes")
        body = Packed(answer.body, raw_size, Compression(headers["x-log-compresstype"]))
    # Without a bound, an empty answer at an unchanged cursor is the end, with or without the header.
    unchanged = count == 0 and next_cursor == cursor and not bounded
    at_end = headers.get("x-log-end-of-cursor") == "1" or unchanged
    return PackedPull(body=body, count=count, next_cursor=next_cursor, end_of_shard=at_end)
