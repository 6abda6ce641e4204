"""The settings of a consumer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from loghub.client.port import Credentials
from loghub.processor_settings import RetryLogstore
from loghub.worker_contract import DeadLetterLogstore, OnFailure
from loghub_worker.backoff import Backoff, without_jitter
from loghub_worker.consumer.checkpoint_store import CheckpointStore
from loghub_worker.consumer.shard_step import ReceiveLimits
from loghub_worker.consumer.unacknowledged import Redelivery
from loghub_worker.failure.origin import Origin

LEAST_FETCH_INTERVAL_S = 0.2
RETRY = OnFailure()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """One consumer of a consumer group. Raises `ValueError` for a value that cannot work.

    `credentials` is an access key, or a function that is called before each request, so that keys can rotate
    (`loghub_worker.api.read_key` reads one from a folder). A request for which it raises has failed, and is
    sent again later.
    """

    endpoint: str  # without the project, such as https://cn-hangzhou.log.aliyuncs.com
    project: str
    credentials: Credentials | Callable[[], Credentials]
    logstore: str = ""  # left out only for a `MultiLogstoreConsumer`
    consumer_group: str = ""  # with `shards` only a name for positions in the checkpoint store
    consumer: str = ""  # this consumer's name; no two live consumers of a group may share one
    # Read these shards, all of them and always, and join no group. Positions are only in `checkpoint_store`;
    # without one, each run begins at `start_position` or where the listener seeks. None: the group's.
    shards: tuple[int, ...] | None = None
    # Where a shard without a checkpoint begins; int: the time of receipt in unix seconds.
    start_position: Literal["begin", "end"] | int = "begin"
    # Shards with higher numbers begin at their first log (docs/decisions/worker.md). None: so do those that
    # were split or merged from shards of which the group has a checkpoint.
    last_initial_shard: int | None = None
    # Everything that was received before this time, in unix seconds, is processed; then `run` returns.
    # None: it runs until it is stopped.
    end_time_s: int | None = None
    # The log service hands over only what this SPL query returns, such as "* | where status >= '500'". Of the
    # real SLS only; the embedded service refuses it. Logs stay in order: `on_failure` must be "Retry".
    query: str = ""
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
    max_buffered_bytes: int = 32 << 20  # pulled and not yet processed, of all shards together, about
    max_pulls: int = 4  # in flight at once
    # Processors run in so many other processes, so that one that computes for long, hangs or crashes takes
    # neither the heartbeats nor other shards with it (docs/processor.md 9.1). 0: in this process.
    processes: int = 0
    load_timeout_s: float = 120.0  # with processes, for one to import the factory's module
    batch_timeout_s: float = 600.0  # with processes: one is ended in which a call takes longer
    # Shards wait while others of the process, with a higher priority, have a backlog.
    priority: int = 0
    # "batch": what `process` returns from is acknowledged, but for what was refused with `Tracker.nack`.
    # "log": nothing is acknowledged but by `Tracker.ack`, which is also what saves the checkpoint.
    acknowledge: Literal["batch", "log"] = "batch"
    # What was refused comes again after the first of these pauses, then after twice as long each time, up to
    # the second, unless `nack` says when.
    redelivery_delay_s: float = 1.0
    max_redelivery_delay_s: float = 60.0
    # "log": what was neither acknowledged nor refused for so long comes again; None: never. The next time it
    # has twice as long, up to the second of these; None: as long each time.
    ack_timeout_s: float | None = None
    max_ack_timeout_s: float | None = None
    # Log groups of a shard from the first that is not acknowledged to the last that was handed over; beyond,
    # nothing new is. So many are repeated, at most, after a crash or a move of the shard.
    max_unacknowledged: int = 10_000
    # What happens to logs that `process` raised for, alone, or that were refused, `max_attempts` times. With
    # "Retry" they come again forever, and a batch for which `process` raises is not divided.
    on_failure: OnFailure = RETRY
    # Where logs wait before they are settled by `on_failure`, which must be "DeadLetter" or "Skip". A
    # consumer of this logstore runs in the same process, with processors of its own.
    retry: RetryLogstore | None = None
    # The user's database, in which `Tracker.transaction` saves positions: they take precedence over the
    # checkpoints of the log service. Logs stay in order and cannot be refused.
    checkpoint_store: CheckpointStore | None = None
    drain_timeout_s: float = 60.0  # how long a shutdown waits for running batches
    leave: bool = True  # at the end; otherwise the shards stay reserved for this name until the timeout
    # Set by a consumer for the one that reads its retry logstore: whose logs wait there.
    retries_of: Origin | None = None

    def __post_init__(self) -> None:
        least: dict[str, float] = {
            "timeout_s": 1,
            "fetch_interval_s": LEAST_FETCH_INTERVAL_S,
            "checkpoint_interval_s": 0,
            "max_bytes": 1,
            "max_wait_s": 0,
            "max_buffered_bytes": 1,
            "max_pulls": 1,
            "max_unacknowledged": 1,
            "max_redelivery_delay_s": self.redelivery_delay_s,
            "drain_timeout_s": 0,
            "processes": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {value:g}")
        for name in ("heartbeat_interval_s", "redelivery_delay_s", "load_timeout_s", "batch_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.acknowledge not in ("batch", "log"):
            raise ValueError(f"acknowledge is {self.acknowledge!r}; it must be 'batch' or 'log'")
        if self.ack_timeout_s is not None and (self.ack_timeout_s <= 0 or self.acknowledge != "log"):
            raise ValueError(
                f"ack_timeout_s is {self.ack_timeout_s}; it must be above 0, and needs acknowledge='log'"
            )
        if self.max_ack_timeout_s is not None and self.max_ack_timeout_s < (self.ack_timeout_s or math.inf):
            raise ValueError(
                f"max_ack_timeout_s is {self.max_ack_timeout_s}; it must be at least ack_timeout_s, which it"
                " needs"
            )
        if self.max_logs is not None and self.max_logs < 1:
            raise ValueError(f"max_logs is {self.max_logs}; it must be at least 1, or None for no limit")
        if (self.on_failure.policy == "DeadLetter") != (self.on_failure.dead_letter is not None):
            raise ValueError("on_failure needs dead_letter with the policy 'DeadLetter', and only with it")
        if self.retry is not None and self.on_failure.policy not in ("DeadLetter", "Skip"):
            raise ValueError("retry needs on_failure with the policy 'DeadLetter' or 'Skip'")
        if self.retry is not None and not all(delay_s > 0 for delay_s in self.retry.delays_s):
            raise ValueError(f"retry has the delays {self.retry.delays_s}; all must be above 0")
        keeps_order = self.acknowledge == "batch" and self.on_failure.policy in ("Retry", "Stop")
        if self.checkpoint_store is not None and not keeps_order:
            raise ValueError("checkpoint_store needs acknowledge='batch' and on_failure 'Retry' or 'Stop'")
        if self.checkpoint_store is not None and self.processes:
            raise ValueError(
                "checkpoint_store needs processes=0; the process with its connection must commit"
            )
        if self.query and (self.on_failure.policy != "Retry" or self.end_time_s is not None):
            raise ValueError("query needs on_failure 'Retry', and no end_time_s")
        if self.query and self.processes:
            raise ValueError("query needs processes=0; batches that it has left gaps in cannot be divided")
        self._check_names()
        self._check_targets()

    def _check_targets(self) -> None:
        """What fails must not come back as a new log, which fails again."""
        if self.is_of_retries:
            return
        if self.logstore and self.logstore in self.targets:
            raise ValueError(
                f"logs of {self.logstore} that fail would be written into {self.logstore} itself, and fail"
                " again; name another logstore in dead_letter and retry"
            )
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(
                f"dead_letter and retry both name {self.targets[0]}, so that dead letters would be tried"
                " again; name two logstores"
            )

    @property
    def targets(self) -> tuple[str, ...]:
        """The logstores of this project into which logs are written that fail."""
        dead_letter = self.on_failure.dead_letter
        found = [] if self.retry is None else [self.retry.logstore]
        if isinstance(dead_letter, DeadLetterLogstore) and dead_letter.project == self.project:
            found.append(dead_letter.logstore)
        return tuple(found)

    def _check_names(self) -> None:
        needed = ["endpoint", "project"]
        if self.shards is None:
            needed += ["consumer_group", "consumer"]
        elif not self.shards:
            raise ValueError("shards is empty; name at least one shard, or None for those of the group")
        elif self.retry is not None:
            raise ValueError("retry needs a consumer group, so shards must be None")
        elif self.checkpoint_store is not None:
            needed.append("consumer_group")
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")

    @property
    def is_of_retries(self) -> bool:
        """Whether the logstore is a retry logstore, whose logs are handed over at their time."""
        return self.retries_of is not None

    @property
    def origin(self) -> Origin:
        """What is written with logs that are put elsewhere."""
        return Origin(project=self.project, logstore=self.logstore, consumer_group=self.consumer_group)

    @property
    def limits(self) -> ReceiveLimits:
        return ReceiveLimits(max_logs=self.max_logs, max_bytes=self.max_bytes, max_wait_s=self.max_wait_s)

    @property
    def _ack_timeouts(self) -> Backoff | None:
        if self.ack_timeout_s is None:
            return None
        longest_s = self.max_ack_timeout_s or self.ack_timeout_s
        return Backoff(first_s=self.ack_timeout_s, longest_s=longest_s, random=without_jitter)

    @property
    def redelivery(self) -> Redelivery:
        backoff = Backoff(
            first_s=self.redelivery_delay_s, longest_s=self.max_redelivery_delay_s, random=without_jitter
        )
        return Redelivery(
            by_log=self.acknowledge == "log",
            backoff=backoff,
            ack_timeouts=self._ack_timeouts,
            max_unacknowledged=self.max_unacknowledged,
            defers_for=None if self.retries_of is None else frozenset({self.retries_of, self.origin}),
            max_attempts=None if self.on_failure.policy == "Retry" else self.on_failure.max_attempts,
        )
