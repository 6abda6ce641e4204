"""The JSON of the answers that the client reads, and what the port makes of it.

What for: one place that knows the spelling of keys (docs/sls-protocol.md 2.1, 2.3). What it must
not know: how the bytes came. Read next: `port`, `http`.
"""

from typing import TypeVar

import msgspec

from loghub.client.port import CheckpointInfo, GroupInfo, ShardInfo
from loghub.wire.errors import Code, LogHubError

T = TypeVar("T")


class Logstores(msgspec.Struct):
    """ListLogstores: one page."""

    logstores: list[str]
    total: int


class Shard(msgspec.Struct):
    """ListShards, SplitShard, MergeShards: one element."""

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


class Cursor(msgspec.Struct):
    """GetCursor."""

    cursor: str


class CursorTime(msgspec.Struct):
    """GetCursorTime: unix seconds."""

    cursor_time: int


class Group(msgspec.Struct):
    """ListConsumerGroup: one element."""

    name: str
    timeout: int
    order: bool

    def info(self) -> GroupInfo:
        return GroupInfo(name=self.name, timeout_s=self.timeout, order=self.order)


class Checkpoint(msgspec.Struct):
    """GetCheckPoint: one element."""

    shard: int
    checkpoint: str = ""
    updated: int = msgspec.field(name="updateTime", default=0)
    consumer: str = ""

    def info(self) -> CheckpointInfo:
        return CheckpointInfo(
            shard=self.shard, cursor=self.checkpoint, updated_unix_us=self.updated, consumer=self.consumer
        )


class Info(msgspec.Struct):
    """The embedded service's own ``/_loghub/v1/info``."""

    service: str = ""
    extensions: list[str] = []


def decode(body: bytes, kind: type[T]) -> T:
    """JSON to one of these; a 200 of another form is a LogHubError BadResponse."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise LogHubError(Code.BAD_RESPONSE, 200, f"the answer is not one of SLS: {error}") from error
