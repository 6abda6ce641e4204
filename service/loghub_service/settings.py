"""The settings and limits of one service process.

`__main__` builds them from the command line. Strict and relaxed limits are two values of `Limits`, not two
code paths.

The limits that the command line can change, each with its bounds.

A limit is one number of `Limits`, or several that must grow together; those of Kafka clients are in
`KafkaLimits` and the coordinator's `Limits`. What no operator of the service has a reason to change, such as
the time for a head, has no flag.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.kafka.groups import DEFAULT_GROUP_BYTES, DEFAULT_MAX_GROUPS
from loghub_service.kafka.producers import DEFAULT_MOST_PRODUCERS

MIB = 1 << 20
KEEP_FOREVER_DAYS = 3650
AROUND_A_BATCH = 64 << 10  # in a Produce request of Kafka, besides the log group that it becomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on every input and queue (docs/sls-protocol.md 5); sizes in bytes."""

    body_bytes: int = 10 * MIB  # of a body of PutLogs on the wire, before decompression
    raw_bytes: int = 10 * MIB  # of a log group after decompression
    body_timeout_s: float = 60
    log_bytes: int = 128 * MIB  # total of PutLogs: bodies and decompressed groups until they are committed
    json_bytes: int = 64 << 10  # of the body of any other request, which is decoded on the event loop
    json_timeout_s: float = 10
    json_free_bytes: int = 4 << 10  # of each, more than heartbeats and checkpoints need: never refused
    json_total_bytes: int = 16 * MIB  # total beyond those
    response_bytes: int = 128 * MIB  # total of the responses that clients have not read yet
    batch_bytes: int = 32 * MIB  # of the log groups that one commit writes
    response_timeout_s: float = 60  # since sending first had to wait for the client
    connections: int = 5000  # open at the same time
    poll_s: int = 60  # the longest time that a request may wait for news
    polls_per_key: int = 2000  # at the same time
    poll_bytes: int = 32 * MIB  # total of the requests that wait for news
    head_bytes: int = 16 << 10  # of a request: method, path, query and headers
    headers: int = 100
    head_timeout_s: float = 15  # from the connection, or a request's first byte, to the end of its head
    linger_s: float = 10  # for the rest of a body that was refused
    pull_bytes: int = 10 * MIB  # the last log group of a response may exceed it
    pull_groups: int = 1000
    logstores_per_project: int = 200
    shards_per_project: int = 400
    shards_at_creation: int = 64
    groups_per_logstore: int = 30
    consumers_per_group: int = 1000
    projects: int = 150
    timeout_min_s: int = 1
    timeout_max_s: int = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The Kafka endpoint's listening address; ``advertised`` None is the address that a client used."""

    host: str
    port: int
    port_file: str | None = None
    advertised: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLimits:
    """Bounds on Kafka clients, besides those that hold for HTTP too (docs/kafka.md 6)."""

    connections: int = 5000  # open at the same time
    idle_s: int = 600  # of a connection without a request
    request_bytes: int = 64 * MIB  # total of the requests that are not answered yet
    answer_bytes: int = 64 * MIB  # total of the answers to Fetch that are not sent yet
    fetch_bytes: int = 16 * MIB  # of one of them; its first batch may exceed it
    groups: int = DEFAULT_MAX_GROUPS
    group_bytes: int = DEFAULT_GROUP_BYTES  # of all of them: metadata, assignments and offsets
    producers: int = DEFAULT_MOST_PRODUCERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The data directory, the listening address, and the intervals of background tasks."""

    data: str
    host: str
    port: int
    port_file: str | None = None
    admin: tuple[str, int] | None = None  # host and port
    kafka: KafkaSettings | None = None
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


_Owner = type[Limits] | type[KafkaLimits] | type[KafkaGroupLimits]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlag:
    """One flag. ``unit`` is what 1 of its number is in the fields of ``owner`` that it sets."""

    name: str
    fields: tuple[str, ...]
    least: int
    most: int
    help: str
    unit: int = 1
    owner: _Owner = Limits

    @property
    def default(self) -> int:
        value: int = getattr(self.owner(), self.fields[0])
        return value // self.unit


LIMIT_FLAGS = (
    LimitFlag(
        name="--max-connections",
        fields=("connections",),
        least=10,
        most=1_000_000,
        help="connections open at the same time; beyond it, connections without an authenticated request are "
        "closed first; at most half of the open files that the system allows, or a quarter with --kafka",
    ),
    LimitFlag(
        name="--max-log-group-mib",
        fields=("body_bytes", "raw_bytes"),
        least=1,
        most=30,  # what the vendor's newest SDK sends; with a full answer it is less than clients accept
        unit=MIB,
        help="size of one PutLogs request, compressed and not compressed, in MiB",
    ),
    LimitFlag(
        name="--max-put-memory-mib",
        fields=("log_bytes",),
        least=4,
        most=65_536,
        unit=MIB,
        help="total of the log groups that are received and not yet stored, in MiB",
    ),
    LimitFlag(
        name="--max-answer-memory-mib",
        fields=("response_bytes",),
        least=16,
        most=65_536,
        unit=MIB,
        help="total of the answers that clients have not read yet, in MiB",
    ),
    LimitFlag(
        name="--max-pull-mib",
        fields=("pull_bytes",),
        least=1,
        most=30,
        unit=MIB,
        help="size of a PullLogs answer in MiB; its last log group may exceed it",
    ),
    LimitFlag(name="--max-projects", fields=("projects",), least=1, most=10_000, help="projects"),
    LimitFlag(
        name="--max-logstores",
        fields=("logstores_per_project",),
        least=1,
        most=10_000,
        help="logstores of a project",
    ),
    LimitFlag(
        name="--max-shards",
        fields=("shards_per_project",),
        least=1,
        most=10_000,
        help="shards of a project, read-only ones included; each takes one or two open files",
    ),
    LimitFlag(
        name="--max-shards-at-creation",
        fields=("shards_at_creation",),
        least=1,
        most=256,
        help="shards with which a logstore is created; SLS allows 10",
    ),
    LimitFlag(
        name="--max-consumer-groups",
        fields=("groups_per_logstore",),
        least=1,
        most=1_000,
        help="consumer groups of a logstore; SLS allows 30",
    ),
    LimitFlag(
        name="--max-consumers",
        fields=("consumers_per_group",),
        least=1,
        most=10_000,
        help="consumers of a group",
    ),
    LimitFlag(
        name="--max-group-timeout-s",
        fields=("timeout_max_s",),
        least=1,
        most=30 * 24 * 3600,
        help="timeout of a consumer group in seconds",
    ),
)
KAFKA_LIMIT_FLAGS = (
    LimitFlag(
        name="--max-kafka-connections",
        owner=KafkaLimits,
        fields=("connections",),
        least=10,
        most=1_000_000,
        help="connections of Kafka clients open at the same time; beyond it, idle ones are closed first; at "
        "most a quarter of the open files that the system allows",
    ),
    LimitFlag(
        name="--max-kafka-idle-s",
        owner=KafkaLimits,
        fields=("idle_s",),
        least=10,
        most=24 * 3600,
        help="time without a request after which a connection is closed, in seconds; Kafka's "
        "connections.max.idle.ms",
    ),
    LimitFlag(
        name="--max-kafka-memory-mib",
        owner=KafkaLimits,
        fields=("request_bytes",),
        least=2,
        most=65_536,
        unit=MIB,
        help="total of the requests of Kafka clients that are not answered yet, in MiB; the size of one "
        "follows from --max-log-group-mib",
    ),
    LimitFlag(
        name="--max-kafka-answer-memory-mib",
        owner=KafkaLimits,
        fields=("answer_bytes",),
        least=2,
        most=65_536,
        unit=MIB,
        help="total of the answers to Fetch that are not sent yet, in MiB",
    ),
    LimitFlag(
        name="--max-kafka-fetch-mib",
        owner=KafkaLimits,
        fields=("fetch_bytes",),
        least=1,
        most=1024,
        unit=MIB,
        help="size of an answer to Fetch in MiB; its first batch may exceed it; Kafka's fetch.max.bytes",
    ),
    LimitFlag(
        name="--max-kafka-groups",
        owner=KafkaLimits,
        fields=("groups",),
        least=1,
        most=100_000,
        help="consumer groups of Kafka clients, in all projects together",
    ),
    LimitFlag(
        name="--max-kafka-group-memory-mib",
        owner=KafkaLimits,
        fields=("group_bytes",),
        least=1,
        most=65_536,
        unit=MIB,
        help="total of the metadata and assignments of members and of the committed offsets of all those "
        "groups, in MiB, in memory and in the database",
    ),
    LimitFlag(
        name="--max-kafka-members",
        owner=KafkaGroupLimits,
        fields=("max_members",),
        least=1,
        most=10_000,
        help="members of a consumer group of Kafka clients; Kafka's group.max.size",
    ),
    LimitFlag(
        name="--min-kafka-session-s",
        owner=KafkaGroupLimits,
        fields=("min_session_timeout_ms",),
        least=1,
        most=24 * 3600,
        unit=1000,
        help="least session timeout that a member may ask for, in seconds; Kafka's "
        "group.min.session.timeout.ms",
    ),
    LimitFlag(
        name="--max-kafka-session-s",
        owner=KafkaGroupLimits,
        fields=("max_session_timeout_ms",),
        least=1,
        most=24 * 3600,
        unit=1000,
        help="greatest session timeout, in seconds; Kafka's group.max.session.timeout.ms",
    ),
    LimitFlag(
        name="--kafka-offsets-retention-hours",
        owner=KafkaGroupLimits,
        fields=("offsets_retention_ms",),
        least=1,
        most=10 * 365 * 24,
        unit=3_600_000,
        help="time after which the offsets of a group without members expire, in hours; Kafka's "
        "offsets.retention.minutes",
    ),
    LimitFlag(
        name="--max-kafka-producers",
        owner=KafkaLimits,
        fields=("producers",),
        least=100,
        most=1_000_000,
        help="idempotent producers that are remembered, each at one partition",
    ),
)


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each limit. A number outside its bounds is a usage error."""
    group = parser.add_argument_group(
        "limits", "What exceeds a limit is refused with the limit in the message."
    )
    _add_flags(group, LIMIT_FLAGS)
    group = parser.add_argument_group("limits of the Kafka endpoint (docs/kafka.md 6)")
    _add_flags(group, KAFKA_LIMIT_FLAGS)


def _add_flags(group: argparse._ArgumentGroup, flags: Sequence[LimitFlag]) -> None:
    for flag in flags:
        group.add_argument(
            flag.name,
            type=_number_of(flag),
            default=flag.default,
            metavar="N",
            help=f"{flag.help} (default: %(default)s, {flag.least} to {flag.most})",
        )


def _number_of(flag: LimitFlag) -> Callable[[str], int]:
    def number(text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(flag.most))
        if not is_number or not flag.least <= int(text) <= flag.most:
            raise argparse.ArgumentTypeError(f"must be a number from {flag.least} to {flag.most}")
        return int(text)

    return number


def limits_of(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Limits:
    """The limits of a command line. Limits that contradict each other are a usage error."""
    limits = replace(Limits(), **_chosen(parsed, Limits))
    if limits.log_bytes < limits.body_bytes + limits.raw_bytes:
        parser.error(
            "--max-put-memory-mib must be at least twice --max-log-group-mib: a request is in memory as it "
            "was received and decompressed"
        )
    if limits.response_bytes < limits.pull_bytes + limits.raw_bytes:
        parser.error(
            "--max-answer-memory-mib must be at least --max-pull-mib and --max-log-group-mib together: the "
            "last log group of an answer may exceed its size"
        )
    if limits.shards_at_creation > limits.shards_per_project:
        parser.error("--max-shards-at-creation must not exceed --max-shards")
    return limits


def kafka_limits_of(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace, limits: Limits
) -> tuple[KafkaLimits, KafkaGroupLimits]:
    """Those of Kafka clients, besides the ``limits`` of the same command line, as `limits_of`."""
    kafka = replace(KafkaLimits(), **_chosen(parsed, KafkaLimits))
    groups = replace(KafkaGroupLimits(), **_chosen(parsed, KafkaGroupLimits))
    if groups.min_session_timeout_ms > groups.max_session_timeout_ms:
        parser.error("--min-kafka-session-s must not exceed --max-kafka-session-s")
    if parsed.kafka is not None:
        if kafka.request_bytes < limits.body_bytes + AROUND_A_BATCH:
            parser.error(
                "--max-kafka-memory-mib must be more than --max-log-group-mib: it has whole requests"
            )
        if kafka.answer_bytes < kafka.fetch_bytes + limits.raw_bytes:
            parser.error(
                "--max-kafka-answer-memory-mib must be at least --max-kafka-fetch-mib and "
                "--max-log-group-mib together: the first batch of an answer may exceed its size"
            )
    return kafka, groups


def _chosen(parsed: argparse.Namespace, owner: _Owner) -> dict[str, int]:
    """The fields of the owner, as the flags have them."""
    return {
        field: getattr(parsed, flag.name.removeprefix("--").replace("-", "_")) * flag.unit
        for flag in LIMIT_FLAGS + KAFKA_LIMIT_FLAGS
        for field in flag.fields
        if flag.owner is owner
    }
