"""The JSON of the answers that the clients read, and its conversion to the values of the port.

Only this module knows the spelling of the keys (docs/sls-protocol.md 2.1, 2.3).
"""

from typing import TypeVar

import msgspec

from loghub.client.port import (
    CheckpointInfo,
    GroupInfo,
    KafkaGroupStatus,
    LogstoreInfo,
    ProjectInfo,
    ShardInfo,
)
from loghub.wire.errors import Code, LogHubError

T = TypeVar("T")


class LogstoresJson(msgspec.Struct):
    """One page of ListLogstores."""

    logstores: list[str]
    total: int


class ProjectJson(msgspec.Struct):
    """GetProject, and one element of ListProjects."""

    name: str = msgspec.field(name="projectName")
    description: str = ""
    region: str = ""
    created: str | int = msgspec.field(name="createTime", default="")
    modified: str | int = msgspec.field(name="lastModifyTime", default="")

    def info(self) -> ProjectInfo:
        return ProjectInfo(
            name=self.name,
            description=self.description,
            region=self.region,
            created_unix_s=_unix_s(self.created),
            modified_unix_s=_unix_s(self.modified),
        )


class ProjectsJson(msgspec.Struct):
    """One page of ListProjects."""

    projects: list[ProjectJson]
    total: int


class LogstoreJson(msgspec.Struct):
    """GetLogstore."""

    name: str = msgspec.field(name="logstoreName")
    ttl: int
    shards: int = msgspec.field(name="shardCount")
    created: str | int = msgspec.field(name="createTime", default="")
    modified: str | int = msgspec.field(name="lastModifyTime", default="")

    def info(self) -> LogstoreInfo:
        return LogstoreInfo(
            name=self.name,
            ttl_days=self.ttl,
            shards=self.shards,
            created_unix_s=_unix_s(self.created),
            modified_unix_s=_unix_s(self.modified),
        )


class ShardJson(msgspec.Struct):
    """One element of ListShards, SplitShard or MergeShards."""

    shard: int = msgspec.field(name="shardID")
    status: str
    begin_key: str = msgspec.field(name="inclusiveBeginKey")
    end_key: str = msgspec.field(name="exclusiveEndKey")
    created: int = msgspec.field(name="createTime", default=0)

    def info(self) -> ShardInfo:
        return ShardInfo(
            shard=self.shard,
            read_only=self.status == "readonly",
            begin_key=self.begin_key,
            end_key=self.end_key,
            created_unix_s=self.created,
        )


class CursorJson(msgspec.Struct):
    """GetCursor."""

    cursor: str


class CursorTimeJson(msgspec.Struct):
    """GetCursorTime: unix seconds."""

    cursor_time: int


class GroupJson(msgspec.Struct):
    """One element of ListConsumerGroup."""

    name: str
    timeout: int
    order: bool

    def info(self) -> GroupInfo:
        return GroupInfo(name=self.name, timeout_s=self.timeout, order=self.order)


class CheckpointJson(msgspec.Struct):
    """One element of GetCheckPoint."""

    shard: int
    checkpoint: str = ""
    updated: int = msgspec.field(name="updateTime", default=0)
    consumer: str = ""

    def info(self, *, ahead_s: int = 0) -> CheckpointInfo:
        """``ahead_s``: by how much this machine's clock is ahead of the service's
        (`loghub.client.transport`)."""
        return CheckpointInfo(
            shard=self.shard,
            cursor=self.checkpoint,
            updated_unix_us=self.updated and self.updated + ahead_s * 1_000_000,
            consumer=self.consumer,
        )


class KafkaGroupsJson(msgspec.Struct):
    """A page of the embedded service's own ``/_loghub/v1/kafka/groups``."""

    total: int
    groups: list[KafkaGroupStatus]


class _RejectedCheckpointJson(msgspec.Struct):
    shard: int
    code: str = msgspec.field(name="errorCode")
    message: str = msgspec.field(name="errorMessage")
    status: int


class RejectedJson(msgspec.Struct):
    """The answer of the embedded service to the checkpoints of several shards."""

    rejected: list[_RejectedCheckpointJson]

    def errors(self) -> dict[int, LogHubError]:
        return {one.shard: LogHubError(one.code, one.status, one.message) for one in self.rejected}


class InfoJson(msgspec.Struct):
    """The answer of the embedded service's own ``/_loghub/v1/info``."""

    service: str = ""
    extensions: list[str] = []
    signatures: list[str] = []


def _unix_s(time: str | int) -> int | None:
    """The unix seconds of a project's or logstore's time, which may be a number, its digits, or a text of
    another form."""
    text = str(time)
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def decode(body: bytes, kind: type[T]) -> T:
    """The JSON as a value of the given type. Raises LogHubError BadResponse for a 200 of another form."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogHubError(Code.BAD_RESPONSE, 200, f"this is not an answer of SLS: {error}") from error
