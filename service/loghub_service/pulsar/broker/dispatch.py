"""One subscription while it has consumers: gives the pure core its events, and carries out what follows.

What the consumers ask for comes by `Dispatch.apply`. What the logs do comes from here: appends, splits and
merges, retention, the time of delayed messages, and the log groups that the core wants to be read. What a
consumer gets goes to the queue of its connection as positions (`loghub_service.pulsar.broker.delivery`).

A subscription without consumers is not followed. What happened meanwhile is caught up before the first one
joins.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import structlog
from msgspec import Struct

from loghub.domain.log_position import group_end, index_of, ordinal_of, position_of
from loghub.wire.loggroup import raw_logs
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.ids import Run
from loghub_service.pulsar.broker.store import PulsarTopic, SavedSubscription, Unreadable
from loghub_service.pulsar.records.entries import (
    EntryToSend,
    GroupToSend,
    keys_of,
    ordered_entries,
    single_entries,
)
from loghub_service.pulsar.wire.consumers import CommandActiveConsumerChange, CommandCloseConsumer
from loghub_service.subscription import events
from loghub_service.subscription.events import (
    Ack,
    Appended,
    DelayPassed,
    Delivery,
    DispatchOutcome,
    Event,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadGroups,
    Refusal,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.slots import slot_of
from loghub_service.subscription.step import next_deadline

_log = structlog.get_logger("loghub_service.pulsar")
_DAMAGE_WAIT_S = 5.0  # until a log that cannot be read is tried again
# For which a subscription waits for the consumers that a SEEK has closed.
_RESUBSCRIBE_S = 60.0


class Receiver:
    """A consumer as its subscription knows it. ``number`` is never given twice."""

    number: int
    consumer_id: int
    partition: int

    def deliver(self, delivery: Delivery) -> None:
        """Send these logs, in this order, after all others."""
        raise NotImplementedError

    def stand_by(self) -> None:
        """Another consumer is active now, and gets what was not sent yet. Its permits are given back."""
        raise NotImplementedError

    async def is_alive(self) -> bool:
        """Whether its client is there; the consumer has left if it is not."""
        raise NotImplementedError

    def tell(self, command: Struct) -> None:
        """Send a command, once the consumer knows that it has subscribed."""
        raise NotImplementedError

    def closed(self) -> None:
        """The consumer is none any more: the client has to subscribe again."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _ReadGroup:
    """A log group that was read: what is delivered of it, and what the core has to know."""

    ordinal: int
    entries: tuple[EntryToSend, ...]
    slots: tuple[int, ...] | None  # of each log, in Key_Shared
    not_before_ms: int | None  # unix milliseconds


class EntryLengths:
    """How many ``logs`` an entry of a shard has, by its position, of what was read.

    Everything is kept that is not acknowledged, however much it is. So the others are looked for only once
    there are twice as many entries as were left the last time, and at least ``minimum``: a look costs by the
    number of entries.
    """

    def __init__(self, minimum: int) -> None:
        self.logs: dict[int, int] = {}
        self._minimum = self._next = minimum

    @property
    def are_many(self) -> bool:
        return len(self.logs) > self._next

    def add(self, first: int, logs: int) -> None:
        self.logs[first] = logs

    def drop_below(self, mark: int) -> None:
        self.logs = {first: logs for first, logs in self.logs.items() if first + logs > mark}
        self._next = max(self._minimum, 2 * len(self.logs))


class Dispatch:
    """Call `join` before anything else, and `leave` for each consumer that is gone."""

    def __init__(
        self,
        broker: PulsarBroker,
        topic: PulsarTopic,
        saved: SavedSubscription,
        on_end: Callable[["Dispatch"], None],
    ) -> None:
        """``on_end`` is called when the last consumer has left."""
        self.topic = topic
        self.saved = saved
        # Shards that the subscription had when it began, of which a reader has not said yet where it begins.
        self.unseeded = set(saved.state.shards)
        self.consumers: dict[int, Receiver] = {}
        self._broker = broker
        self._on_end = on_end
        self._version: object = None
        self._lengths: dict[int, EntryLengths] = {}  # of ordered types, by shard
        self._watch = broker.service.watch()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s: float | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self.refresh()
        self._start(self._follow_arrivals())

    @property
    def is_ordered(self) -> bool:
        return self.saved.state.settings.type.is_ordered

    # Consumers

    def join(self, receiver: Receiver, event: Join | None) -> Refusal | None:
        """Why the consumer cannot join. Without an event it belongs to a shard that does not exist."""
        if event is not None:
            self.consumers[receiver.number] = receiver
            refusal = self.apply(event).refusal
            if refusal is not None:
                del self.consumers[receiver.number]
                return refusal
        self.consumers[receiver.number] = receiver
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        return None

    def leave(self, receiver: Receiver) -> None:
        """What is out at the consumer goes to others. Ends the dispatch if it was the last one."""
        if self.consumers.pop(receiver.number, None) is None:
            return
        if receiver.number in self.saved.state.consumers:
            self.apply(LeaveSubscription(consumer=receiver.number))
        self.end_if_empty()

    def end_if_empty(self) -> None:
        if not self.consumers:
            self.end()

    def end(self) -> None:
        """Follow the logs no more."""
        for task in self._tasks:
            task.cancel()
        for timer in (self._timer, self._waiting):
            if timer is not None:
                timer.cancel()
        self._watch.close()
        self._on_end(self)

    def close_all(self, numbers: Iterable[int]) -> None:
        """Tell these consumers to subscribe again; the subscription waits a while for them."""
        for number in tuple(numbers):
            receiver = self.consumers.pop(number, None)
            if receiver is None:
                continue
            if number in self.saved.state.consumers:
                self.apply(LeaveSubscription(consumer=number))
            receiver.closed()
        if not self.consumers and self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(_RESUBSCRIBE_S, self._waited)

    def _waited(self) -> None:
        self._waiting = None
        self.end_if_empty()

    def take_form(self, topic: PulsarTopic) -> None:
        """Deliver in another form from now on. Nobody is connected."""
        self.topic = topic
        self._lengths.clear()

    def others_at(self, receiver: Receiver) -> list[int]:
        """The other consumers of the same shard, by their numbers."""
        return [
            other.number
            for other in self.consumers.values()
            if other.partition == receiver.partition and other is not receiver
        ]

    # Events

    def apply(self, event: Event) -> DispatchOutcome:
        outcome = self.saved.apply(event, now=self._broker.clock.monotonic_s())
        for change in outcome.active:
            receiver = self.consumers.get(change.consumer)
            if receiver is not None:
                if not change.is_active:
                    receiver.stand_by()
                receiver.tell(
                    CommandActiveConsumerChange(consumer_id=receiver.consumer_id, is_active=change.is_active)
                )
        for delivery in outcome.deliveries:
            receiver = self.consumers.get(delivery.consumer)
            if receiver is not None:
                receiver.deliver(delivery)
        for load in outcome.loads:
            self._start(self._load(load))
        self._set_timer()
        if outcome.closed:
            self.close_all(outcome.closed)
        return outcome

    def give_back(self, receiver: Receiver, logs: int) -> None:
        """Permits of logs that are not there any more."""
        if receiver.number in self.saved.state.consumers and logs:
            self.apply(Flow(consumer=receiver.number, permits=logs))

    def refresh(self) -> None:
        """Take over how the shards are now."""
        if not self.topic.exists():
            self.close_all(self.consumers)
            return
        version = self.topic.version()
        starts = self.topic.shards()
        if version is not self._version:
            self._version = version
            self.apply(SubscribedShards(shards=starts))
            for shard in starts:
                key = self.topic.key(shard)
                if key is not None:
                    self._watch.add(key, shard)
            for shard in self._lengths.keys() - starts.keys():
                del self._lengths[shard]
                self._watch.remove(shard)
        for shard, start in starts.items():
            self._refresh_shard(shard, start)

    def _refresh_shard(self, shard: int, start: ShardStart) -> None:
        cursor = self.saved.state.shards.get(shard)
        if cursor is None:
            return
        if cursor.acked.mark < start.mark:
            self.apply(Expired(shard=shard, position=start.mark))
        if cursor.end < start.end or cursor.is_closed is not start.is_closed:
            self.apply(Appended(shard=shard, end=start.end, is_closed=start.is_closed))

    def _refresh_marked(self, label: Hashable) -> None:
        start = self.topic.shard(label) if isinstance(label, int) else None
        if isinstance(label, int) and start is not None:
            self._refresh_shard(label, start)

    async def _follow_arrivals(self) -> None:
        watch = self._watch
        while True:
            watch.expect(watch.bytes + 1)
            marked = watch.take_marked()
            if not marked:
                await watch.wait()
            elif self.topic.version() is not self._version:
                self.refresh()
            else:
                for shard in marked:
                    self._refresh_marked(shard)

    def _set_timer(self) -> None:
        deadline_s = next_deadline(self.saved.state)
        if deadline_s == self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = None, deadline_s
        if deadline_s is not None:
            wait_s = max(0.0, deadline_s - self._broker.clock.monotonic_s())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = self._timer_s = None
        self.apply(DelayPassed())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a subscription cannot go on", exc_info=task.exception(), subscription=self.saved.name)
            self._broker.counts.failed_requests += 1
            self.close_all(self.consumers)

    # Reading

    async def _load(self, load: LoadGroups) -> None:
        limits, topic = self._broker.limits, self.topic
        make = partial(
            _group_of,
            is_ordered=self.is_ordered,
            max_message_bytes=limits.message_bytes,
            with_slots=load.with_slots,
        )
        try:
            groups, after = await topic.read(
                load.shard, load.first, max_logs=load.max_logs, max_bytes=limits.load_bytes, make=make
            )
        except Unreadable as error:
            _log.error("a subscription waits: log data cannot be read", error=str(error), shard=load.shard)
            await asyncio.sleep(_DAMAGE_WAIT_S)
            groups, after = [], load.first
        if topic is not self.topic:
            return  # nobody was connected meanwhile, so the load is too late
        for group in groups:
            self._keep(load.shard, group)
        self._leave_out(load.shard, groups)
        self.apply(
            GroupsLoaded(
                shard=load.shard,
                load=load.number,
                entries=[entry for group in groups for entry in self._core_entries(group)],
                next=after,
            )
        )

    def _keep(self, shard: int, group: _ReadGroup) -> None:
        self._broker.cache.put(self._key(shard, group.ordinal), group.entries)
        if not self.is_ordered:
            return
        lengths = self._lengths.setdefault(shard, EntryLengths(2 * self._broker.limits.ids))
        for entry in group.entries:
            lengths.add(position_of(entry.ordinal, entry.first), entry.messages)
        cursor = self.saved.state.shards.get(shard)
        if lengths.are_many and cursor is not None:
            lengths.drop_below(cursor.acked.mark)

    def _key(self, shard: int, ordinal: int) -> Hashable:
        return self.topic.id, shard, ordinal, self.topic.form, self.is_ordered

    def _leave_out(self, shard: int, groups: Iterable[_ReadGroup]) -> None:
        """Logs that no frame can carry would stop everything behind them."""
        for group in groups:
            for entry in group.entries:
                if entry.data is None:
                    first = position_of(entry.ordinal, entry.first)
                    self._broker.counts.too_large_logs += entry.messages
                    _log.warning(
                        "a log is left out: it is too large for a message",
                        subscription=self.saved.name,
                        logstore=self.topic.name,
                        shard=shard,
                        ordinal=entry.ordinal,
                        index=entry.first,
                    )
                    self.apply(Ack(shard=shard, runs=[(first, first + entry.messages)]))

    def _core_entries(self, group: _ReadGroup) -> Iterable[events.LoadedEntry]:
        not_before_s = 0.0
        if group.not_before_ms is not None:
            ahead_s = (group.not_before_ms - self._broker.service.now_ms()) / 1000
            not_before_s = self._broker.clock.monotonic_s() + ahead_s
        if not self.is_ordered:
            yield events.LoadedEntry(
                first=position_of(group.ordinal),
                logs=sum(entry.messages for entry in group.entries),
                slots=group.slots,
                not_before_s=not_before_s,
            )
            return
        for number, entry in enumerate(group.entries, 1):
            first = position_of(entry.ordinal, entry.first)
            is_last = number == len(group.entries)
            yield events.LoadedEntry(
                first=first,
                logs=entry.messages,
                is_last=is_last,
            )

    async def entries_of(self, shard: int, ordinal: int) -> tuple[EntryToSend, ...] | None:
        """What is delivered of a log group; None if it has expired."""
        found = self._broker.cache.get(self._key(shard, ordinal))
        if found is None:
            make = partial(
                _group_of, is_ordered=self.is_ordered, max_message_bytes=self._broker.limits.message_bytes
            )
            groups, _ = await self.topic.read(shard, position_of(ordinal), max_logs=1, max_bytes=1, make=make)
            if not groups or groups[0].ordinal != ordinal:
                return None
            self._keep(shard, groups[0])
            found = groups[0].entries
        return found

    async def logs_at(self, shard: int, first: int) -> int:
        """How many logs the entry at this position has; 0 if there is none."""
        if not self.is_ordered:
            return 1
        lengths = self._lengths.get(shard)
        if lengths is not None and first in lengths.logs:
            return lengths.logs[first]
        entries = await self.entries_of(shard, ordinal_of(first)) or ()
        return next((entry.messages for entry in entries if entry.first == index_of(first)), 0)

    def runs_of(self, runs: Iterable[Run]) -> list[Run]:
        """The runs in the order of their positions, joined where they touch in one log group."""
        joined: list[Run] = []
        for first, stop in sorted(runs):
            if joined and first <= joined[-1][1] and first < group_end(joined[-1][0]):
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            else:
                joined.append((first, stop))
        return joined


class Dispatches:
    """The subscriptions of a broker that have consumers, by topic and name."""

    def __init__(self, broker: PulsarBroker) -> None:
        self._broker = broker
        self._open: dict[tuple[int, str], Dispatch] = {}

    def __iter__(self) -> Iterator[Dispatch]:
        return iter(tuple(self._open.values()))

    def of(self, topic: PulsarTopic, saved: SavedSubscription) -> Dispatch:
        """The dispatch of a subscription, which is opened for its first consumer."""
        key = topic.id, saved.name
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = Dispatch(self._broker, topic, saved, self._ended)
        elif found.topic.form is not topic.form and not found.consumers:
            found.take_form(topic)
        return found

    def _ended(self, dispatch: Dispatch) -> None:
        saved, topic = dispatch.saved, dispatch.topic.id
        if self._open.get((topic, saved.name)) is dispatch:
            del self._open[topic, saved.name]
        if not saved.state.settings.is_durable:
            self._broker.service.subscriptions.delete(topic, saved.name)


def _group_of(
    group: GroupToSend, *, is_ordered: bool, max_message_bytes: int, with_slots: bool = False
) -> _ReadGroup:
    """Called in a thread."""
    if is_ordered:
        entries = tuple(ordered_entries(group, max_message_bytes=max_message_bytes))
    else:
        entries = tuple(
            single_entries(
                group, range(sum(1 for _ in raw_logs(group.group))), max_message_bytes=max_message_bytes
            )
        )
    slots = tuple(map(slot_of, keys_of(group))) if with_slots else None
    not_before_ms = None if group.origin is None else group.origin.deliver_at_ms
    return _ReadGroup(group.ordinal, entries, slots, not_before_ms)


def closing(receiver: Receiver) -> CommandCloseConsumer:
    """What tells a client that one of its consumers has to subscribe again."""
    return CommandCloseConsumer(consumer_id=receiver.consumer_id, request_id=0)
