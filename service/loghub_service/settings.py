"""The settings and limits of one service process.

`__main__` builds them from the command line. Strict and relaxed limits are two values of `Limits`, not two
code paths. A limit that the command line can change carries its bounds and its help
(`loghub_service.limit_flags`); the limits of Kafka clients are in `KafkaLimits` and in the coordinator's
`KafkaGroupLimits`, the limits of Pulsar clients in `PulsarLimits`.
"""

from dataclasses import dataclass, field
from typing import Annotated

from loghub.wire.subscriptions import MAX_EXCHANGE_BYTES
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.kafka.groups import DEFAULT_GROUP_BYTES, DEFAULT_MAX_GROUPS
from loghub_service.kafka.producers import DEFAULT_MAX_PRODUCERS
from loghub_service.limit_flags import flag
from loghub_service.subscription.state import SubscriptionLimits

MIB = 1 << 20
KEEP_FOREVER_DAYS = 3650  # SLS's number for logs that are kept permanently
AROUND_A_BATCH = 64 << 10  # in a request of a Kafka or Pulsar producer, besides the log group that it becomes

LogGroupBytes = Annotated[
    int,
    flag(
        "--max-log-group-mib",
        1,
        30,  # what the vendor's newest SDK sends; with a full answer it is less than clients accept
        "size of one PutLogs request, compressed and not compressed, in MiB",
        unit=MIB,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on every input and queue (docs/sls-protocol.md 5); sizes in bytes."""

    # Open at the same time.
    connections: Annotated[
        int,
        flag(
            "--max-connections",
            10,
            1_000_000,
            "connections open at the same time; beyond it, connections without an authenticated request are "
            "closed first; at most half of the open files that the system allows, which endpoints share",
        ),
    ] = 5000
    body_bytes: LogGroupBytes = 10 * MIB  # of a body of PutLogs on the wire, before decompression
    raw_bytes: LogGroupBytes = 10 * MIB  # of a log group after decompression
    # Bodies and decompressed groups until they are committed.
    log_bytes: Annotated[
        int,
        flag(
            "--max-put-memory-mib",
            4,
            65_536,
            "total of the log groups that are received and not yet stored, in MiB",
            unit=MIB,
        ),
    ] = 128 * MIB
    response_bytes: Annotated[
        int,
        flag(
            "--max-answer-memory-mib",
            16,
            65_536,
            "total of the answers that clients have not read yet, in MiB",
            unit=MIB,
        ),
    ] = 128 * MIB
    pull_bytes: Annotated[
        int,
        flag(
            "--max-pull-mib",
            1,
            30,
            "size of a PullLogs answer in MiB; its last log group may exceed it",
            unit=MIB,
        ),
    ] = 10 * MIB
    projects: Annotated[int, flag("--max-projects", 1, 10_000, "projects")] = 150
    logstores_per_project: Annotated[int, flag("--max-logstores", 1, 10_000, "logstores of a project")] = 200
    shards_per_project: Annotated[
        int,
        flag(
            "--max-shards",
            1,
            10_000,
            "shards of a project, read-only ones included; each takes one or two open files",
        ),
    ] = 400
    shards_at_creation: Annotated[
        int,
        flag("--max-shards-at-creation", 1, 256, "shards with which a logstore is created; SLS allows 10"),
    ] = 64
    subscriptions: Annotated[
        int, flag("--max-subscriptions", 1, 100_000, "subscriptions, in all logstores together")
    ] = 5_000
    groups_per_logstore: Annotated[
        int, flag("--max-consumer-groups", 1, 1_000, "consumer groups of a logstore; SLS allows 30")
    ] = 30
    consumers_per_group: Annotated[int, flag("--max-consumers", 1, 10_000, "consumers of a group")] = 1000
    timeout_min_s: int = 1
    timeout_max_s: Annotated[
        int, flag("--max-group-timeout-s", 1, 30 * 24 * 3600, "timeout of a consumer group in seconds")
    ] = 24 * 3600
    body_timeout_s: float = 60
    json_bytes: int = 64 << 10  # of the body of any other request, which is decoded on the event loop
    exchange_bytes: int = MAX_EXCHANGE_BYTES  # of the body of an exchange
    json_timeout_s: float = 10
    json_free_bytes: int = 4 << 10  # of each, more than heartbeats and checkpoints need: never refused
    json_total_bytes: int = 16 * MIB  # total beyond those
    batch_bytes: int = 32 * MIB  # of the log groups that one commit writes
    response_timeout_s: float = 60  # since sending first had to wait for the client
    poll_s: int = 60  # the longest time of a long poll
    polls_per_key: int = 2000  # at the same time
    poll_bytes: int = 32 * MIB  # total of the requests of long polls
    head_bytes: int = 16 << 10  # of a request: method, path, query and headers
    headers: int = 100
    head_timeout_s: float = 15  # from the connection, or a request's first byte, to the end of its head
    linger_s: float = 10  # for the rest of a body that was refused
    pull_groups: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """An endpoint's listening address; ``advertised`` None is the address that a client used."""

    host: str
    port: int
    port_file: str | None = None
    advertised: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(EndpointSettings):
    """The Kafka endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings(EndpointSettings):
    """The Pulsar endpoint; with ``auto_create`` a topic that a client names is created, if its key may."""

    auto_create: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLimits:
    """Bounds on Kafka clients, besides those that hold for HTTP too (docs/kafka.md 6)."""

    connections: Annotated[
        int,
        flag(
            "--max-kafka-connections",
            10,
            1_000_000,
            "connections of Kafka clients open at the same time; beyond it, idle ones are closed first; at "
            "most a quarter of the open files that the system allows, or a sixth with --pulsar",
        ),
    ] = 5000
    idle_s: Annotated[
        int,
        flag(
            "--max-kafka-idle-s",
            10,
            24 * 3600,
            "time without a request after which a connection is closed, in seconds; Kafka's "
            "connections.max.idle.ms",
        ),
    ] = 600
    request_bytes: Annotated[
        int,
        flag(
            "--max-kafka-memory-mib",
            2,
            65_536,
            "total of the requests of Kafka clients that are not answered yet, in MiB; the size of one "
            "follows from --max-log-group-mib",
            unit=MIB,
        ),
    ] = 64 * MIB
    answer_bytes: Annotated[
        int,
        flag(
            "--max-kafka-answer-memory-mib",
            2,
            65_536,
            "total of the answers to Fetch that are not sent yet, in MiB",
            unit=MIB,
        ),
    ] = 64 * MIB
    fetch_bytes: Annotated[
        int,
        flag(
            "--max-kafka-fetch-mib",
            1,
            1024,
            "size of an answer to Fetch in MiB; its first batch may exceed it; Kafka's fetch.max.bytes",
            unit=MIB,
        ),
    ] = 16 * MIB
    groups: Annotated[
        int,
        flag("--max-kafka-groups", 1, 100_000, "consumer groups of Kafka clients, in all projects together"),
    ] = DEFAULT_MAX_GROUPS
    group_bytes: Annotated[
        int,
        flag(
            "--max-kafka-group-memory-mib",
            1,
            65_536,
            "total of the metadata and assignments of members and of the committed offsets of all those "
            "groups, in MiB, in memory and in the database",
            unit=MIB,
        ),
    ] = DEFAULT_GROUP_BYTES
    producers: Annotated[
        int,
        flag(
            "--max-kafka-producers",
            100,
            1_000_000,
            "idempotent producers that are remembered, each at one partition",
        ),
    ] = DEFAULT_MAX_PRODUCERS


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarLimits:
    """Bounds on Pulsar clients, besides those that hold for HTTP too (docs/pulsar.md 6)."""

    connections: Annotated[
        int,
        flag(
            "--max-pulsar-connections",
            10,
            1_000_000,
            "connections of Pulsar clients open at the same time; beyond it, idle ones are closed first; at "
            "most a quarter of the open files that the system allows, or a sixth with --kafka",
        ),
    ] = 5000
    message_bytes: Annotated[
        int,
        flag(
            "--max-pulsar-message-mib",
            1,
            30,
            "size of one message in MiB, by which clients cut larger ones into chunks if they may; Pulsar's "
            "maxMessageSize",
            unit=MIB,
        ),
    ] = 5 * MIB
    request_bytes: Annotated[
        int,
        flag(
            "--max-pulsar-memory-mib",
            2,
            65_536,
            "total of the messages of Pulsar producers that are not stored yet, in MiB",
            unit=MIB,
        ),
    ] = 64 * MIB
    answer_bytes: Annotated[
        int,
        flag(
            "--max-pulsar-answer-memory-mib",
            2,
            65_536,
            "total of the messages to Pulsar consumers that are not sent yet, in MiB",
            unit=MIB,
        ),
    ] = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The data directory, the listening address, and the intervals of background tasks."""

    data: str
    host: str
    port: int
    port_file: str | None = None
    admin: tuple[str, int] | None = None  # host and port
    kafka: KafkaSettings | None = None
    pulsar: PulsarSettings | None = None
    base_names: tuple[str, ...] = ()
    credentials_dir: str | None = None
    tls_certificate: str | None = None  # both files, or none
    tls_key: str | None = None
    segment_bytes: int = 16 * MIB
    retention_interval_s: float = 60
    ends_interval_s: float = 10  # bounds how much a lost tail may hide (`loghub_service.known_ends`)
    tick_interval_s: float = 0.5  # bounds how late a consumer's timeout is noticed
    commit_stall_s: float = 60  # without any commit although changes wait, the service is not healthy
    keep_alive_s: int = 75  # above the clients' 60 s (docs/sls-protocol.md 1.7)
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)
    kafka_limits: KafkaLimits = field(default_factory=KafkaLimits)
    kafka_groups: KafkaGroupLimits = field(default_factory=KafkaGroupLimits)
    pulsar_limits: PulsarLimits = field(default_factory=PulsarLimits)
    subscriptions: SubscriptionLimits = field(default_factory=SubscriptionLimits)


def contradiction(settings: ServiceSettings) -> str | None:
    """Which limits contradict each other, by the names of their flags; None if none do."""
    limits, kafka, groups = settings.limits, settings.kafka_limits, settings.kafka_groups
    if limits.log_bytes < limits.body_bytes + limits.raw_bytes:
        return (
            "--max-put-memory-mib must be at least twice --max-log-group-mib: a request is in memory as it "
            "was received and decompressed"
        )
    if limits.response_bytes < limits.pull_bytes + limits.raw_bytes:
        return (
            "--max-answer-memory-mib must be at least --max-pull-mib and --max-log-group-mib together: the "
            "last log group of an answer may exceed its size"
        )
    if limits.shards_at_creation > limits.shards_per_project:
        return "--max-shards-at-creation must not exceed --max-shards"
    if groups.min_session_timeout_ms > groups.max_session_timeout_ms:
        return "--min-kafka-session-s must not exceed --max-kafka-session-s"
    of_kafka = None if settings.kafka is None else _kafka_contradiction(limits, kafka)
    of_pulsar = None if settings.pulsar is None else _pulsar_contradiction(limits, settings.pulsar_limits)
    return of_kafka or of_pulsar


def _kafka_contradiction(limits: Limits, kafka: KafkaLimits) -> str | None:
    if kafka.request_bytes < limits.body_bytes + AROUND_A_BATCH:
        return "--max-kafka-memory-mib must be more than --max-log-group-mib: it has whole requests"
    if kafka.answer_bytes < kafka.fetch_bytes + limits.raw_bytes:
        return (
            "--max-kafka-answer-memory-mib must be at least --max-kafka-fetch-mib and "
            "--max-log-group-mib together: the first batch of an answer may exceed its size"
        )
    return None


def _pulsar_contradiction(limits: Limits, pulsar: PulsarLimits) -> str | None:
    if pulsar.message_bytes + AROUND_A_BATCH > limits.raw_bytes:
        return "--max-pulsar-message-mib must be less than --max-log-group-mib: a message becomes a log group"
    if pulsar.request_bytes < pulsar.message_bytes + AROUND_A_BATCH:
        return "--max-pulsar-memory-mib must be more than --max-pulsar-message-mib: it has whole messages"
    if pulsar.answer_bytes < pulsar.message_bytes + AROUND_A_BATCH:
        return (
            "--max-pulsar-answer-memory-mib must be more than --max-pulsar-message-mib: it has whole messages"
        )
    return None
