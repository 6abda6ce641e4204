"""The settings of a consumer, its connections, and its consumer group at the start, which has the timeout or
is created.

The modules log through structlog, whose default prints on standard output. In a program that does not use
structlog, messages go to Python's `logging`; a program that uses structlog has configured it, and keeps its
configuration.
"""

import math
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import structlog

from loghub.backoff import Backoff, without_jitter
from loghub.client.choice import ClientKind, check_client, open_client
from loghub.client.port import Credentials, GroupInfo, LogHub, Timeouts
from loghub.contract.processor import RetryLogstore
from loghub.contract.worker import DeadLetterLogstore, OnFailure
from loghub.domain.subscription import SubscriptionType
from loghub.wire.errors import Code, LogHubError
from loghub.wire.subscriptions import MAX_LEASE_S, MAX_PRIORITY
from loghub_consumer.checkpoint_store import CheckpointStore, StoredShard
from loghub_consumer.failure.retry_logstore import Origin
from loghub_consumer.held_shard import ReceiveLimits
from loghub_consumer.log_context import about
from loghub_consumer.processor import ProcessorFactory
from loghub_consumer.running_batches import RunningBatches
from loghub_consumer.unacknowledged import RedeliveryRules


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Given by `loghub_worker.processing`, or made for `ConsumerSettings.processes`. With them every batch
    for which `process` raises is divided, also with the policy ``Retry``. A worker remembers attempts from
    one of its processes to the next; a program has neither timeouts nor `state_dir`."""

    timeout_s: int | None  # None: the group has it
    retry_timeout_s: int | None  # None: the group in the retry logstore has it
    state_dir: Path | None  # keeps the facts about failed logs for the next process
    batch_timeout_s: float  # after which a call of `process` is ended, with its process
    restart_s: float  # the first pause after a process has ended
    retry_factory: ProcessorFactory  # for the shards of the retry logstore
    running: RunningBatches  # including the batches of the retry logstore

    def of_retries(self) -> "WorkerOptions":
        """The options of the consumer of the retry logstore."""
        folder = None if self.state_dir is None else self.state_dir / "retries"
        return replace(self, state_dir=folder, timeout_s=self.retry_timeout_s)


MIN_FETCH_INTERVAL_S = 0.2  # five requests a second; SLS allows 100 for a shard, and others read it too
RETRY = OnFailure()
PREFETCH_LOGS = 1_000  # as many as the receiver queue of a client of Pulsar has


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """How a consumer takes part in a subscription of the embedded service (docs/processor.md 11). Raises
    `ValueError` for an invalid value, and `TypeError` for a type that is none."""

    type: SubscriptionType
    # KeyShared: the fields of a log that are its key; empty: the key of a log that was written with one.
    key: tuple[str, ...] = ()
    # The consumers with the lowest number come first: in Failover they are active, and in Shared the others
    # get logs only while these have no room.
    priority: int = 0
    # KeyShared: half-open ranges of the 65,536 slots of keys that this consumer takes; None: the service
    # divides the slots among the consumers.
    slots: tuple[tuple[int, int], ...] | None = None
    prefetch_logs: int = PREFETCH_LOGS  # received and not yet handed to a processor, at most

    def __post_init__(self) -> None:
        if not isinstance(self.type, SubscriptionType):
            raise TypeError(f"type is {self.type!r}; it must be a loghub_consumer.SubscriptionType")
        if self.type is not SubscriptionType.KEY_SHARED and (self.key or self.slots is not None):
            raise ValueError(f"key and slots need the type {SubscriptionType.KEY_SHARED}; it is {self.type}")
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise ValueError(f"priority is {self.priority}; it must be from 0 to {MAX_PRIORITY}")
        if self.prefetch_logs < 1:
            raise ValueError(f"prefetch_logs is {self.prefetch_logs}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """One consumer of a consumer group. Raises `ValueError` for an invalid value, and `ImportError` for a
    client whose package is not installed.

    `credentials` is an access key, or a function that is called before each request, so that keys can rotate
    (`loghub_consumer.read_key` reads one from a folder). If the function raises, the request has failed, and
    is sent again later.
    """

    endpoint: str  # without the project, such as https://cn-hangzhou.log.aliyuncs.com
    project: str
    credentials: Credentials | Callable[[], Credentials]
    # The client of the log service: our own, or "sdk", the vendor's (the extra `sdk`), which lacks the
    # extensions of the embedded service.
    client: ClientKind = "http"
    logstore: str = ""  # left out only for a `MultiLogstoreConsumer`
    consumer_group: str = ""  # with `shards` only a name for positions in the checkpoint store
    consumer: str = ""  # this consumer's name; no two live consumers of a group may share one
    # A subscription with the name `consumer_group` in place of a consumer group: the log service keeps the
    # acknowledgment of each log, and with the types Shared and KeyShared every consumer gets logs of every
    # shard. Only the embedded service has it; needs acknowledge="log". `timeout_s` is the lease, and
    # `max_unacknowledged` counts logs of all shards together.
    subscription: SubscriptionOptions | None = None
    # Read these shards, all of them and always, and join no group. Positions are only in `checkpoint_store`;
    # without one, each run begins at `start_position` or where the listener seeks. None: the group's.
    shards: tuple[int, ...] | None = None
    # Where a shard without a checkpoint begins; int: the time of receipt in unix seconds.
    start_position: Literal["begin", "end"] | int = "begin"
    # Shards with higher numbers begin at their first log (docs/decisions/worker.md). None: shards begin there
    # that were split or merged from shards with a checkpoint of the group.
    last_initial_shard: int | None = None
    # Everything that was received before this time, in unix seconds, is processed; then `run` returns.
    # None: it runs until it is stopped.
    end_time_s: int | None = None
    # The log service hands over only the logs that this SPL query returns, such as "* | where status >=
    # '500'". Only the real SLS has it; the embedded service refuses it. Logs stay in order: `on_failure` must
    # be "Retry".
    query: str = ""
    create_group: bool = False  # if it does not exist; an existing one is never changed
    # For a group that is created: a consumer that is silent for this long loses its shards.
    timeout_s: int = 60
    in_order: bool = False  # for a group that is created: children of a split wait for their parent
    heartbeat_interval_s: float = 5.0  # at most; a third of the group's timeout if that is less
    fetch_interval_s: float = MIN_FETCH_INTERVAL_S  # at the end of a shard; before it, pulls never pause
    checkpoint_interval_s: float = 5.0  # how often what `save(persist=False)` noted is sent
    # A batch is complete with this many logs or bytes, or once its first log group has waited for this time,
    # whichever comes first. A log group is never divided.
    max_logs: int | None = None
    max_bytes: int = 4 << 20
    max_wait_s: float = 0.0
    max_buffered_bytes: int = 32 << 20  # pulled and not yet processed, of all shards together, about
    max_pulls: int = 4  # in flight at once
    # The number of other processes for the processors, so that a processor that computes for long, hangs or
    # crashes affects neither the heartbeats nor other shards (docs/processor.md 9.1). 0: this process.
    processes: int = 0
    load_timeout_s: float = 120.0  # with processes, for one to import the factory's module
    batch_timeout_s: float = 600.0  # with processes: one is ended in which a call takes longer
    # Shards wait while shards of the process with a higher priority have a backlog.
    priority: int = 0
    # "batch": when `process` returns, the batch is acknowledged, except for logs that were refused with
    # `Tracker.nack`. "log": only `Tracker.ack` acknowledges logs, and also saves the checkpoint.
    acknowledge: Literal["batch", "log"] = "batch"
    # Refused logs are redelivered after the first of these pauses, then after twice as long each time, up to
    # the second, unless `nack` has a delay.
    redelivery_delay_s: float = 1.0
    max_redelivery_delay_s: float = 60.0
    # "log": logs that are neither acknowledged nor refused within this time are redelivered; None: never. The
    # time doubles with each redelivery, up to the second of these; None: it does not.
    ack_timeout_s: float | None = None
    max_ack_timeout_s: float | None = None
    # Log groups of a shard from the first that is not acknowledged to the last that was handed over; at this
    # number, no new one is handed over. At most this many are repeated after a crash or a move of the shard.
    max_unacknowledged: int = 10_000
    # What happens to logs for which `process` raised, alone, or that were refused, `max_attempts` times. With
    # "Retry" they are redelivered forever, and a batch for which `process` raises is not divided.
    on_failure: OnFailure = RETRY
    # Where logs wait before they are settled by `on_failure`, which must be "DeadLetter" or "Skip". A
    # consumer of this logstore runs in the same process, with processors of its own.
    retry: RetryLogstore | None = None
    # The user's database, in which `Tracker.transaction` saves positions: they take precedence over the
    # checkpoints of the log service. Logs stay in order and cannot be refused.
    checkpoint_store: CheckpointStore | None = None
    drain_timeout_s: float = 60.0  # how long a shutdown waits for running batches
    leave: bool = True  # at the end; otherwise the shards stay reserved for this name until the timeout
    # Set by a consumer for the consumer of its retry logstore: the group whose logs wait there.
    retries_of: Origin | None = None

    def __post_init__(self) -> None:
        check_client(self.client)
        minimum: dict[str, float] = {
            "timeout_s": 1,
            "fetch_interval_s": MIN_FETCH_INTERVAL_S,
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
        for name, value in minimum.items():
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
        if self.subscription is not None:
            self._check_subscription()

    def _check_subscription(self) -> None:
        """Raises `ValueError` for settings that a subscription cannot have."""
        if self.acknowledge != "log":
            raise ValueError("subscription needs acknowledge='log'; single logs are acknowledged")
        if self.client != "http":
            raise ValueError(
                f"subscription needs client='http'; the client {self.client!r} lacks the extensions of the"
                " embedded service"
            )
        if self.timeout_s > MAX_LEASE_S:
            raise ValueError(f"timeout_s is {self.timeout_s}; a subscription allows {MAX_LEASE_S:g}")
        others = {
            "shards": (self.shards is not None, "the log service decides which logs a consumer gets"),
            "last_initial_shard": (
                self.last_initial_shard is not None,
                "shards that are made later begin at their first log in any case",
            ),
            "end_time_s": (self.end_time_s is not None, "other consumers may still have earlier logs"),
            "query": (bool(self.query), "the embedded service evaluates none"),
        }
        for name, (is_set, reason) in others.items():
            if is_set:
                raise ValueError(f"{name} cannot be used with subscription, because {reason}; leave it out")

    def _check_targets(self) -> None:
        """Raises `ValueError` if failed logs would be read again as new logs, which fail again."""
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
        logstores = [] if self.retry is None else [self.retry.logstore]
        if isinstance(dead_letter, DeadLetterLogstore) and dead_letter.project == self.project:
            logstores.append(dead_letter.logstore)
        return tuple(logstores)

    def _check_names(self) -> None:
        needed = ["endpoint", "project"]
        if self.shards is None:
            needed += ["consumer_group", "consumer"]
        elif not self.shards:
            raise ValueError(
                "shards is empty; name at least one shard, or None for the shards that the group assigns"
            )
        elif self.retry is not None:
            raise ValueError("retry needs a consumer group, so shards must be None")
        elif self.checkpoint_store is not None:
            needed.append("consumer_group")
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")

    @property
    def leaves_at_end(self) -> bool:
        """Whether the consumer leaves at the end. Logs that are out of a subscription must not wait until the
        lease is over."""
        return self.leave or self.subscription is not None

    @property
    def is_of_retries(self) -> bool:
        """Whether the logstore is a retry logstore, whose logs are handed over at their time."""
        return self.retries_of is not None

    @property
    def origin(self) -> Origin:
        """The origin that is written with logs that are put into another logstore."""
        return Origin(
            project=self.project,
            logstore=self.logstore,
            consumer_group=self.consumer_group,
            is_subscription=self.subscription is not None,
        )

    @property
    def limits(self) -> ReceiveLimits:
        return ReceiveLimits(max_logs=self.max_logs, max_bytes=self.max_bytes, max_wait_s=self.max_wait_s)

    @property
    def _ack_timeouts(self) -> Backoff | None:
        if self.ack_timeout_s is None:
            return None
        max_s = self.max_ack_timeout_s or self.ack_timeout_s
        return Backoff(first_s=self.ack_timeout_s, max_s=max_s, random=without_jitter)

    @property
    def redelivery(self) -> RedeliveryRules:
        backoff = Backoff(
            first_s=self.redelivery_delay_s, max_s=self.max_redelivery_delay_s, random=without_jitter
        )
        return RedeliveryRules(
            by_log=self.acknowledge == "log",
            backoff=backoff,
            ack_timeouts=self._ack_timeouts,
            max_unacknowledged=self.max_unacknowledged,
            defers_for=None if self.retries_of is None else frozenset({self.retries_of, self.origin}),
            max_attempts=None if self.on_failure.policy == "Retry" else self.on_failure.max_attempts,
        )


def connect(
    settings: ConsumerSettings, *, project: str | None = None, timeout_s: float | None = None
) -> LogHub:
    """A connection to a project, by default the project of the settings. The caller closes it."""
    timeouts = Timeouts()
    if timeout_s is not None:
        timeouts = Timeouts(connect_s=min(timeout_s, timeouts.connect_s), read_s=timeout_s, total_s=timeout_s)
    return open_client(
        settings.client,
        settings.endpoint,
        project or settings.project,
        credentials=settings.credentials,
        agent=f"{settings.consumer_group}/{settings.consumer}",
        timeouts=timeouts,
    )


def group_timeout_s(client: LogHub, settings: ConsumerSettings) -> int:
    """The timeout of the group, which is created if the settings say so. Raises `LogHubException`."""
    timeout_s = present_timeout_s(client, settings)
    if timeout_s is None and settings.create_group:
        timeout_s = _create(client, settings)
    if timeout_s is None:
        raise LogHubError(
            Code.CONSUMER_GROUP_NOT_EXIST,
            404,
            f"logstore {settings.project}/{settings.logstore} has no consumer group"
            f" {settings.consumer_group}; create it, or set create_group",
        )
    return timeout_s


def stored_shard(client: LogHub, settings: ConsumerSettings, shard: int) -> StoredShard:
    """The name of a shard in a checkpoint store. Raises `LogHubException`."""
    created = {info.shard: info.created_unix_s for info in client.list_shards(settings.logstore)}
    if shard not in created:
        raise LogHubError(Code.SHARD_NOT_EXIST, 400, f"the logstore no longer has shard {shard}")
    return StoredShard(
        project=settings.project,
        logstore=settings.logstore,
        consumer_group=settings.consumer_group,
        shard=shard,
        created_unix_s=created[shard],
    )


def present_timeout_s(client: LogHub, settings: ConsumerSettings) -> int | None:
    """The timeout of the group; None if it does not exist. Raises `LogHubException`."""
    groups = client.list_groups(settings.logstore)
    return next((group.timeout_s for group in groups if group.name == settings.consumer_group), None)


def _create(client: LogHub, settings: ConsumerSettings) -> int | None:
    group = GroupInfo(name=settings.consumer_group, timeout_s=settings.timeout_s, order=settings.in_order)
    try:
        client.create_group(settings.logstore, group)
    except LogHubError as error:
        if error.code != Code.CONSUMER_GROUP_ALREADY_EXIST:
            raise
        return present_timeout_s(client, settings)  # another consumer has just created it
    return group.timeout_s


P = ParamSpec("P")
S = TypeVar("S")

_FIELDS = structlog.processors.LogfmtRenderer(key_order=["project", "logstore", "group"], drop_missing=True)
_OF_LOGGING = ("exc_info", "stack_info")  # logging renders them below the message, with line breaks


def log_to_logging() -> None:
    """Send messages to the loggers ``loghub_consumer.*``, unless structlog is configured."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _to_logging,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _to_logging(
    logger: Any, method: str, event_dict: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of `logging`: the text followed by the fields, and the exception."""
    kept = {name: event_dict.pop(name) for name in _OF_LOGGING if name in event_dict}
    event = event_dict.pop("event")
    fields = {name: value if isinstance(value, str) else repr(value) for name, value in event_dict.items()}
    return (f"{event} {_FIELDS(logger, method, fields)}".rstrip(),), kept


def about_consumer(settings: ConsumerSettings) -> AbstractContextManager[None]:
    """Within it, messages name what this consumer reads."""
    return about(project=settings.project, logstore=settings.logstore, group=settings.consumer_group)


def logs_as_consumer(
    init: Callable[Concatenate[S, ConsumerSettings, P], None],
) -> Callable[Concatenate[S, ConsumerSettings, P], None]:
    """Decorates an ``__init__`` with the settings as its first argument: its messages, and the threads that
    it makes, have the context of the consumer."""

    @wraps(init)
    def named(self: S, settings: ConsumerSettings, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with about_consumer(settings):
            init(self, settings, *args, **kwargs)

    return named
