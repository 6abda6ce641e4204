"""The settings and limits of one service process.

`__main__` builds them from the command line. Strict and relaxed limits are two values of `Limits`, not two
code paths.
"""

from dataclasses import dataclass, field

from loghub.kafka.coordinator.group import Limits as KafkaGroupLimits
from loghub.kafka.group_memory import DEFAULT_GROUP_BYTES
from loghub.kafka.groups import DEFAULT_MAX_GROUPS
from loghub.kafka.producers import DEFAULT_MOST_PRODUCERS

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
    ends_interval_s: float = 10  # bounds how much a lost tail may hide (`loghub.service.known_ends`)
    tick_interval_s: float = 0.5  # bounds how late a consumer's timeout is noticed
    commit_stall_s: float = 60  # without any commit although changes wait, the service is not healthy
    keep_alive_s: int = 75  # above the clients' 60 s (docs/sls-protocol.md 1.7)
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)
    kafka_limits: KafkaLimits = field(default_factory=KafkaLimits)
    kafka_groups: KafkaGroupLimits = field(default_factory=KafkaGroupLimits)
