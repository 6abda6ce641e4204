"""The settings and limits of one service process.

`__main__` builds them from the command line. Strict and relaxed limits are two values of `Limits`, not two
code paths.
"""

from dataclasses import dataclass, field

MIB = 1 << 20
KEEP_FOREVER_DAYS = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on every input and queue (docs/sls-protocol.md 5); sizes in bytes."""

    body_bytes: int = 10 * MIB  # of a request body on the wire, before decompression
    raw_bytes: int = 10 * MIB  # of a log group after decompression
    inflight_bytes: int = 128 * MIB  # total of the bodies that are being received or committed
    inflight_requests: int = 2000
    response_bytes: int = 128 * MIB  # total of the responses that clients have not read yet
    body_timeout_s: float = 60
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
class ServiceSettings:
    """The data directory, the listening address, and the intervals of background tasks."""

    data: str
    host: str
    port: int
    port_file: str | None = None
    base_names: tuple[str, ...] = ()
    credentials_dir: str | None = None
    segment_bytes: int = 16 * MIB
    retention_interval_s: float = 60
    tick_interval_s: float = 0.5  # bounds how late a consumer's timeout is noticed
    keep_alive_s: int = 75  # above the clients' 60 s (docs/sls-protocol.md 1.7)
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)
