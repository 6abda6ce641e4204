"""What a program implements, or is given: processor, tracker, listener, and the errors."""

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
        """Refuse batches, log groups or single logs; without any, the batch that `process` has. They come
        again after `delay_s` or, without it, after `ConsumerSettings.redelivery_delay_s` and later each time,
        with a count in `LogBatch.delivery`, while the shard goes on. Raises `ValueError` for what is
        acknowledged already. After `ConsumerSettings.on_failure.max_attempts` deliveries, if its policy is
        not ``Retry``, they are settled instead; `reason` is a sentence for the dead letter."""

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:
        """As `nack`, for this log, log group or batch and everything before it in the shard that is not
        acknowledged, that of the batch that `process` has included. What was refused before comes again at
        the time that is given now."""

    def transaction(self, logs: LogBatch) -> AbstractContextManager[Any]:
        """``with tracker.transaction(logs) as connection:`` A transaction of
        `ConsumerSettings.checkpoint_store` that saves the position after these logs as well: what is written
        with `connection` and the position are committed together or not at all. Raises what the driver
        raises, and `ShardLostError` if another consumer has the shard; let `process` raise them."""

    def reject(self, *logs: Logs, reason: str = "") -> None:
        """As `nack`, for logs of which another delivery would change nothing: they are settled now by
        `ConsumerSettings.on_failure`. With the policy ``Retry`` they come again."""

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
        with ``ConsumerSettings.acknowledge="log"``, where it is also what moves the checkpoint. What was
        acknowledged already stays so."""


class Processor(ABC):
    """Processes one shard, from its assignment until it is given up. Each method may be ``async``. All run in
    one thread, which no other shard shares."""

    def initialize(self, shard: int) -> Awaitable[None] | None:  # noqa: B027 - usually there is nothing to do
        """Called first. If it raises, it is called again after a pause."""

    @abstractmethod
    def process(self, logs: LogBatch, tracker: Tracker) -> Awaitable[str | None] | str | None:
        """Process a batch. Return None, or a cursor: the shard then continues there. If it raises, the same
        logs come again after a pause, before any others; if they have come again, or by log, what is not
        acknowledged counts as refused. Nothing is saved unless the tracker is asked to."""

    def shutdown(self, tracker: Tracker) -> Awaitable[None] | None:  # noqa: B027
        """Called last, when the shard is given up or lost; `tracker.save` raises `ShardLostError` if lost."""


class TrackedProcessor(Processor):
    """Gets its tracker before `initialize`, and learns in any case when the shard is gone."""

    @abstractmethod
    def use(self, tracker: Tracker) -> None:
        """Called first of all, once."""

    def prepare(self, logs: LogBatch) -> str | None:  # noqa: ARG002 - usually there is nothing to do
        """Called before `process`, while the tracker knows nothing of this batch: the user's code that this
        calls, such as `shutdown`, may save, and that must not pass logs that nobody has processed. Return
        None, or a cursor in place of what `process` would return, which is not called then."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Called last of all, once, also if `initialize` never succeeded. Raises nothing."""


class ThreadedProcessor(Processor):
    """Calls the user's code in threads of its own."""

    @property
    @abstractmethod
    def threads(self) -> tuple[Thread, ...]:
        """Those that were started; any thread may ask."""

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """What the user's code raised that must end the program, such as `SystemExit`; any thread may ask."""


ProcessorFactory = Callable[[], Processor]


class ShardControl(Protocol):
    """What a listener may use: a `Consumer`, or in a worker the shards of its process. Thread-safe. Each
    method raises `NotAssignedError` for a shard that is not there."""

    def assignment(self) -> tuple[int, ...]:
        """The shards, those included that are being given up."""

    def seek(self, shard: int, to: str | int) -> None:
        """As `Tracker.seek`."""

    def pause(self, shards: Iterable[int]) -> None:
        """As `Tracker.pause`."""

    def resume(self, shards: Iterable[int]) -> None:
        """As `Tracker.resume`."""


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
