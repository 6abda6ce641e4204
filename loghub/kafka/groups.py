"""The Kafka groups of a running service: drives the coordinator, and answers once everything is durable.

Events are applied to `loghub.kafka.coordinator` one at a time on the event loop. A new group is effective in
memory immediately, and its facts are committed in the same order. An answer waits for the newest facts of its
group, so it never promises a generation or an offset that a crash could undo, while requests that wait share
one transaction, and a heartbeat that changes nothing does not wait for the disk.

A request that the coordinator answers later is a future here. One timer serves the deadlines of all groups.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Protocol, TypeVar

import structlog

from loghub.clock import Clock
from loghub.kafka.coordinator import facts as durable_facts
from loghub.kafka.coordinator import step as coordinator
from loghub.kafka.coordinator.answers import (
    Answer,
    DeleteAnswer,
    DescribeAnswer,
    FetchAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    PartitionsAnswer,
    SyncAnswer,
)
from loghub.kafka.coordinator.events import (
    Cleanup,
    ConnectionLost,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LogstoreDeleted,
    OffsetCommit,
    OffsetDelete,
    Request,
    ServicePaused,
    SyncGroup,
    Tick,
)
from loghub.kafka.coordinator.facts import Fact
from loghub.kafka.coordinator.group import (
    ErrorCode,
    Group,
    Limits,
    TopicPartition,
    Transition,
    next_deadline,
)
from loghub.kafka.coordinator.states import GroupState
from loghub.kafka.group_memory import DEFAULT_GROUP_BYTES, GroupMemory
from loghub.kafka.group_table import GroupKey, GroupTable
from loghub.kafka.timer_heap import TimerHeap

_log = structlog.get_logger("loghub.kafka.groups")
A = TypeVar("A", bound=Answer)

# The timer fires at least this often. If it fires a further interval late, the process was paused.
TICK_INTERVAL_S = 1.0
DEFAULT_MAX_GROUPS = 5_000  # of the whole service


class PersistFacts(Protocol):
    """Stores the facts of one step in one transaction, after those of all earlier calls."""

    def __call__(self, key: GroupKey, facts: tuple[Fact, ...]) -> "asyncio.Future[object]": ...


class Availability(Enum):
    """Whether groups can be used; the value is the error of every request, or NONE."""

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    READY = ErrorCode.NONE
    STOPPED = ErrorCode.COORDINATOR_NOT_AVAILABLE

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.value)


class KafkaGroups:
    """All Kafka groups of all projects. Used on the event loop only.

    `restore` what was persisted, then call `open`. Until then, and after `close`, every request is answered
    with the error of `availability`. Besides such errors, a request raises what the persisting of its facts
    raised; the service stops then.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        persist: PersistFacts,
        new_id: Callable[[], str],
        limits: Limits = coordinator.DEFAULT_LIMITS,
        max_groups: int = DEFAULT_MAX_GROUPS,
        max_bytes: int = DEFAULT_GROUP_BYTES,
    ) -> None:
        """``new_id`` makes the part of a member id that is never used twice. ``max_bytes``: of all groups."""
        self.availability = Availability.LOADING
        self._clock = clock
        self._persist = persist
        self._new_id = new_id
        self._limits = limits
        self._max_groups = max_groups
        # Whether facts of the groups of a project can be persisted.
        self.has_project: Callable[[str], bool] = lambda _: True
        self.memory = GroupMemory(max_bytes)
        self._groups = GroupTable()
        self._saved: dict[GroupKey, asyncio.Future[object]] = {}
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._requests = coordinator.NO_REQUEST
        self._timers: TimerHeap[GroupKey] = TimerHeap(clock)
        self._ticked_s = clock.monotonic_s()

    # The life of the service

    def restore(self, key: GroupKey, facts: Iterable[Fact]) -> None:
        """A persisted group; every session starts again."""
        group = durable_facts.restore(key.group_id, facts, now=self._clock.monotonic_s())
        if group.state is not GroupState.DEAD:
            self._groups.put(key, group)
            self.memory.hold(key, group)
            self._timers.set(key, next_deadline(group))

    def open(self) -> None:
        self.availability = Availability.READY
        self._ticked_s = self._clock.monotonic_s()

    def close(self) -> None:
        """Answer every request that waits; the groups go on after the next start."""
        self.availability = Availability.STOPPED
        for key in self._groups.all_keys():
            self._answer_waiting(key)

    async def run(self) -> None:
        """The timer: apply a tick to each group whose deadline has passed, forever."""
        while True:
            await self._timers.wait(at_most_s=TICK_INTERVAL_S)
            self.tick()

    def tick(self) -> None:
        """Let expire what has reached its deadline; cheap if there is nothing.

        After a pause the event loop runs this before it reads the requests that arrived meanwhile.
        """
        now = self._clock.monotonic_s()
        late_s, self._ticked_s = now - self._ticked_s - TICK_INTERVAL_S, now
        if late_s > TICK_INTERVAL_S:
            _log.warning("the service was paused", seconds=round(late_s, 1))
            for key in self._groups.all_keys():
                self._apply(key, ServicePaused(pause_s=late_s))
        for key in self._timers.due(now):
            deadline = next_deadline(self._group(key))
            if deadline is not None and deadline <= now:
                self._apply(key, Tick())
            else:
                self._timers.set(key, deadline)

    # Requests of clients

    async def join(self, key: GroupKey, event: JoinGroup) -> JoinAnswer:
        """JoinGroup; returns when the rebalance has its members. ``new_member_id`` is set here."""
        error = self._error(key, event, creates=not event.member_id)
        if error is not ErrorCode.NONE:
            return JoinAnswer(error=error, member_id=event.member_id)
        name = event.group_instance_id or event.client_id
        named = replace(event, new_member_id=f"{name}-{self._new_id()}")
        return await self._ask(key, named, JoinAnswer)

    async def sync(self, key: GroupKey, event: SyncGroup) -> SyncAnswer:
        """SyncGroup; returns when the leader has assigned."""
        error = self._error(key, event)
        if error is not ErrorCode.NONE:
            return SyncAnswer(error=error)
        return await self._ask(key, event, SyncAnswer)

    async def heartbeat(self, key: GroupKey, event: Heartbeat) -> HeartbeatAnswer:
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return HeartbeatAnswer(error=error)
        return await self._ask(key, event, HeartbeatAnswer)

    async def leave(self, key: GroupKey, event: LeaveGroup) -> LeaveAnswer:
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return LeaveAnswer(error=error, members=(error,) * len(event.members))
        return await self._ask(key, event, LeaveAnswer)

    async def commit(self, key: GroupKey, event: OffsetCommit) -> PartitionsAnswer:
        error = self._error(key, event, creates=True)
        if error is not ErrorCode.NONE:
            return PartitionsAnswer(error=error, partitions=tuple((p, error) for p, _, _ in event.offsets))
        return await self._ask(key, event, PartitionsAnswer)

    async def delete_offsets(self, key: GroupKey, event: OffsetDelete) -> PartitionsAnswer:
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return PartitionsAnswer(error=error, partitions=tuple((p, error) for _, p in event.partitions))
        return await self._ask(key, event, PartitionsAnswer)

    async def delete(self, key: GroupKey) -> DeleteAnswer:
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return DeleteAnswer(error=error)
        return await self._ask(key, DeleteGroup(), DeleteAnswer)

    async def fetch(self, key: GroupKey, partitions: tuple[TopicPartition, ...] | None) -> FetchAnswer:
        """OffsetFetch; of all partitions with an offset if ``partitions`` is None."""
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return FetchAnswer(error=error)
        fetched = coordinator.fetch_offsets(self._group(key), partitions)
        await self._durable(key)
        return fetched

    async def describe(self, key: GroupKey) -> DescribeAnswer:
        error = self._error(key)
        described = coordinator.describe(self._group(key))
        if error is not ErrorCode.NONE:
            return DescribeAnswer(error=error, group_id=key.group_id, state="")
        await self._durable(key)
        return described

    async def list(self, project: str) -> ListAnswer:
        """ListGroups of one project."""
        listed = tuple(coordinator.listed(group) for _, group in self.of(project))
        if self.availability is not Availability.READY:
            return ListAnswer(error=self.availability.error)
        return ListAnswer(error=ErrorCode.NONE, groups=listed)

    def _error(self, key: GroupKey, event: Event | None = None, *, creates: bool = False) -> ErrorCode:
        """Why no request about this group can be applied; NONE if one can."""
        if self.availability is not Availability.READY:
            return self.availability.error
        if not self.has_project(key.project):  # clients ask again, and may begin before it is created
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not 0 < len(key.group_id.encode()) <= self._limits.max_name_bytes:
            return ErrorCode.INVALID_GROUP_ID
        if creates and key not in self._groups and len(self._groups) >= self._max_groups:
            return ErrorCode.POLICY_VIOLATION
        if event is not None and not self.memory.fits(self._group(key), event):
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    async def _ask(self, key: GroupKey, event: Request, kind: type[A]) -> A:
        self._requests += 1
        request = self._requests
        self._waiting[request] = waiting = asyncio.get_running_loop().create_future()
        try:
            self._apply(key, event, request)
            answer = await waiting
        except asyncio.CancelledError:
            # If the request still waits, its connection is gone: the coordinator need not wait for it.
            if self._waiting.pop(request, None) is not None:
                self._apply(key, ConnectionLost(request=request))
            raise
        assert isinstance(answer, kind)
        return answer

    # What the service reports

    def of(self, project: str) -> Iterator[tuple[GroupKey, Group]]:
        """The groups of a project, for metrics and reports. They may be ahead of what is durable."""
        return self._groups.of(project)

    def all(self) -> Iterator[Group]:
        """Those of all projects."""
        return (group for _, group in self._groups.items())

    def cleanup(self, unix_ms: int) -> None:
        """Let offsets expire, at the wall clock's time in milliseconds; call it every few minutes."""
        empty = [key for key, group in self._groups.items() if group.state is GroupState.EMPTY]
        for key in empty:
            self._apply(key, Cleanup(unix_ms=unix_ms))

    def forget_logstore(self, project: str, logstore: int) -> None:
        """Forget the offsets of a logstore. Call it before persisting its deletion, which deletes the rows
        as well."""
        for key, _ in list(self.of(project)):
            self._apply(key, LogstoreDeleted(logstore=logstore))

    def forget_project(self, project: str) -> None:
        """Forget the groups of a project, whose deletion deletes the rows."""
        for key, _ in list(self.of(project)):
            self._answer_waiting(key)
            self._groups.remove(key)
            self.memory.hold(key, None)

    def _answer_waiting(self, key: GroupKey) -> None:
        """Answer what waits in a group with COORDINATOR_NOT_AVAILABLE."""
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for member in self._group(key).members.values():
            if member.join_request is not None:
                self._deliver(key, member.join_request, JoinAnswer(error=error, member_id=member.member_id))
            if member.sync_request is not None:
                self._deliver(key, member.sync_request, SyncAnswer(error=error))

    # Steps

    def _group(self, key: GroupKey) -> Group:
        group = self._groups.get(key)
        return Group(group_id=key.group_id) if group is None else group

    def _apply(self, key: GroupKey, event: Event, request: int = coordinator.NO_REQUEST) -> None:
        """Apply one event, submit its facts, and send the answers once they are durable."""
        outcome = coordinator.step(
            self._group(key), event, now=self._clock.monotonic_s(), request=request, limits=self._limits
        )
        if outcome.facts:
            self._saved[key] = saved = self._persist(key, outcome.facts)
            saved.add_done_callback(lambda done: self._forget_saved(key, done))
        if outcome.group.state is GroupState.DEAD:
            self._groups.remove(key)
            self.memory.hold(key, None)
        else:
            self._groups.put(key, outcome.group)
            if not isinstance(event, Heartbeat):  # changes nothing that counts, and is frequent
                self.memory.hold(key, outcome.group)
            self._timers.set(key, outcome.next_deadline_s)
        for number, answer in outcome.answers:
            self._deliver(key, number, answer)
        for change in outcome.transitions:
            _log_transition(key, change)

    def _forget_saved(self, key: GroupKey, done: "asyncio.Future[object]") -> None:
        """A commit that failed stays, so that nothing is answered after it."""
        if self._saved.get(key) is done and not done.cancelled() and done.exception() is None:
            del self._saved[key]

    def _deliver(self, key: GroupKey, request: int, answer: Answer) -> None:
        waiting = self._waiting.pop(request, None)
        saved = self._saved.get(key)
        if waiting is None or waiting.done():
            return  # its connection is gone
        if saved is None:
            waiting.set_result(answer)
        else:
            saved.add_done_callback(lambda done: _resolve(waiting, answer, done))

    async def _durable(self, key: GroupKey) -> None:
        """Return once everything in the group is persisted."""
        saved = self._saved.get(key)
        if saved is not None:
            await asyncio.shield(saved)


def _resolve(waiting: "asyncio.Future[Answer]", answer: Answer, saved: "asyncio.Future[object]") -> None:
    if waiting.done():
        return
    error = None if saved.cancelled() else saved.exception()
    if error is not None:
        waiting.set_exception(error)
    elif saved.cancelled():
        waiting.cancel()
    else:
        waiting.set_result(answer)


def _log_transition(key: GroupKey, change: Transition) -> None:
    _log.info(
        "kafka group state changed",
        project=key.project,
        group=key.group_id,
        old=change.old.value,
        new=change.new.value,
        trigger=change.trigger.value,
        generation=change.generation,
        members=change.members,
    )
