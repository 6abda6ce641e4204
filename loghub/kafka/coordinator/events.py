"""What can happen to a group: the requests of clients, and what the service itself reports.

The fields are those of Kafka's requests (https://kafka.apache.org/protocol.html#protocol_messages). Whatever
is random or read from a connection is handed in: new member ids, the client's host, the wall clock.
"""

from dataclasses import dataclass

from loghub.kafka.coordinator.group import NO_GENERATION, Protocol, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A client joins or rejoins.

    ``new_member_id`` is used if ``member_id`` is empty; it must never have been a member's.
    ``requires_member_id``: a client without id gets one with MEMBER_ID_REQUIRED, and joins with it
    (from version 4 on). Version 0 has no rebalance timeout; it is the session timeout then.
    """

    member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str = ""
    group_instance_id: str | None = None
    requires_member_id: bool = False
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader sends everyone's, as (member id, bytes)."""

    member_id: str
    generation: int
    group_instance_id: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    member_id: str
    generation: int
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members leave, as (member id, instance id). A static member may be named by its instance id alone."""

    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets to commit, as (partition, offset, metadata). A client that is no member has no generation and
    an empty member id."""

    offsets: tuple[tuple[TopicPartition, int, str], ...]
    unix_ms: int
    member_id: str = ""
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """Forget the offsets of partitions, as (name of the topic, partition)."""

    partitions: tuple[tuple[str, TopicPartition], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups names this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection of a waiting request is gone. A member that has joined for the first time, and whose
    client therefore may not even know its member id, is removed; any other has its session."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. Schedule it by `next_deadline`; only a tick lets anything expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePaused:
    """The service did not run for so long (a frozen machine, a throttled CPU) and received nothing meanwhile,
    so this time counts for no timeout. Apply it before the `Tick` that follows."""

    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Let offsets expire by the wall clock, and forget a group that has nothing left. Apply it every few
    minutes."""

    unix_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreDeleted:
    """The offsets of its shards are gone. Members notice by their metadata, and rejoin."""

    logstore: int


Request = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | OffsetDelete | DeleteGroup
Event = Request | ConnectionLost | Tick | ServicePaused | Cleanup | LogstoreDeleted
