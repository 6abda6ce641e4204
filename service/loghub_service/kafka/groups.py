"""The Kafka groups of a running service: drives the coordinator, and answers once everything is durable.

Events are applied to `loghub_service.kafka.coordinator` one at a time on the event loop. An answer waits for
the newest facts of its group (`loghub_service.durable_steps`), so it never promises a generation or an offset
that a crash could undo. A request that the coordinator answers later is a future here. One timer
(`TimerHeap`) serves the deadlines of all groups.

Each group has bounds of its own, but a client may create thousands of groups, whose metadata, assignments and
committed offsets are in memory and in the database, also after a restart. So all groups together have one
bound (`GroupMemory`). Once it is reached, an event that adds to it is refused. A member that joins again with
the same metadata adds nothing, nor does a commit that only moves an offset.

`GroupTable` has the groups by project, too, so that a report on one project does not go through all groups.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Generic, Protocol, TypeVar

import structlog

from loghub.clock import Clock
from loghub_service.durable_steps import NewestCommits, PauseDetector
from loghub_service.kafka.coordinator import facts as durable_facts
from loghub_service.kafka.coordinator import step as coordinator
from loghub_service.kafka.coordinator.facts import Fact, Offsets
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupErrorCode,
    GroupMember,
    KafkaGroupLimits,
    KafkaTransition,
    MemberProtocol,
    TopicPartition,
    next_deadline,
)
from loghub_service.kafka.coordinator.requests import (
    Answer,
    Cleanup,
    ConnectionLost,
    DeleteAnswer,
    DeleteKafkaGroup,
    DescribeAnswer,
    Event,
    FetchAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    ListAnswer,
    LogstoreGone,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    PartitionsAnswer,
    PauseDetected,
    Request,
    SyncAnswer,
    SyncGroup,
    TimePassed,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState

DEFAULT_GROUP_BYTES = 128 << 20  # half a million committed offsets
# What an entry takes besides the bytes that a client has chosen: names, times and the Python objects.
MEMBER_BYTES = 1024
OFFSET_BYTES = 256


class GroupMemory:
    """The bytes of all groups: at most ``limit``, which ``used`` exceeds only by restored groups."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Hashable, int] = {}
        self._offsets: dict[Hashable, tuple[Offsets, int]] = {}  # the last table of each group, and its size

    def fits(self, group: Group, event: Event) -> bool:
        """Whether there is room for the bytes that the event may add to its group."""
        added = _added(group, event)
        return added <= 0 or self.used + added <= self.limit

    def hold(self, key: Hashable, group: Group | None) -> None:
        """Count the group as it is now; None: the group is gone."""
        size = 0 if group is None else _size_of_members(group) + self._size_of_offsets(key, group.offsets)
        if group is None:
            self._offsets.pop(key, None)
        self.used += size - self._held.pop(key, 0)
        if size:
            self._held[key] = size

    def _size_of_offsets(self, key: Hashable, offsets: Offsets) -> int:
        """The size of a table. Most steps leave the table unchanged, and others replace it."""
        cached = self._offsets.get(key)
        if cached is not None and cached[0] is offsets:
            return cached[1]
        size = OFFSET_BYTES * len(offsets)
        size += sum(len(one.metadata.encode()) for one in offsets.values() if one.metadata)
        self._offsets[key] = (offsets, size)
        return size


def _size_of_members(group: Group) -> int:
    members = sum(_metadata(m.info.protocols) + len(m.info.assignment) for m in group.members.values())
    return members + MEMBER_BYTES * (len(group.members) + len(group.pending))


def _added(group: Group, event: Event) -> int:
    match event:
        case JoinGroup():
            present = _known(group, event)
            had = 0 if present is None else MEMBER_BYTES + _metadata(present.info.protocols)
            if present is None and event.member_id in group.pending:
                had = MEMBER_BYTES
            return MEMBER_BYTES + _metadata(event.protocols) - had
        case SyncGroup():
            had = sum(len(member.info.assignment) for member in group.members.values())
            return sum(len(assignment) for _, assignment in event.assignments) - had
        case OffsetCommit():
            added = 0
            for partition, _, metadata in event.offsets:
                known_offset = group.offsets.get(partition)
                had = 0 if known_offset is None else OFFSET_BYTES + len(known_offset.metadata.encode())
                added += OFFSET_BYTES + len(metadata.encode()) - had
            return added
        case _:
            return 0


def _known(group: Group, event: JoinGroup) -> GroupMember | None:
    """The member that joins again, or the static member that the join replaces."""
    if event.member_id or event.group_instance_id is None:
        return group.members.get(event.member_id)
    of_instance = (m for m in group.members.values() if m.info.group_instance_id == event.group_instance_id)
    return next(of_instance, None)


def _metadata(protocols: Iterable[MemberProtocol]) -> int:
    return sum(len(protocol.metadata) for protocol in protocols)


@dataclass(frozen=True, slots=True)
class KafkaGroupKey:
    """A group of one project: projects do not share group ids."""

    project: str
    group_id: str


class GroupTable:
    """The groups of all projects. Only `put` and `remove` change it."""

    def __init__(self) -> None:
        self._all: dict[KafkaGroupKey, Group] = {}
        self._of: dict[str, dict[KafkaGroupKey, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: KafkaGroupKey) -> bool:
        return key in self._all

    def get(self, key: KafkaGroupKey) -> Group | None:
        return self._all.get(key)

    def put(self, key: KafkaGroupKey, group: Group) -> None:
        self._all[key] = group
        self._of.setdefault(key.project, {})[key] = None

    def remove(self, key: KafkaGroupKey) -> None:
        if self._all.pop(key, None) is not None:
            keys = self._of[key.project]
            del keys[key]
            if not keys:
                del self._of[key.project]

    def all_keys(self) -> list[KafkaGroupKey]:
        return list(self._all)

    def items(self) -> Iterator[tuple[KafkaGroupKey, Group]]:
        return iter(self._all.items())

    def of(self, project: str) -> Iterator[tuple[KafkaGroupKey, Group]]:
        return ((key, self._all[key]) for key in self._of.get(project, ()))


K = TypeVar("K", bound=Hashable)


class TimerHeap(Generic[K]):
    """One timer for many deadlines: a heap with at most a few entries for each key. Used on the event loop
    only. Times are monotonic seconds of the clock.

    A deadline that moves to a later time keeps its entry, which is checked when it fires: every heartbeat
    prolongs a session, and sessions hardly ever end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, K]] = []
        self._number = count()  # keys need no order
        self._next: dict[K, float] = {}  # the valid entry of each key
        self._earlier = asyncio.Event()  # an entry is earlier than the one that is awaited

    def __len__(self) -> int:
        """The number of entries, including entries that are no longer valid."""
        return len(self._heap)

    def set(self, key: K, deadline_s: float | None) -> None:
        """Let the timer fire for this key at the deadline, unless it does so earlier anyway."""
        known_s = self._next.get(key)
        if deadline_s is None or (known_s is not None and known_s <= deadline_s):
            return
        self._next[key] = deadline_s
        heapq.heappush(self._heap, (deadline_s, next(self._number), key))
        if self._heap[0][0] == deadline_s:
            self._earlier.set()

    def due(self, now: float) -> list[K]:
        """The keys for which the timer has fired, each once; set the timer again for the keys that have a
        later deadline."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            deadline_s, _, key = heapq.heappop(self._heap)
            if self._next.get(key) == deadline_s:
                del self._next[key]
                keys.append(key)
        return keys

    async def wait(self, *, at_most_s: float) -> None:
        """Return when a deadline is reached, and after ``at_most_s`` seconds at the latest."""
        while True:
            self._earlier.clear()
            wait_s = self._heap[0][0] - self._clock.monotonic_s() if self._heap else at_most_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(wait_s, at_most_s))):
                    await self._earlier.wait()
                    continue
            return


_log = structlog.get_logger("loghub_service.kafka.groups")
A = TypeVar("A", bound=Answer)

# The timer fires at least this often. If it fires a further interval late, the process was paused.
TICK_INTERVAL_S = 1.0
DEFAULT_MAX_GROUPS = 5_000  # of the whole service; bounds the time of a tick and of a start


class PersistFacts(Protocol):
    """Stores the facts of one step in one transaction, after the facts of all earlier calls."""

    def __call__(self, key: KafkaGroupKey, facts: tuple[Fact, ...]) -> "asyncio.Future[object]": ...


class Availability(Enum):
    """Whether groups can be used; the value is the error of every request, or NONE."""

    LOADING = GroupErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    READY = GroupErrorCode.NONE
    STOPPED = GroupErrorCode.COORDINATOR_NOT_AVAILABLE

    @property
    def error(self) -> GroupErrorCode:
        return GroupErrorCode(self.value)


class KafkaGroups:
    """All Kafka groups of all projects. Used on the event loop only.

    First `restore` the persisted groups, then call `open`. Until then, and after `close`, every request is
    answered with the error of `availability`. Besides such errors, a request raises the error with which
    persisting its facts failed; the service stops then.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        persist: PersistFacts,
        new_id: Callable[[], str],
        limits: KafkaGroupLimits = coordinator.DEFAULT_LIMITS,
        max_groups: int = DEFAULT_MAX_GROUPS,
        max_bytes: int = DEFAULT_GROUP_BYTES,
    ) -> None:
        """``new_id`` makes the part of a member id that is never used twice. ``max_bytes`` is the bound on
        all groups together."""
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
        self._commits: NewestCommits[KafkaGroupKey] = NewestCommits()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._requests = coordinator.NO_REQUEST
        self._timers: TimerHeap[KafkaGroupKey] = TimerHeap(clock)
        self._pauses = PauseDetector(clock, TICK_INTERVAL_S)

    # The life of the service

    def restore(self, key: KafkaGroupKey, facts: Iterable[Fact]) -> None:
        """Restore a persisted group; every session starts again."""
        group = durable_facts.restore(key.group_id, facts, now=self._clock.monotonic_s())
        if group.state is not KafkaGroupState.DEAD:
            self._groups.put(key, group)
            self.memory.hold(key, group)
            self._timers.set(key, next_deadline(group))

    def open(self) -> None:
        self.availability = Availability.READY
        self._pauses.begin()

    def close(self) -> None:
        """Answer every waiting request; the groups continue after the next start."""
        self.availability = Availability.STOPPED
        for key in self._groups.all_keys():
            self._answer_waiting(key)

    async def run(self) -> None:
        """The timer: apply a tick to each group whose deadline has passed, forever."""
        while True:
            await self._timers.wait(at_most_s=TICK_INTERVAL_S)
            self.tick()

    def tick(self) -> None:
        """Apply a tick to each group whose deadline has passed; cheap if there is none."""
        now = self._clock.monotonic_s()
        if paused_s := self._pauses.tick():
            for key in self._groups.all_keys():
                self._apply(key, PauseDetected(pause_s=paused_s))
        for key in self._timers.due(now):
            deadline = next_deadline(self._group(key))
            if deadline is not None and deadline <= now:
                self._apply(key, TimePassed())
            else:
                self._timers.set(key, deadline)

    # Requests of clients

    async def join(self, key: KafkaGroupKey, event: JoinGroup) -> JoinAnswer:
        """JoinGroup; returns when the rebalance has its members. ``new_member_id`` is set here."""
        error = self._error(key, event, creates=not event.member_id)
        if error is not GroupErrorCode.NONE:
            return JoinAnswer(error=error, member_id=event.member_id)
        name = event.group_instance_id or event.client_id
        named = replace(event, new_member_id=f"{name}-{self._new_id()}")
        return await self._ask(key, named, JoinAnswer)

    async def sync(self, key: KafkaGroupKey, event: SyncGroup) -> SyncAnswer:
        """SyncGroup; returns when the leader has assigned."""
        error = self._error(key, event)
        if error is not GroupErrorCode.NONE:
            return SyncAnswer(error=error)
        return await self._ask(key, event, SyncAnswer)

    async def heartbeat(self, key: KafkaGroupKey, event: MemberHeartbeat) -> HeartbeatAnswer:
        error = self._error(key)
        if error is not GroupErrorCode.NONE:
            return HeartbeatAnswer(error=error)
        return await self._ask(key, event, HeartbeatAnswer)

    async def leave(self, key: KafkaGroupKey, event: LeaveGroup) -> LeaveAnswer:
        error = self._error(key)
        if error is not GroupErrorCode.NONE:
            return LeaveAnswer(error=error, members=(error,) * len(event.members))
        return await self._ask(key, event, LeaveAnswer)

    async def commit(self, key: KafkaGroupKey, event: OffsetCommit) -> PartitionsAnswer:
        error = self._error(key, event, creates=True)
        if error is not GroupErrorCode.NONE:
            return PartitionsAnswer(error=error, partitions=tuple((p, error) for p, _, _ in event.offsets))
        return await self._ask(key, event, PartitionsAnswer)

    async def delete_offsets(self, key: KafkaGroupKey, event: OffsetDelete) -> PartitionsAnswer:
        error = self._error(key)
        if error is not GroupErrorCode.NONE:
            return PartitionsAnswer(error=error, partitions=tuple((p, error) for _, p in event.partitions))
        return await self._ask(key, event, PartitionsAnswer)

    async def delete(self, key: KafkaGroupKey) -> DeleteAnswer:
        error = self._error(key)
        if error is not GroupErrorCode.NONE:
            return DeleteAnswer(error=error)
        return await self._ask(key, DeleteKafkaGroup(), DeleteAnswer)

    async def fetch(self, key: KafkaGroupKey, partitions: tuple[TopicPartition, ...] | None) -> FetchAnswer:
        """OffsetFetch; ``partitions`` None means all partitions with an offset."""
        error = self._error(key)
        if error is not GroupErrorCode.NONE:
            return FetchAnswer(error=error)
        fetched = coordinator.fetch_offsets(self._group(key), partitions)
        await self._commits.durable(key)
        return fetched

    async def describe(self, key: KafkaGroupKey) -> DescribeAnswer:
        error = self._error(key)
        described = coordinator.describe(self._group(key))
        if error is not GroupErrorCode.NONE:
            return DescribeAnswer(error=error, group_id=key.group_id, state="")
        await self._commits.durable(key)
        return described

    async def list(self, project: str) -> ListAnswer:
        """ListGroups of one project."""
        listed = tuple(coordinator.listed(group) for _, group in self.of(project))
        if self.availability is not Availability.READY:
            return ListAnswer(error=self.availability.error)
        return ListAnswer(error=GroupErrorCode.NONE, groups=listed)

    def _error(
        self, key: KafkaGroupKey, event: Event | None = None, *, creates: bool = False
    ) -> GroupErrorCode:
        """The error because of which no request about this group can be applied; NONE if one can."""
        if self.availability is not Availability.READY:
            return self.availability.error
        # Clients repeat the request, and may begin before the project is created.
        if not self.has_project(key.project):
            return GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        if not 0 < len(key.group_id.encode()) <= self._limits.max_name_bytes:
            return GroupErrorCode.INVALID_GROUP_ID
        if creates and key not in self._groups and len(self._groups) >= self._max_groups:
            return GroupErrorCode.POLICY_VIOLATION
        if event is not None and not self.memory.fits(self._group(key), event):
            return GroupErrorCode.POLICY_VIOLATION
        return GroupErrorCode.NONE

    async def _ask(self, key: KafkaGroupKey, event: Request, kind: type[A]) -> A:
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

    def of(self, project: str) -> Iterator[tuple[KafkaGroupKey, Group]]:
        """The groups of a project, for metrics and reports. They may be ahead of what is durable."""
        return self._groups.of(project)

    def all(self) -> Iterator[Group]:
        """The groups of all projects."""
        return (group for _, group in self._groups.items())

    def cleanup(self, unix_ms: int) -> None:
        """Let offsets expire, at the wall clock's time in milliseconds; call it every few minutes."""
        empty = [key for key, group in self._groups.items() if group.state is KafkaGroupState.EMPTY]
        for key in empty:
            self._apply(key, Cleanup(unix_ms=unix_ms))

    def forget_logstore(self, project: str, logstore: int) -> None:
        """Forget the offsets of a logstore. Call it before persisting its deletion, which deletes the rows
        as well."""
        for key, _ in list(self.of(project)):
            self._apply(key, LogstoreGone(logstore=logstore))

    def forget_project(self, project: str) -> None:
        """Forget the groups of a project, whose deletion deletes the rows."""
        for key, _ in list(self.of(project)):
            self._answer_waiting(key)
            self._groups.remove(key)
            self.memory.hold(key, None)

    def _answer_waiting(self, key: KafkaGroupKey) -> None:
        """Answer the waiting requests of a group with COORDINATOR_NOT_AVAILABLE."""
        error = GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        for member in self._group(key).members.values():
            if member.join_request is not None:
                self._deliver(key, member.join_request, JoinAnswer(error=error, member_id=member.member_id))
            if member.sync_request is not None:
                self._deliver(key, member.sync_request, SyncAnswer(error=error))

    # Steps

    def _group(self, key: KafkaGroupKey) -> Group:
        group = self._groups.get(key)
        return Group(group_id=key.group_id) if group is None else group

    def _apply(self, key: KafkaGroupKey, event: Event, request: int = coordinator.NO_REQUEST) -> None:
        """Apply one event, submit its facts, and send the answers once they are durable."""
        outcome = coordinator.step(
            self._group(key), event, now=self._clock.monotonic_s(), request=request, limits=self._limits
        )
        if outcome.facts:
            self._commits.add(key, self._persist(key, outcome.facts))
        if outcome.group.state is KafkaGroupState.DEAD:
            self._groups.remove(key)
            self.memory.hold(key, None)
        else:
            self._groups.put(key, outcome.group)
            # A heartbeat changes nothing that counts, and is frequent.
            if not isinstance(event, MemberHeartbeat):
                self.memory.hold(key, outcome.group)
            self._timers.set(key, outcome.next_deadline_s)
        for number, answer in outcome.answers:
            self._deliver(key, number, answer)
        for change in outcome.transitions:
            _log_transition(key, change)

    def _deliver(self, key: KafkaGroupKey, request: int, answer: Answer) -> None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None and not waiting.done():  # otherwise the connection is closed
            self._commits.answer(key, waiting, answer)


def _log_transition(key: KafkaGroupKey, change: KafkaTransition) -> None:
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
