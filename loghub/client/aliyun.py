"""The client port over the vendor's SDK, whose makers run its requests against the cloud service.

The operator uses it on a real SLS endpoint, workers and programs where they choose it
(`loghub.client.choice`), and the contract suite, which runs over every adapter, as a second
implementation. This module and `aliyun_sdk` alone know the SDK. Import it only
where it is needed, since the SDK adds 0.05 s and 6 MiB to the operator's own packages.

The SDK forms, signs and reads the requests. Retries, the time limit of a call and the errors are ours,
the same as over `http`: by default the SDK sends every request up to ten times a second apart,
including PutLogs, follows redirects, and reads an answer of any length. It has no extensions of the
embedded service. It puts the project before any host name, which an IP address does not allow, so it
reaches an address through the embedded service's forward-proxy mode (docs/sls-protocol.md 1.1).

One client serves several threads: the SDK's client keeps no state of a request, the session's pool is
locked, and its only shared mutable state, the cookie jar, accepts no cookies. To sign, the SDK sets the
process's LC_TIME to "C" each time, which is the value that it has unless the program changes it.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from loghub.client import transport
from loghub.client.aliyun_sdk import SdkClient, converted
from loghub.client.http import PAGE, all_pages, split_query, user_agent
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
from loghub.client.retry import Repeat, Retries
from loghub.client.schemas import (
    CheckpointJson,
    GroupJson,
    LogstoreJson,
    ProjectJson,
    ProjectsJson,
    ShardJson,
)
from loghub.clock import Clock, SystemClock
from loghub.wire.errors import Code, ExtensionMissing, LogHubError
from loghub.wire.subscriptions import (
    Exchange,
    Exchanged,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)

_NO_EXTENSIONS = (
    "the vendor SDK does not support the extensions of the embedded service; use the http adapter"
)


class NoSubscriptions:
    """A part of an adapter. Every call raises ExtensionMissing."""

    def has_subscriptions(self) -> bool:
        """Always False, whatever service answers."""
        return False

    def list_subscriptions(self, logstore: str) -> tuple[SubscriptionSummary, ...]:
        _refuse(logstore)

    def create_subscription(self, logstore: str, name: str, spec: SubscriptionSpec) -> None:
        _refuse(logstore, name, spec)

    def delete_subscription(self, logstore: str, name: str) -> None:
        _refuse(logstore, name)

    def subscription_status(self, logstore: str, name: str) -> SubscriptionStatus:
        _refuse(logstore, name)

    def seek_subscription(self, logstore: str, name: str, position: Position | Mapping[int, str]) -> None:
        _refuse(logstore, name, position)

    def skip_subscription(self, logstore: str, name: str, *, shard: int, logs: int | None) -> int:
        _refuse(logstore, name, shard, logs)

    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged:
        _refuse(logstore, name, exchange)


def _refuse(*_: object) -> NoReturn:
    raise ExtensionMissing(
        "subscriptions need the embedded service and its http adapter: use a consumer group here"
    )


class AliyunLogHub(NoSubscriptions):
    """One endpoint and one project; safe to use from several threads.

    The parameters are the same as for `http.HttpLogHub`. Raises target.BadEndpoint for an endpoint that is
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
        self.project = project = check_project(project)
        limits = timeouts or Timeouts()
        self._retries = Retries(clock=clock or SystemClock(), total_s=limits.total_s)
        get_credentials = credentials if callable(credentials) else lambda: credentials
        self._sdk: Any = SdkClient(endpoint, project, get_credentials, retries=self._retries)
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

    def list_projects(self) -> tuple[ProjectInfo, ...]:
        def page(offset: int) -> tuple[list[ProjectInfo], int]:
            # The one call without a project.
            answer = self._retries.run(
                lambda deadline_s: self._sdk.once(
                    lambda: self._sdk.list_project(offset=offset, size=PAGE), deadline_s
                ),
                Repeat.READ,
            )
            page_json = converted(answer.get_body(), ProjectsJson)
            return [project.info() for project in page_json.projects], page_json.total

        return all_pages(page)

    def create_project(self, description: str = "") -> None:
        self._write(self._sdk.create_project, description)

    def get_project(self) -> ProjectInfo:
        return converted(self._read(self._sdk.get_project).get_body(), ProjectJson).info()

    def project_exists(self) -> bool:
        return exists(lambda: self._read(self._sdk.get_project), Code.PROJECT_NOT_EXIST)

    def delete_project(self) -> None:
        self._write(self._sdk.delete_project)

    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None:
        check_logstore(logstore)
        self._write(self._sdk.create_logstore, logstore, ttl=ttl_days, shard_count=shards, auto_split=False)

    def get_logstore(self, logstore: str) -> LogstoreInfo:
        check_logstore(logstore)
        return converted(self._read(self._sdk.get_logstore, logstore).get_body(), LogstoreJson).info()

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

    def split_shard(
        self, logstore: str, shard: int, *, key: str | None = None, parts: int = 2
    ) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        query = split_query(lambda: self.list_shards(logstore), shard, key=key, parts=parts)
        return _shards(self._write(self._sdk.split, logstore, shard, query))

    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]:
        check_logstore(logstore)
        return _shards(self._write(self._sdk.merge_shard, logstore, shard))

    def delete_shard(self, logstore: str, shard: int) -> None:
        check_logstore(logstore)
        self._write(self._sdk.delete_shard, logstore, shard)

    # --- data --------------------------------------------------------------------------------

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        check_logstore(logstore)
        self._write(self._sdk.put_bytes, logstore, log_group, hash_key)

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        check_logstore(logstore)
        return converted(self._read(self._sdk.get_cursor, logstore, shard, position).get_cursor(), str)

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        check_logstore(logstore)
        answer = self._read(self._sdk.get_cursor_time, logstore, shard, cursor)
        return converted(answer.get_cursor_time(), int)

    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled:
        return self._pull(logstore, shard, cursor, count, end_cursor=end_cursor)

    def _pull(
        self,
        logstore: str,
        shard: int,
        cursor: str,
        count: int,
        *,
        end_cursor: str | None = None,
        query: str | None = None,
    ) -> Pulled:
        check_logstore(logstore)
        check_count(count)
        answer = self._read(
            self._sdk.pull_logs, logstore, shard, cursor, count=count, end_cursor=end_cursor, query=query
        )
        groups = answer.get_loggroup_count()
        next_cursor = answer.get_next_cursor() or cursor
        unchanged = groups == 0 and next_cursor == cursor and end_cursor is None
        at_end = str(answer.get_header("x-log-end-of-cursor") or "") == "1"
        return Pulled(
            body=_body(answer), count=groups, next_cursor=next_cursor, end_of_shard=at_end or unchanged
        )

    def pull_packed(
        self, logstore: str, shard: int, *, cursor: str, count: int, query: str | None = None
    ) -> PackedPull:
        return PackedPull.of(self._pull(logstore, shard, cursor, count, query=query))

    # --- consumer groups ---------------------------------------------------------------------

    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]:
        check_logstore(logstore)
        answer = self._read(self._sdk.list_consumer_group, logstore)
        return tuple(group.info() for group in converted(answer.resp, list[GroupJson]))

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
        return tuple(converted(answer.get_shards(), list[int]))

    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]:
        check_logstore(logstore)
        check_group(group)
        answer = self._read(self._sdk.get_check_point, logstore, group, -1 if shard is None else shard)
        entries = converted(answer.get_consumer_group_check_points(), list[CheckpointJson])
        ahead_s = transport.ahead_s(answer.get_all_headers(), now_unix_s=time.time())
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

    def list_kafka_groups(
        self,
        logstore: str | None = None,  # noqa: ARG002 - the port's
        group: str | None = None,  # noqa: ARG002 - the port's
    ) -> tuple[KafkaGroupStatus, ...]:
        raise ExtensionMissing(_NO_EXTENSIONS)

    def has_polls(self) -> bool:
        """Always False: the SDK cannot request the polls, whatever service answers."""
        return False

    def await_ends(
        self,
        logstore: str,  # noqa: ARG002 - the port's
        known_ends: Mapping[int, str],  # noqa: ARG002
        *,
        poll: Poll,  # noqa: ARG002
    ) -> tuple[ShardEnds, ...]:
        raise ExtensionMissing(_NO_EXTENSIONS)

    def await_group(
        self,
        logstore: str,  # noqa: ARG002 - the port's
        group: str,  # noqa: ARG002
        *,
        consumer: str,  # noqa: ARG002
        revision: int,  # noqa: ARG002
        poll: Poll,  # noqa: ARG002
    ) -> GroupRevision:
        raise ExtensionMissing(_NO_EXTENSIONS)

    def save_checkpoints(
        self,
        logstore: str,  # noqa: ARG002 - the port's
        group: str,  # noqa: ARG002
        cursors: Mapping[int, str],  # noqa: ARG002
        *,
        consumer: str,  # noqa: ARG002
    ) -> dict[int, LogHubError]:
        raise ExtensionMissing(_NO_EXTENSIONS)


def _shards(answer: Any) -> tuple[ShardInfo, ...]:
    return tuple(shard.info() for shard in converted(answer.get_shards_info(), list[ShardJson]))


def _body(answer: Any) -> bytes:
    """The pulled list as it arrived; the SDK keeps these bytes until the parsed list is requested."""
    raw = getattr(answer, "_raw_uncompressed_body", None)
    if raw is None and answer.get_loggroup_count():
        raw = answer.get_loggroup_list().SerializeToString()
    return bytes(raw or b"")
