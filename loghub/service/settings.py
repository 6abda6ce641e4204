"""What one service process is told at its start, and its bounds.

What for: strict and relaxed are two values, not two code paths. What it must not know: how
any of it is used. Read next: `__main__` (makes one from the command line).
"""

from dataclasses import dataclass, field

MIB = 1 << 20
KEEP_FOR_EVER_DAYS = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on every input and queue (docs/sls-protocol.md 5); sizes in bytes."""

    body_bytes: int = 10 * MIB  # of a request as it travels
    raw_bytes: int = 10 * MIB  # of a log group after decompression
    inflight_bytes: int = 128 * MIB  # of bodies being received or committed, all together
    inflight_requests: int = 2000
    answer_bytes: int = 128 * MIB  # of answers that their readers have not taken yet, all together
    body_timeout_s: float = 60
    pull_bytes: int = 10 * MIB  # the last group of an answer may pass it
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
class Settings:
    """Where the data lies and what is listened on."""

    data: str
    host: str
    port: int
    port_file: str | None = None
    base_names: tuple[str, ...] = ()
    credentials_dir: str | None = None
    segment_bytes: int = 16 * MIB
    retention_interval_s: float = 60
    tick_interval_s: float = 0.5  # how soon a consumer's timeout is noticed
    keep_alive_s: int = 75  # above the clients' 60 s (docs/sls-protocol.md 1.7)
    log_format: str = "json"
    limits: Limits = field(default_factory=Limits)
