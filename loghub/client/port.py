"""The client port: the operations of a LogHub endpoint that worker, operator, command line and demo use.

The port is one narrow interface with several adapters: `http` (our own client, used by workers and, on the
embedded service, by the operator), `aliyun` (the vendor SDK, used by the operator on SLS, and by workers and
programs that choose it) and `tests.fakes.fake_log_service` (for fast tests). One contract suite runs over all
of them.

Every call is synchronous, has a bounded time and a bounded number of attempts, and raises
`loghub.wire.errors.LogHubError` (an answer of the service) or `EndpointUnreachable`. Cursors have the form of
the wire: base64 of a decimal 64-bit integer (docs/sls-protocol.md 2.1).

Every adapter makes the same checks before a request, so that all reject bad input with the same message: an
invalid name must not become part of a path. The error is the one that the service would send; the rules are
in `loghub.wire.names`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub.wire.compression import Packed
from loghub.wire.errors import Code, LogHubError, MalformedInput, MalformedName
from loghub.wire.loggroup import MAX_PULL_BYTES
from loghub.wire.subscriptions import (
    Exchange,
    Exchanged,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)

MAX_PULL_COUNT = 1000  # the maximum of SLS


def check_project(project: str) -> str:
    """The name in lower case. Raises LogHubError ParameterInvalid: as a part of the host name, another text
    would lead to another host."""
    return _check(names.PROJECT, project)


def check_logstore(logstore: str) -> str:
    """The name itself. Raises LogHubError ParameterInvalid."""
    return _check(names.LOGSTORE, logstore)


def check_group(group: str) -> str:
    """The name itself. Raises LogHubError ParameterInvalid."""
    return _check(names.CONSUMER_GROUP, group)


def check_subscription(name: str) -> str:
    """The name itself. Raises LogHubError ParameterInvalid."""
    return _check(names.SUBSCRIPTION, name)


def check_count(count: int) -> int:
    """The count itself; PullLogs allows 1 to 1000 groups (docs/sls-protocol.md 5).

    Raises LogHubError ParameterInvalid.
    """
    if not 1 <= count <= MAX_PULL_COUNT:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"count must be 1 to {MAX_PULL_COUNT}, not {count}")
    return count


def _check(rule: names.NameRule, name: str) -> str:
    try:
        return rule.check(name)
    except MalformedName as error:
        raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error


def exists(request: Callable[[], object], missing: Code) -> bool:
    """Whether the request succeeds; False if it fails with the code for a missing resource."""
    try:
        request()
    except LogHubError as error:
        if error.code == missing:
            return False
        raise
    return True


Position = wire_cursor.Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The time limits of a call. ``total_s`` covers all attempts: after it, none begins and no body is read.

    It is checked between two reads, so a call may last ``read_s`` longer. While the head of an answer
    is read (at most 100 lines of 64 KiB each), only ``read_s`` applies.
    """

    connect_s: float = 5.0
    read_s: float = 30.0  # between two bytes; the vendor's Java uses 60
    total_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key, with its STS token if it is temporary.

    ``region`` is the region of the project, such as ``cn-hangzhou``: with it requests are signed with version
    4. "" leaves the version to the client: 4 for a service that says so, otherwise 1.
    """

    access_key_id: str
    access_key_secret: str
    security_token: str = ""
    region: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key_id={self.access_key_id!r}, access_key_secret=***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInfo:
    """One project (docs/sls-protocol.md 2.3). Times are unix seconds; None if the service reports no time, or
    in another form."""

    name: str
    description: str
    region: str
    created_unix_s: int | None
    modified_unix_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreInfo:
    """One logstore as reported by GetLogstore. ``shards`` is the number with which it was created, or the
    present number, as the service counts. Times are unix seconds; None as for `ProjectInfo`."""

    name: str
    ttl_days: int
    shards: int
    created_unix_s: int | None
    modified_unix_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard as reported by ListShards (docs/sls-protocol.md 2.3); keys are 32 hex digits."""

    shard: int
    read_only: bool
    begin_key: str
    end_key: str
    created_unix_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One consumer group as reported by ListConsumerGroup."""

    name: str
    timeout_s: int
    order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One shard's checkpoint; ``cursor`` and ``consumer`` may be empty (docs/sls-protocol.md 2.1).
    ``updated_unix_us`` is measured by this machine's clock if the service does not compare the two itself."""

    shard: int
    cursor: str
    updated_unix_us: int
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """One PullLogs answer: ``body`` is a serialized LogGroupList, decompressed, b"" when empty."""

    body: bytes
    count: int  # log groups in the body
    next_cursor: str
    end_of_shard: bool  # the service reported that nothing follows now


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPull:
    """One PullLogs answer with its body as it was transferred, for callers that may never decompress it."""

    body: Packed
    count: int
    next_cursor: str
    end_of_shard: bool

    @classmethod
    def of(cls, pulled: Pulled) -> "PackedPull":
        return cls(
            body=Packed.plain(pulled.body),
            count=pulled.count,
            next_cursor=pulled.next_cursor,
            end_of_shard=pulled.end_of_shard,
        )

    def unpacked(self) -> Pulled:
        """Raises `LogHubError` BadResponse if the body is damaged."""
        try:
            body = self.body.unpacked(max_size=MAX_PULL_BYTES)
        except MalformedInput as error:
            raise LogHubError(Code.BAD_RESPONSE, 200, f"this is not an answer of SLS: {error}") from error
        return Pulled(
            body=body, count=self.count, next_cursor=self.next_cursor, end_of_shard=self.end_of_shard
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard of a group as reported by the embedded service (its own extension)."""

    shard: int
    state: str  # as on the wire: not_alloc already_alloc wait transfer over
    holder: str
    next_holder: str
    checkpoint: str  # cursor, "" if none
    checkpoint_updated_unix_us: int
    end_cursor: str
    # What is not yet checkpointed. None: not known, for example with logs but without a checkpoint.
    lag_groups: int | None
    lag_logs: int | None
    lag_s: float | None  # age of the oldest log group not yet checkpointed; 0 when none is left
    read_only: bool
    parents: tuple[int, ...]
    # The consumer that saved it; "" if it was moved on purpose, or by an older service
    checkpoint_consumer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """One live consumer as reported by the embedded service (its own extension)."""

    name: str
    last_heartbeat_age_s: float
    held: tuple[int, ...]  # in the consumer's last report
    owned: tuple[int, ...]  # the shards that the next answer will list


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A whole group at one moment (extension of the embedded service)."""

    group: GroupInfo
    consumers: tuple[ConsumerStatus, ...]
    shards: tuple[ShardStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreShard:
    """One shard of a logstore: a partition of a topic."""

    logstore: str
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMember:
    """One member of a Kafka group; ``instance_id`` is "" unless it is a static member."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    assigned: tuple[LogstoreShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOffset:
    """The offset that a Kafka group has committed in one shard. The offset is Kafka's, which jumps
    (docs/kafka.md 2); ``lag_logs`` counts the logs that follow it, None if the log is damaged there."""

    logstore: str
    shard: int
    offset: int
    committed_unix_s: int
    lag_logs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupStatus:
    """A consumer group of Kafka clients at one moment (extension of the embedded service).

    ``state`` is one of docs/kafka-groups.md 1; ``assignor`` is "" until the members have agreed on one.
    """

    name: str
    state: str
    generation: int
    assignor: str
    members: tuple[KafkaMember, ...]
    offsets: tuple[KafkaOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEnds:
    """The cursors of the oldest log group of a shard and after its newest one (extension of the embedded
    service)."""

    shard: int
    begin: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRevision:
    """``revision`` is another number after each change of a group's assignment, consumers or settings;
    ``assigned`` has the consumer's shards (extension of the embedded service)."""

    revision: int
    assigned: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How a call waits for a change: for at most this time, and only until the same access key sends another
    poll of this name."""

    name: str
    wait_s: float


class LogHub(Protocol):
    """One endpoint and one project. Close it after use."""

    project: str

    # Project and logstores. The listed projects are all that the access key sees at the endpoint.
    def list_projects(self) -> tuple[ProjectInfo, ...]: ...
    def create_project(self, description: str = "") -> None: ...
    def get_project(self) -> ProjectInfo: ...
    def project_exists(self) -> bool: ...
    def delete_project(self) -> None: ...
    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None: ...
    def get_logstore(self, logstore: str) -> LogstoreInfo: ...
    def logstore_exists(self, logstore: str) -> bool: ...
    def list_logstores(self) -> tuple[str, ...]: ...
    def delete_logstore(self, logstore: str) -> None: ...

    # Shards. A split is at ``key``, else into ``parts`` equal ranges; the old shards come first.
    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]: ...
    def split_shard(
        self, logstore: str, shard: int, *, key: str | None = None, parts: int = 2
    ) -> tuple[ShardInfo, ...]: ...
    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]: ...
    def delete_shard(self, logstore: str, shard: int) -> None: ...

    # Data
    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None: ...
    def get_cursor(self, logstore: str, shard: int, position: Position) -> str: ...
    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int: ...
    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled: ...
    # `query` is an SPL filter, which the embedded service refuses (docs/sls-protocol.md 2.2).
    def pull_packed(
        self, logstore: str, shard: int, *, cursor: str, count: int, query: str | None = None
    ) -> PackedPull: ...

    # Consumer groups
    def list_groups(self, logstore: str) -> tuple[GroupInfo, ...]: ...
    def create_group(self, logstore: str, group: GroupInfo) -> None: ...
    def update_group(self, logstore: str, group: GroupInfo) -> None: ...
    def delete_group(self, logstore: str, group: str) -> None: ...
    def heartbeat(
        self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]
    ) -> tuple[int, ...]: ...
    def get_checkpoints(
        self, logstore: str, group: str, shard: int | None = None
    ) -> tuple[CheckpointInfo, ...]: ...
    def update_checkpoint(
        self, logstore: str, group: str, *, shard: int, cursor: str, consumer: str, force: bool
    ) -> None: ...

    # Extensions of the embedded service; the real SLS has none of them
    def has_extensions(self) -> bool: ...
    def group_status(self, logstore: str, group: str) -> GroupStatus: ...
    def leave(self, logstore: str, group: str, *, consumer: str) -> None: ...
    # The groups of Kafka clients that read a logstore, or the one group of this name without its other
    # logstores; all groups of the project if no logstore is given.
    def list_kafka_groups(
        self, logstore: str | None = None, group: str | None = None
    ) -> tuple[KafkaGroupStatus, ...]: ...

    # Calls for consumers, which an older embedded service lacks, too. `await_ends` waits until the end of a
    # shard differs from the known end ("": not known), or until one of the shards does not exist, which is
    # then missing from the answer. `await_group` waits until the revision differs.
    def has_polls(self) -> bool: ...
    def await_ends(
        self, logstore: str, known_ends: Mapping[int, str], *, poll: Poll
    ) -> tuple[ShardEnds, ...]: ...
    def await_group(
        self, logstore: str, group: str, *, consumer: str, revision: int, poll: Poll
    ) -> GroupRevision: ...
    def save_checkpoints(
        self, logstore: str, group: str, cursors: Mapping[int, str], *, consumer: str
    ) -> dict[int, LogHubError]: ...  # the refusals, by shard

    # Subscriptions, which an older embedded service lacks, too. `create_subscription` creates it, or gives it
    # these settings while nobody is connected: else SubscriptionBusy, or SubscriptionAlreadyExist if it must
    # be new. After a seek its consumers have to join again. `skip_subscription` acknowledges the oldest open
    # logs of a shard, None for all, and returns their number.
    def has_subscriptions(self) -> bool: ...
    def list_subscriptions(self, logstore: str) -> tuple[SubscriptionSummary, ...]: ...
    def create_subscription(self, logstore: str, name: str, spec: SubscriptionSpec) -> None: ...
    def delete_subscription(self, logstore: str, name: str) -> None: ...
    def subscription_status(self, logstore: str, name: str) -> SubscriptionStatus: ...
    def seek_subscription(self, logstore: str, name: str, position: Position | Mapping[int, str]) -> None: ...
    def skip_subscription(self, logstore: str, name: str, *, shard: int, logs: int | None) -> int: ...
    # Raises SubscriptionFenced if the session has ended: join again.
    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged: ...

    def close(self) -> None: ...
