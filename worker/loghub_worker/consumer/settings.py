"""The settings of a consumer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from loghub.client.port import Credentials
from loghub_worker.consumer.shard_flow import ReceiveLimits

LEAST_FETCH_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """One consumer of a consumer group. Raises `ValueError` for a value that cannot work.

    `credentials` is an access key, or a function that is called before each request, so that keys can rotate
    (`loghub_worker.api.read_key` reads one from a folder).
    """

    endpoint: str  # without the project, such as https://cn-hangzhou.log.aliyuncs.com
    project: str
    logstore: str
    consumer_group: str
    consumer: str  # this consumer's name; no two live consumers of a group may share one
    credentials: Credentials | Callable[[], Credentials]
    # Where a shard without a checkpoint begins; int: the time of receipt in unix seconds.
    start_position: Literal["begin", "end"] | int = "begin"
    # Shards with higher numbers begin at their first log (docs/decisions/worker.md). None: no shard does.
    last_initial_shard: int | None = None
    create_group: bool = False  # if it does not exist; an existing one is never changed
    timeout_s: int = 60  # of a group that is created: a consumer that is silent for so long loses its shards
    in_order: bool = False  # of a group that is created: children of a split wait for their parent
    heartbeat_interval_s: float = 5.0  # at most; a third of the group's timeout if that is less
    fetch_interval_s: float = LEAST_FETCH_INTERVAL_S  # at the end of a shard; before it, pulls never pause
    checkpoint_interval_s: float = 5.0  # how often what `save(persist=False)` noted is sent
    # A batch is complete with this many logs or bytes, or once its first log group waits for so long,
    # whichever comes first. A log group is never divided.
    max_logs: int | None = None
    max_bytes: int = 4 << 20
    max_wait_s: float = 0.0
    max_buffered_bytes: int = 16 << 20  # pulled and not yet processed, of all shards together, about
    max_pulls: int = 4  # in flight at once
    drain_timeout_s: float = 60.0  # how long a shutdown waits for running batches
    leave: bool = True  # at the end; otherwise the shards stay reserved for this name until the timeout

    def __post_init__(self) -> None:
        least: dict[str, float] = {
            "timeout_s": 1,
            "fetch_interval_s": LEAST_FETCH_INTERVAL_S,
            "checkpoint_interval_s": 0,
            "max_bytes": 1,
            "max_wait_s": 0,
            "max_buffered_bytes": 1,
            "max_pulls": 1,
            "drain_timeout_s": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {value:g}")
        if self.heartbeat_interval_s <= 0:
            raise ValueError(f"heartbeat_interval_s is {self.heartbeat_interval_s}; it must be above 0")
        if self.max_logs is not None and self.max_logs < 1:
            raise ValueError(f"max_logs is {self.max_logs}; it must be at least 1, or None for no limit")
        for name in ("endpoint", "project", "logstore", "consumer_group", "consumer"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")

    @property
    def limits(self) -> ReceiveLimits:
        return ReceiveLimits(max_logs=self.max_logs, max_bytes=self.max_bytes, max_wait_s=self.max_wait_s)
