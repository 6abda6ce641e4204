"""One subscription while it has consumers: gives the pure core its events, and carries out what follows.

Requests of consumers arrive by `Dispatch.apply`. Events of the logs are made here: appends, splits and
merges, retention, the times of delayed logs, and the log groups that the core asks for. A consumer gets
positions; its endpoint decides what is sent of them.

A subscription without consumers is not followed. Before its first consumer joins, it takes over what has
happened meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import structlog

from loghub.clock import Clock
from loghub.domain.log_position import position_of
from loghub_service.connections.service_ports import Watch
from loghub_service.dispatch.keys import slots_of
from loghub_service.dispatch.ports import (
    Preparation,
    Receiver,
    SavedSubscription,
    SubscribedLogs,
    Unreadable,
)
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.subscription.events import (
    Appended,
    ClockRead,
    DeliveredRun,
    DispatchOutcome,
    Event,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    LoadGroups,
    Refusal,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.step import next_deadline

_log = structlog.get_logger("loghub_service.dispatch")
DAMAGE_WAIT_S = 5.0  # until a log that cannot be read is tried again
# For which a subscription waits for the consumers that a seek has closed.
_REJOIN_S = 60.0
# Between two looks at what nothing notifies of: splits, merges and retention.
_LOOK_S = 1.0
# A wall clock that was set by more than this is read again, for the logs that wait for a time.
# Adjusting its speed moves it by at most half a millisecond a second, and to read two clocks takes less.
_CLOCK_STEP_S = 0.1
LOAD_BYTES = 1 << 20  # of the log groups that are read at once, the last of which may exceed it


@dataclass(frozen=True, slots=True)
class _ReadGroup:
    """A log group that was read, as far as the core and the endpoint have to know it."""

    ordinal: int
    logs: int
    slots: tuple[int, ...] | None  # of each log, in KeyShared
    due_unix_s: float
    prepared: Any


class DispatchCounts:
    """Totals since the start."""

    def __init__(self) -> None:
        self.delivered_logs = 0
        self.redelivered_logs = 0  # that their consumers wanted again
        self.failed = 0  # subscriptions that could not go on, by an error of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchContext:
    """What all subscriptions share. ``unix_s`` is the time by which logs are received, and ``forget`` deletes
    a subscription that is not durable, by its logstore and name."""

    clock: Clock
    watch: Callable[[], Watch]
    unix_s: Callable[[], float]
    forget: Callable[[int, str], None]


class Dispatch:
    """Call `join` before anything else, and `leave` for each consumer that is gone."""

    def __init__(
        self,
        context: DispatchContext,
        counts: DispatchCounts,
        logs: SubscribedLogs,
        saved: SavedSubscription,
        on_end: Callable[["Dispatch"], None],
    ) -> None:
        """``on_end`` is called when the last consumer has left."""
        self.logs = logs
        self.saved = saved
        self.preparation: Preparation | None = None
        self.consumers: dict[int, Receiver] = {}
        self._context = context
        self._counts = counts
        self._on_end = on_end
        self._version: object = None
        self._watched: set[int] = set()
        self._watch = context.watch()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s: float | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._requests = 0  # that work with it, whether or not there are consumers
        self._damage: dict[int, tuple[int, str]] = {}  # by shard, where it begins and what it is
        self._read_clock()
        self.refresh()
        self._follower = self._start(self._follow_arrivals())

    @property
    def is_ordered(self) -> bool:
        return self.saved.state.settings.type.is_ordered

    @property
    def unreadable(self) -> dict[int, str]:
        """Why nothing more is read of these shards: their log data is damaged at the next position."""
        shards = self.saved.state.shards
        return {
            shard: words
            for shard, (first, words) in self._damage.items()
            if shard in shards and shards[shard].loaded == first
        }

    # Consumers

    def join(self, receiver: Receiver, event: Join | None) -> Refusal | None:
        """Why the consumer cannot join; None: it has joined. ``event`` is None for a consumer of a shard that
        does not exist.
        """
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

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """For a request that works with the subscription, whose other requests and consumers may all be gone
        before the request is done. A dispatch that has ended reaches no consumer that joins later."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self.end_if_empty()

    def end_if_empty(self) -> None:
        """End unless there is a consumer, one is expected after a seek, or a request works with it."""
        if not self.consumers and self._waiting is None and not self._requests:
            self.end()

    def end(self) -> None:
        """Stop following the logs."""
        for task in self._tasks:
            task.cancel()
        for timer in (self._timer, self._waiting):
            if timer is not None:
                timer.cancel()
        self._watch.close()
        self._on_end(self)

    def close_all(self, numbers: Iterable[int]) -> None:
        """Tell these consumers to join again; the subscription waits a while for them."""
        for number in tuple(numbers):
            receiver = self.consumers.pop(number, None)
            if receiver is None:
                continue
            if number in self.saved.state.consumers:
                self.apply(LeaveSubscription(consumer=number))
            receiver.closed()
        if not self.consumers and self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(_REJOIN_S, self._waited)

    def _waited(self) -> None:
        self._waiting = None
        self.end_if_empty()

    # Events

    def apply(self, event: Event) -> DispatchOutcome:
        outcome = self.saved.apply(event, now=self._context.clock.monotonic_s())
        for change in outcome.active:
            receiver = self.consumers.get(change.consumer)
            if receiver is not None:
                receiver.active_changed(change.shard, is_active=change.is_active)
        for delivery in outcome.deliveries:
            receiver = self.consumers.get(delivery.consumer)
            if receiver is not None:
                self._count(delivery.runs)
                receiver.deliver(delivery)
        for load in outcome.loads:
            self._start(self._load(load))
        self._set_timer()
        if outcome.closed:
            self.close_all(outcome.closed)
        return outcome

    def _count(self, runs: Iterable[tuple[int, int, int]]) -> None:
        for first, stop, redeliveries in runs:
            logs = stop - first
            self._counts.delivered_logs += logs
            if redeliveries:
                self._counts.redelivered_logs += logs

    def still_out(self, number: int, shard: int, runs: Sequence[DeliveredRun]) -> list[DeliveredRun]:
        """What of these runs is out at the consumer with this number."""
        cursor, consumer = self.saved.state.shards.get(shard), self.saved.state.consumers.get(number)
        if cursor is None or consumer is None or number not in cursor.members:
            return []
        return cursor.queue.still_out(consumer, runs)

    def give_back(self, receiver: Receiver, logs: int) -> None:
        """Give a consumer back the permits of logs that do not exist any more."""
        if receiver.number in self.saved.state.consumers and logs:
            self.apply(Flow(consumer=receiver.number, permits=logs))

    def refresh(self) -> None:
        """Take over how the shards are now."""
        if not self.logs.exists():
            self.close_all(self.consumers)
            return
        version = self.logs.version()
        starts = self.logs.shards()
        if version is not self._version:
            self._version = version
            self.apply(SubscribedShards(shards=starts))
            for shard in starts:
                key = self.logs.key(shard)
                if key is not None:
                    self._watched.add(shard)
                    self._watch.add(key, shard)
            for shard in self._watched - starts.keys():
                self._watched.remove(shard)
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
        start = self.logs.shard(label) if isinstance(label, int) else None
        if isinstance(label, int) and start is not None:
            self._refresh_shard(label, start)

    async def _follow_arrivals(self) -> None:
        watch = self._watch
        while True:
            watch.expect(watch.bytes + 1)
            marked = watch.take_marked()
            if not marked:
                await watch.wait()
            elif self.logs.version() is not self._version:
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
            wait_s = max(0.0, deadline_s - self._context.clock.monotonic_s())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = self._timer_s = None
        self._read_clock()

    def _read_clock(self) -> None:
        self.apply(ClockRead(unix_s=self._context.unix_s()))

    def follow_clock(self) -> None:
        """Notice that the wall clock was set."""
        ahead_s = self._context.unix_s() - self._context.clock.monotonic_s()
        if abs(ahead_s - self.saved.state.unix_ahead_s) > _CLOCK_STEP_S:
            self._read_clock()

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a subscription cannot go on", exc_info=task.exception(), subscription=self.saved.name)
            self._counts.failed += 1
            self.close_all(self.consumers)
            if task is self._follower:  # those that join again are caught up, and wait for the next logs
                self._follower = self._start(self._follow_arrivals())

    # Reading

    async def _load(self, load: LoadGroups) -> None:
        preparation = self.preparation
        make = partial(
            _read_group,
            preparation=preparation,
            key=self.saved.state.settings.key if load.with_slots else None,
        )
        try:
            groups, after = await self.logs.read(
                load.shard, load.first, max_logs=load.max_logs, max_bytes=LOAD_BYTES, make=make
            )
        except Unreadable as error:
            _log.error("a subscription waits: log data cannot be read", error=str(error), shard=load.shard)
            self._note_damage(load, str(error))
            await asyncio.sleep(DAMAGE_WAIT_S)
            groups, after = [], load.first
        if preparation is not None and preparation is self.preparation:
            for group in groups:
                preparation.keep(load.shard, group.prepared)
        self.apply(
            GroupsLoaded(
                shard=load.shard,
                load=load.number,
                entries=[entry for group in groups for entry in self._entries(group, preparation)],
                next=after,
            )
        )

    def _note_damage(self, load: LoadGroups, words: str) -> None:
        found = load.first, words
        if self._damage.get(load.shard) == found:
            return  # the consumers know
        self._damage[load.shard] = found
        for receiver in tuple(self.consumers.values()):
            receiver.cannot_read(load.shard)

    def _entries(self, group: _ReadGroup, preparation: Preparation | None) -> Iterator[LoadedEntry]:
        """The group as the core delivers it: in ordered types in the pieces that the endpoint can send."""
        first = position_of(group.ordinal)
        if not self.is_ordered:
            yield LoadedEntry(first, group.logs, slots=group.slots, due_unix_s=group.due_unix_s)
            return
        pieces = (group.logs,) if preparation is None else preparation.pieces(group.prepared)
        for number, logs in enumerate(pieces, 1):
            yield LoadedEntry(first, logs, is_last=number == len(pieces))
            first += logs


def _read_group(
    group: GroupToSend, *, preparation: Preparation | None, key: tuple[str, ...] | None
) -> _ReadGroup:
    """What the core and the endpoint need of a log group. Called in a thread."""
    deliver_at_ms = None if group.origin is None else group.origin.deliver_at_ms
    return _ReadGroup(
        ordinal=group.ordinal,
        logs=group.logs,
        slots=None if key is None else slots_of(group, key),
        due_unix_s=(deliver_at_ms or 0) / 1000,
        prepared=None if preparation is None else preparation.prepare(group),
    )


class Dispatches:
    """The subscriptions of a service that have consumers, by logstore and name. ``numbers`` numbers
    the consumers."""

    def __init__(self, context: DispatchContext) -> None:
        self.numbers = count(1)
        self.counts = DispatchCounts()
        self._context = context
        self._open: dict[tuple[int, str], Dispatch] = {}
        self._changes: dict[int, object] = {}  # by logstore, as its subscriptions know them
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Dispatch]:
        return iter(tuple(self._open.values()))

    def of(self, logs: SubscribedLogs, saved: SavedSubscription) -> Dispatch:
        """The dispatch of a subscription, which is opened for its first consumer."""
        key = logs.id, saved.name
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = Dispatch(self._context, self.counts, logs, saved, self._ended)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)
        return found

    def get(self, logstore: int, name: str) -> Dispatch | None:
        """The dispatch of a subscription if it is open."""
        return self._open.get((logstore, name))

    def close(self) -> None:
        """Stop following the logs, because the service stops."""
        if self._timer is not None:
            self._timer.cancel()
        for dispatch in self:
            dispatch.end()

    def look(self) -> None:
        """Notice what nothing notifies of. Each logstore is compared once, however many subscriptions it
        has."""
        changes: dict[int, object] = {}
        for dispatch in self:
            logs = dispatch.logs
            if not logs.exists():
                dispatch.close_all(dispatch.consumers)
                dispatch.end()  # nobody can come back
                continue
            dispatch.follow_clock()
            if logs.id not in changes:
                changes[logs.id] = logs.changes()
            if logs.id not in self._changes or self._changes[logs.id] != changes[logs.id]:
                dispatch.refresh()
        self._changes = changes

    def _look_again(self) -> None:
        self._timer = None
        try:
            self.look()
        except Exception:  # noqa: BLE001 - it is logged, and the next attempt may succeed
            _log.exception("changes of shards not noticed")
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def _ended(self, dispatch: Dispatch) -> None:
        saved, logstore = dispatch.saved, dispatch.logs.id
        if self._open.get((logstore, saved.name)) is dispatch:
            del self._open[logstore, saved.name]
        if not saved.state.settings.is_durable:
            self._context.forget(logstore, saved.name)
