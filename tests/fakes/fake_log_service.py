"""The client port in memory: a fast fake with a clock of the test's choice.

Tests of operator and worker use it where they need a log service but no process. The contract suite runs
against it and against the real service, so that both behave the same.

    client = MemoryServer(clock).client("demo")
    client.create_project()
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from loghub.client.http import split_query
from loghub.client.port import (
    CheckpointInfo,
    ConsumerStatus,
    GroupInfo,
    GroupStatus,
    KafkaGroupStatus,
    LogstoreInfo,
    PackedPull,
    Poll,
    Position,
    ProjectInfo,
    Pulled,
    ShardInfo,
    ShardStatus,
    check_count,
    check_group,
    check_logstore,
    check_project,
)
from loghub.clock import Clock, SystemClock
from loghub.domain.group import GroupState, Heartbeat, Leave, SaveCheckpoint, ShardEntry
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup, names
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, MalformedInput
from loghub.wire.loggroup_validation import scan
from tests.fakes.fake_polls import MemoryPolls
from tests.fakes.fake_store import Logstore, ShardData
from tests.fakes.fake_subscriptions import MemorySubscriptions, Subscribed

T = TypeVar("T")

_US = 1_000_000
_MAX_TIMEOUT_S = 24 * 3600
_MAX_TTL_DAYS = 3650


class MemoryServer:
    """The projects, which several clients share. Set ``unreachable`` to simulate an outage. With ``polls`` it
    has the extensions that wait, and with ``subscriptions`` those, which wait by calling ``sleep``."""

    def __init__(
        self, clock: Clock | None = None, *, polls: bool = False, subscriptions: bool = False
    ) -> None:
        self.polls = polls
        # By project and logstore, then by name; None: it has none.
        self.subscriptions: dict[tuple[str, str], dict[str, Subscribed]] | None = (
            {} if subscriptions else None
        )
        self.sleep: Callable[[float], None] = time.sleep
        self.last_polls: dict[str, Poll] = {}  # by name
        self.clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.projects: dict[str, dict[str, Logstore]] = {}
        self.details: dict[str, ProjectInfo] = {}
        self.unreachable = False

    def client(self, project: str) -> "MemoryLogHub":
        return MemoryLogHub(self, project)


class MemoryLogHub(MemoryPolls, MemorySubscriptions):
    """One project of a `MemoryServer`; safe to use from several threads."""

    def __init__(self, server: MemoryServer, project: str) -> None:
        self.project = check_project(project)
        self._server = server

    def close(self) -> None:
        """Do nothing."""

    def _projects(self) -> dict[str, dict[str, Logstore]]:
        if self._server.unreachable:
            raise EndpointUnreachable("memory", "unreachable was set", definite=True)
        return self._server.projects

    def _stores(self) -> dict[str, Logstore]:
        result = self._projects().get(self.project)
        if result is None:
            raise LogHubError.of(Code.PROJECT_NOT_EXIST, f"project {self.project} does not exist")
        return result

    def _store(self, logstore: str) -> Logstore:
        result = self._stores().get(check_logstore(logstore))
        if result is None:
            raise LogHubError.of(Code.LOG_STORE_NOT_EXIST, f"logstore {logstore} does not exist")
        return result

    # --- project and logstores ---------------------------------------------------------------

    def list_projects(self) -> tuple[ProjectInfo, ...]:
        return tuple(self._server.details[name] for name in sorted(self._projects()))

    def create_project(self, description: str = "") -> None:
        with self._server.lock:
            if self.project in self._projects():
                raise LogHubError.of(Code.PROJECT_ALREADY_EXIST, f"project {self.project} exists")
            self._projects()[self.project] = {}
            now = int(self._server.clock.unix_s())
            self._server.details[self.project] = ProjectInfo(
                name=self.project,
                description=description,
                region="memory",
                created_unix_s=now,
                modified_unix_s=now,
            )

    def get_project(self) -> ProjectInfo:
        self._stores()
        return self._server.details[self.project]

    def project_exists(self) -> bool:
        return self.project in self._projects()

    def delete_project(self) -> None:
        with self._server.lock:
            self._stores()
            del self._projects()[self.project]

    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None:
        check_logstore(logstore)
        if shards < 1 or not 1 <= ttl_days <= _MAX_TTL_DAYS:
            raise LogHubError.of(Code.PARAMETER_INVALID, f"{shards} shards, ttl {ttl_days} days")
        with self._server.lock:
            if logstore in self._stores():
                raise LogHubError.of(Code.LOG_STORE_ALREADY_EXIST, f"logstore {logstore} exists")
            self._stores()[logstore] = Logstore(
                shard_count=shards, clock=self._server.clock, ttl_days=ttl_days
            )

    def get_logstore(self, logstore: str) -> LogstoreInfo:
        store = self._store(logstore)
        return LogstoreInfo(
            name=logstore,
            ttl_days=store.ttl_days,
            shards=len(store.shard_map.writable()),
            created_unix_s=store.created_unix_s,
            modified_unix_s=store.created_unix_s,
        )

    def logstore_exists(self, logstore: str) -> bool:
        return check_logstore(logstore) in self._stores()

    def list_logstores(self) -> tuple[str, ...]:
        return tuple(sorted(self._stores()))

    def delete_logstore(self, logstore: str) -> None:
        with self._server.lock:
            self._store(logstore)
            del self._stores()[logstore]

    # --- shards ------------------------------------------------------------------------------

    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]:
        with self._server.lock:
            store = self._store(logstore)
            return tuple(_shard_info(store, number) for number in sorted(store.shard_map.shards))

    def split_shard(
        self, logstore: str, shard: int, *, key: str | None = None, parts: int = 2
    ) -> tuple[ShardInfo, ...]:
        with self._server.lock:
            store = self._store(logstore)
            query = split_query(lambda: self.list_shards(logstore), shard, key=key, parts=parts)
            numbers = store.split(shard, query.get("key"), parts)
            return tuple(_shard_info(store, number) for number in numbers)

    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]:
        with self._server.lock:
            store = self._store(logstore)
            return tuple(_shard_info(store, number) for number in store.merge(shard))

    def delete_shard(self, logstore: str, shard: int) -> None:
        with self._server.lock:
            self._store(logstore).delete_shard(shard)

    # --- data --------------------------------------------------------------------------------

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        with self._server.lock:
            store = self._store(logstore)
            logs = _refused(lambda: scan(log_group))
            if logs:
                store.append(log_group, logs=logs, hash_key=hash_key)

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        with self._server.lock:
            data = self._store(logstore).shard_data(shard)
            if position == "begin":
                return wire_cursor.encode(data.first_cursor)
            if position == "end":
                return wire_cursor.encode(data.end_cursor)
            return wire_cursor.encode(data.cursor_at(position * _US))

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        with self._server.lock:
            data = self._store(logstore).shard_data(shard)
            return data.received_at(_position(data, cursor)) // _US

    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled:
        check_count(count)
        with self._server.lock:
            data = self._store(logstore).shard_data(shard)
            start = _position(data, cursor)
            bound = data.end_cursor if end_cursor is None else min(_cursor(end_cursor), data.end_cursor)
            groups = data.between(start, bound, count) if start < bound else []
            # A cursor before the oldest group is clamped to it (docs/sls-protocol.md 7.8).
            after = max(start, data.first_cursor) + len(groups) if start < bound else start
            body, is_end = loggroup.wrap(groups), after >= data.end_cursor
            next_cursor = wire_cursor.encode(after)
            return Pulled(body=body, count=len(groups), next_cursor=next_cursor, end_of_shard=is_end)

    def pull_packed(
        self, logstore: str, shard: int, *, cursor: str, count: int, query: str | None = None
    ) -> PackedPull:
        if query is not None:
            raise LogHubError.of(Code.PARAMETER_INVALID, "this service does not support query")
        return PackedPull.of(self.pull_logs(logstore, shard, cursor=cursor, count=count))

    # --- consumer groups ---------------------------------------------------------------------

    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]:
        with self._server.lock:
            store = self._store(logstore)
            return tuple(_group_info(store.group(name)) for name in store.group_names())

    def create_group(self, logstore: str, group: GroupInfo) -> None:
        check_group(group.name)
        _check_timeout(group.timeout_s)
        with self._server.lock:
            store = self._store(logstore)
            store.create_group(group.name, timeout_s=group.timeout_s, order=group.order)

    def update_group(self, logstore: str, group: GroupInfo) -> None:
        check_group(group.name)
        _check_timeout(group.timeout_s)
        with self._server.lock:
            store = self._store(logstore)
            store.configure(group.name, timeout_s=group.timeout_s, order=group.order)

    def delete_group(self, logstore: str, group: str) -> None:
        with self._server.lock:
            self._store(logstore).delete_group(check_group(group))

    def heartbeat(
        self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]
    ) -> tuple[int, ...]:
        event = Heartbeat(consumer=_consumer(consumer), held=frozenset(held))
        with self._server.lock:
            return self._store(logstore).step(check_group(group), event).answer

    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]:
        with self._server.lock:
            entries = self._store(logstore).group(check_group(group)).shards.values()
            return tuple(_checkpoint_info(e) for e in entries if shard in (None, e.shard))

    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None:
        with self._server.lock:
            store = self._store(logstore)
            data = store.data.get(shard)
            event = SaveCheckpoint(
                consumer=_consumer(consumer) if consumer else "",
                shard=shard,
                cursor=_checkpoint(data, cursor),
                force=force,
                updated_unix_us=int(self._server.clock.unix_s() * _US),
            )
            store.step(check_group(group), event)

    # --- extensions of the embedded service --------------------------------------------------

    def has_extensions(self) -> bool:
        self._projects()
        return True

    def group_status(self, logstore: str, group: str) -> GroupStatus:
        with self._server.lock:
            store = self._store(logstore)
            state = store.group(check_group(group))
            now = self._server.clock.monotonic_s()
            consumers = tuple(
                ConsumerStatus(
                    name=c.name,
                    last_heartbeat_age_s=now - c.last_heartbeat_s,
                    held=tuple(sorted(c.held)),
                    owned=state.owned_by(c.name),
                )
                for c in state.consumers.values()
            )
            shards = tuple(_shard_status(store, e, self._server.clock) for e in state.shards.values())
            return GroupStatus(group=_group_info(state), consumers=consumers, shards=shards)

    def leave(self, logstore: str, group: str, *, consumer: str) -> None:
        with self._server.lock:
            self._store(logstore).step(check_group(group), Leave(consumer=_consumer(consumer)))

    def list_kafka_groups(
        self,
        logstore: str | None = None,
        group: str | None = None,
    ) -> tuple[KafkaGroupStatus, ...]:
        """None: the fake has no Kafka endpoint."""
        with self._server.lock:
            if logstore is not None:
                self._store(logstore)
        return ()


def _refused(request: Callable[[], T]) -> T:
    """Translate input that the wire rejects into the service's error."""
    try:
        return request()
    except MalformedInput as error:
        raise LogHubError.of(error.code, str(error)) from error


def _cursor(text: str) -> int:
    return _refused(lambda: wire_cursor.decode(text))


def _checkpoint(data: ShardData | None, text: str) -> int:
    try:
        return _cursor(text) if data is None else _position(data, text)
    except LogHubError as error:
        raise LogHubError.of(Code.INVALID_SHARD_CHECK_POINT, str(error)) from error


def _position(data: ShardData, text: str) -> int:
    """Below the oldest group is no error; beyond the end nothing was ever written."""
    cursor = _cursor(text)
    if cursor > data.end_cursor:
        raise LogHubError.of(Code.INVALID_CURSOR, f"cursor {text} lies beyond the end of the shard")
    return cursor


def _consumer(name: str) -> str:
    return _refused(lambda: names.CONSUMER.check(name))


def _check_timeout(timeout_s: int) -> None:
    if not 1 <= timeout_s <= _MAX_TIMEOUT_S:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"timeout must be 1 to {_MAX_TIMEOUT_S}")


def _shard_info(store: Logstore, number: int) -> ShardInfo:
    shard = store.shard_map.shards[number]
    return ShardInfo(
        shard=number,
        read_only=shard.read_only,
        begin_key=shard.keys.begin_key,
        end_key=shard.keys.end_key,
        created_unix_s=store.data[number].born_us // _US,
    )


def _group_info(state: GroupState) -> GroupInfo:
    return GroupInfo(name=state.group, timeout_s=round(state.timeout_s), order=state.order)


def _checkpoint_info(entry: ShardEntry) -> CheckpointInfo:
    saved = entry.checkpoint
    if saved is None:
        return CheckpointInfo(shard=entry.shard, cursor="", updated_unix_us=0, consumer="")
    return CheckpointInfo(
        shard=entry.shard,
        cursor=wire_cursor.encode(saved.cursor),
        updated_unix_us=saved.updated_unix_us,
        consumer=saved.consumer,
    )


def _shard_status(store: Logstore, entry: ShardEntry, clock: Clock) -> ShardStatus:
    data = store.data[entry.shard]
    saved = _checkpoint_info(entry)
    position = entry.checkpoint.cursor if entry.checkpoint else None
    lag = data.lag(position, now_unix_s=clock.unix_s())
    return ShardStatus(
        shard=entry.shard,
        state=entry.state.value,
        holder=entry.holder or "",
        next_holder=entry.next_holder or "",
        checkpoint=saved.cursor,
        checkpoint_consumer=saved.consumer,
        checkpoint_updated_unix_us=saved.updated_unix_us,
        end_cursor=wire_cursor.encode(data.end_cursor),
        lag_groups=lag.groups,
        lag_logs=lag.logs,
        lag_s=lag.seconds,
        read_only=entry.log_shard.read_only,
        parents=entry.log_shard.parents,
    )
