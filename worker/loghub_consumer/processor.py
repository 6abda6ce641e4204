"""The interfaces of a program: the ones that it implements, processor and listener, the tracker that it is
given, and the errors."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any, Protocol

from loghub_consumer.batch import LogBatch, Logs
from loghub_consumer.failure.outage import BlamelessError


class ShardLostError(BlamelessError):
    """Another consumer may have the shard, so nothing of it can be saved here any more."""


class NotAssignedError(LookupError):
    """This consumer does not hold the shard."""


class Tracker(Protocol):
    """The checkpoint of one shard. Thread-safe."""

    shard: int

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        """Note the checkpoint: everything before `cursor` is done. Without a cursor, that is everything up to
        and including the batch that `process` has, or had last. The checkpoint never passes a log that was
        refused or, by log, not acknowledged: it then stays at its log group.

        `persist` sends it to the log service before this returns; otherwise it is sent within
        `ConsumerSettings.checkpoint_interval_s`, and when the shard is given up. Raises `ShardLostError`,
        with `persist` also `LogHubException` if the log service cannot be reached or refuses; it stays noted
        then, and is sent later. Raises `MalformedCursor` for what is not a cursor."""

    def get(self) -> str:
        """The checkpoint as last noted, which the log service may not have yet."""

    def nack(self, *logs: Logs, delay_s: float | None = None, reason: str = "") -> None:
        """Refuse batches, log groups or single logs; without any, the batch that `process` has. They are
        redelivered after `delay_s` or, without it, after `ConsumerSettings.redelivery_delay_s` and later each
        time, with a count in `LogBatch.delivery`, while the shard continues. Raises `ValueError` for logs
        that are acknowledged already. After `ConsumerSettings.on_failure.max_attempts` deliveries, if its
        policy is not ``Retry``, they are settled instead; `reason` is a sentence for the dead letter."""

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:
        """Refuse, like `nack`, this log, log group or batch and all logs before it in the shard that are not
        acknowledged, including the logs of the batch that `process` has. Logs that were refused before are
        redelivered at the new time."""

    def ack_up_to(self, last: Logs) -> None:
        """Acknowledge, like `ack`, this log, log group or batch and all logs before it in the shard that were
        handed over, refused ones included. Raises `ValueError` in a subscription of the type Shared or
        KeyShared, where logs before it may be at other consumers."""

    def transaction(self, logs: LogBatch) -> AbstractContextManager[Any]:
        """``with tracker.transaction(logs) as connection:`` A transaction of
        `ConsumerSettings.checkpoint_store` that also saves the position after these logs: the writes with
        `connection` and the position are committed together or not at all. Raises the errors of the driver,
        and `ShardLostError` if another consumer has the shard; let `process` raise them."""

    def reject(self, *logs: Logs, reason: str = "") -> None:
        """Refuse logs for which another delivery would change nothing: `ConsumerSettings.on_failure` settles
        them now. With the policy ``Retry`` they are redelivered."""

    def seek(self, to: str | int) -> None:
        """Continue the shard at ``"begin"``, ``"end"``, a time of receipt in unix seconds, or a cursor, as
        `Consumer.seek`. It is not saved. A batch that is being processed ends first. Raises
        `NotAssignedError`, `MalformedCursor` and `LogHubException`."""

    def pause(self) -> None:
        """Hand over no further batch of the shard until `resume`, which another thread calls. Raises
        `NotAssignedError`."""

    def resume(self) -> None:
        """The opposite of `pause`. Raises `NotAssignedError`."""

    def ack(self, *logs: Logs) -> None:
        """Acknowledge batches, log groups or single logs; without any, the batch that `process` has. Needed
        with ``ConsumerSettings.acknowledge="log"``, where it also moves the checkpoint. Acknowledging logs
        twice does no harm."""


class Processor(ABC):
    """Processes one shard, from its assignment until it is given up. Each method may be ``async``. All run in
    one thread, which no other shard shares."""

    def initialize(self, shard: int) -> Awaitable[None] | None:  # noqa: B027 - usually there is nothing to do
        """Called first. If it raises, it is called again after a pause."""

    @abstractmethod
    def process(self, logs: LogBatch, tracker: Tracker) -> Awaitable[str | None] | str | None:
        """Process a batch. Return None, or a cursor: the shard then continues there. If it raises, the same
        logs are processed again after a pause, before any others; in a redelivered batch, or by log, the logs
        that are not acknowledged count as refused instead. Only the tracker saves a position."""

    def shutdown(self, tracker: Tracker) -> Awaitable[None] | None:  # noqa: B027
        """Called last, when the shard is given up or lost; `tracker.save` raises `ShardLostError` if lost."""


class TrackedProcessor(Processor):
    """Gets its tracker before `initialize`, and learns in any case when the shard is gone."""

    @abstractmethod
    def use(self, tracker: Tracker) -> None:
        """Called first of all, once."""

    def prepare(self, logs: LogBatch) -> str | None:  # noqa: ARG002 - usually there is nothing to do
        """Called before `process`, while the tracker does not know this batch: user code that this calls,
        such as `shutdown`, may save, and its checkpoint must not pass logs that no processor has processed.
        Returns None, or a cursor in place of the result of `process`, which is not called then."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Called last of all, once, also if `initialize` never succeeded. Raises nothing."""


class ThreadedProcessor(Processor):
    """Calls the user's code in threads of its own."""

    @property
    @abstractmethod
    def threads(self) -> tuple[Thread, ...]:
        """The threads that were started; any thread may ask."""

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """The exception of user code that must end the program, such as `SystemExit`; any thread may ask."""


ProcessorFactory = Callable[[], Processor]


class ShardControl(Protocol):
    """The methods for a listener, of a `Consumer` or, in a worker, of the shards of its process. Thread-safe.
    Each method raises `NotAssignedError` for a shard that is not there."""

    def assignment(self) -> tuple[int, ...]:
        """The shards, including shards that are being given up."""

    def seek(self, shard: int, to: str | int) -> None:
        """Continue the shard elsewhere, see `Tracker.seek`."""

    def pause(self, shards: Iterable[int]) -> None:
        """Pause shards, see `Tracker.pause`."""

    def resume(self, shards: Iterable[int]) -> None:
        """Resume shards, see `Tracker.resume`."""


class Listener:
    """Learns which shards come and go. Its methods are called by the thread that runs `Consumer.run`, one at
    a time; an exception ends the consumer. Heartbeats continue meanwhile. In a worker there is one in each
    process, for the shards of the process (docs/processor.md 10)."""

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        """Called before the shards are processed; `Consumer.seek` and `pause` may be used."""

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        """The shards are being given up and no batch of them runs any more; `Consumer.commit` may be used.
        `Processor.shutdown` follows."""

    def on_lost(self, shards: tuple[int, ...]) -> None:
        """Other consumers may have the shards already; nothing can be saved. A batch of them may still
        run."""

    def on_standby(self, shards: tuple[int, ...]) -> None:
        """In these shards of an Exclusive or Failover subscription another consumer is active, and this one
        takes over when that one ends. Called after each change, with no shards if there are none any more.
        In a worker each process has this call, for the shards of the whole worker."""
