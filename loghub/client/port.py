"""The client port: the operations of a LogHub endpoint that the worker, the operator and the demo use.

The port is one narrow interface with several adapters: `http` (our own client, used by workers and, on
the embedded service, by the operator), `aliyun` (the vendor SDK, used by the operator on SLS) and
`tests.fakes.fake_log_service` (for fast tests). One contract suite runs over all of them.

Every call is synchronous, has a bounded time and a bounded number of attempts, and raises
`loghub.wire.errors.LogHubError` (an answer of the service) or `EndpointUnreachable`. Cursors are those
of the wire: base64 of a decimal 64-bit integer (docs/sls-protocol.md 2.1).
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from loghub.wire.compression import Packed
from loghub.wire.errors import Code, LogHubError, MalformedInput

MAX_PULL_BYTES = 64 << 20  # 10 MB is usual, and the last group may exceed it (docs/sls-protocol.md 5)
Position = Literal["begin", "end"] | int  # int: unix seconds, the time of receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key, with its STS token if it is temporary."""

    access_key_id: str
    access_key_secret: str
    security_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key_id={self.access_key_id!r}, access_key_secret=***)"


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
    ``updated_unix_us`` is by this machine's clock where the service does not compare the two itself."""

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
    """One PullLogs answer whose body is as it was transferred: for those who may never look at it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """One live consumer as reported by the embedded service (its own extension)."""

    name: str
    last_heartbeat_age_s: float
    held: tuple[int, ...]  # as it last reported
    owned: tuple[int, ...]  # the shards that the next answer will list


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A whole group at one moment (extension of the embedded service)."""

    group: GroupInfo
    consumers: tuple[ConsumerStatus, ...]
    shards: tuple[ShardStatus, ...]


class LogHub(Protocol):
    """One endpoint and one project. Close it after use."""

    project: str

    # Project and logstores
    def create_project(self, description: str = "") -> None: ...
    def project_exists(self) -> bool: ...
    def delete_project(self) -> None: ...
    def create_logstore(self, logstore: str, *, shards: int, ttl_days: int = 7) -> None: ...
    def logstore_exists(self, logstore: str) -> bool: ...
    def list_logstores(self) -> tuple[str, ...]: ...
    def delete_logstore(self, logstore: str) -> None: ...

    # Shards
    def list_shards(self, logstore: str) -> tuple[ShardInfo, ...]: ...
    def split_shard(self, logstore: str, shard: int, *, key: str | None = None) -> tuple[ShardInfo, ...]: ...
    def merge_shards(self, logstore: str, shard: int) -> tuple[ShardInfo, ...]: ...

    # Data
    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None: ...
    def get_cursor(self, logstore: str, shard: int, position: Position) -> str: ...
    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int: ...
    def pull_logs(
        self, logstore: str, shard: int, *, cursor: str, count: int, end_cursor: str | None = None
    ) -> Pulled: ...
    def pull_packed(self, logstore: str, shard: int, *, cursor: str, count: int) -> PackedPull: ...

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

    def close(self) -> None: ...
