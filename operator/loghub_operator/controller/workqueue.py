"""Decides which group is reconciled when, and how many are at a time.

Each group has one task, so it is never reconciled twice at the same time, and any number of events during a
reconcile cause one more. At most `AT_ONCE` reconciles run. Groups that changed, or whose last reconcile
changed something, go first; groups that are only due for a resync take at most `RESYNCS_AT_ONCE` of the
places, and `UNANSWERED_AT_ONCE` if their log service does not answer, because such a reconcile lasts long.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from loghub.clock import Clock
from loghub_operator.controller.liveness import TaskHealth, TaskState
from loghub_operator.controller.requeue import SOON_S

# As many as the pool of log-service clients has threads (`loghub_operator.clients.log_service.THREADS`).
AT_ONCE = 20
# At 50 ms a request a resync takes a second, most of it waiting: twelve keep 500 groups below a minute.
RESYNCS_AT_ONCE = 12
# An endpoint that does not answer holds its place until a timeout, so such groups never hold the places of
# the others.
UNANSWERED_AT_ONCE = 2
UNANSWERED_AFTER = 3  # reconciles in a row without an answer; a single one may be chance
# A rollout changes many pods, a crash loop the same ones again and again, a new pod several times in a row.
CHILDREN_EVERY_S = 1.0
# Longer than the API server needs for the events of one change, and too short for anyone to notice.
COLLECT_S = 0.2


@dataclass(frozen=True, slots=True)
class Key:
    """Which object."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """The end of a reconcile. ``after_s``: seconds until the next one; None: the object no longer exists.
    ``answered``: whether the log service did; None: it was not asked."""

    after_s: float | None
    answered: bool | None = None


@dataclass(slots=True)
class _Task:
    due: asyncio.Event = field(default_factory=asyncio.Event)  # something changed
    own_change: asyncio.Event = field(default_factory=asyncio.Event)  # and not only a child
    # Resource versions whose events arrived since the last reconcile began; "": another cause.
    causes: set[str] = field(default_factory=set)
    own_version: str = ""  # resource version after our last write of the status
    unanswered: int = 0  # reconciles in a row
    state: TaskState = TaskState.QUEUED
    since_s: float = 0.0
    runner: "asyncio.Task[None] | None" = None

    def begin(self, now: float) -> None:
        self.due.clear()
        self.own_change.clear()
        self.causes.clear()
        self.state, self.since_s = TaskState.RUNNING, now


class WorkQueue:
    """Calls ``reconcile`` for each group that was enqueued, again and again until it no longer exists."""

    def __init__(self, reconcile: Callable[[Key], Awaitable[Requeue]], clock: Clock) -> None:
        self._reconcile = reconcile
        self._clock = clock
        self._tasks: dict[Key, _Task] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._resyncs = asyncio.Semaphore(RESYNCS_AT_ONCE)
        self._unanswered = asyncio.Semaphore(UNANSWERED_AT_ONCE)
        self._closed = False
        self.reconcile_ended_s = clock.monotonic_s()

    def enqueue(self, key: Key, *, version: str = "") -> None:
        """Reconciles this group now, because something about it changed. The first call starts its task.

        ``version`` is the resource version if the object itself changed; the event of our own last write is
        ignored.
        """
        if self._closed:
            return
        task = self._tasks.setdefault(key, _Task())
        if version and version == task.own_version:
            return
        task.causes.add(version)
        task.own_change.set()
        task.due.set()
        if task.runner is None:
            task.runner = asyncio.create_task(self._run(key, task), name=f"{key.namespace}/{key.name}")

    def enqueue_known(self, key: Key) -> None:
        """Reconciles the group of a changed child after `COLLECT_S` and at most once in `CHILDREN_EVERY_S`. A
        group that no longer exists is not started again."""
        task = self._tasks.get(key)
        if task is not None:
            task.causes.add("")
            task.due.set()

    def wrote(self, key: Key, version: str) -> None:
        """We wrote the object. The event of that is ignored, whether it is still to come or has arrived."""
        task = self._tasks.get(key)
        if task is None or not version:
            return
        task.own_version = version
        if version in task.causes:
            task.causes.remove(version)
            if not task.causes:
                task.due.clear()
                task.own_change.clear()

    def tasks(self) -> tuple[TaskHealth, ...]:
        """The state of each group's task."""
        return tuple(
            TaskHealth(group=f"{key.namespace}/{key.name}", state=task.state, since_s=task.since_s)
            for key, task in self._tasks.items()
        )

    async def close(self) -> None:
        """Cancels all tasks, for good; the next start of the process continues what they were doing."""
        self._closed = True
        runners = [task.runner for task in self._tasks.values() if task.runner is not None]
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    async def _run(self, key: Key, task: _Task) -> None:
        after_s: float | None = 0.0
        while True:
            task.state, task.since_s = TaskState.QUEUED, self._clock.monotonic_s()
            async with self._place(task, soon=after_s is None or after_s <= SOON_S):
                task.begin(self._clock.monotonic_s())
                result = await self._reconcile(key)
            if result.answered is not None:
                task.unanswered = 0 if result.answered else task.unanswered + 1
            after_s, self.reconcile_ended_s = result.after_s, self._clock.monotonic_s()
            pause_s = SOON_S if after_s is None else after_s
            task.state, task.since_s = TaskState.IDLE, self.reconcile_ended_s + pause_s
            if after_s is None and not task.due.is_set():
                del self._tasks[key]
                return
            await self._next(task, pause_s)

    async def _next(self, task: _Task, pause_s: float) -> None:
        """Waits until the next reconcile is due."""
        ended_s = self.reconcile_ended_s
        await _set_within(task.due, pause_s)
        if task.due.is_set() and not task.own_change.is_set():
            remaining_s = ended_s + CHILDREN_EVERY_S - self._clock.monotonic_s()
            await _set_within(task.own_change, min(max(remaining_s, COLLECT_S), pause_s))

    @asynccontextmanager
    async def _place(self, task: _Task, *, soon: bool) -> AsyncIterator[None]:
        """A place for a reconcile; a resync first waits among its like, unless a change arrives."""
        like = self._unanswered if task.unanswered >= UNANSWERED_AFTER else self._resyncs
        resync = not soon and not task.due.is_set() and await _acquired(like, unless=task.due)
        try:
            async with self._places:
                yield
        finally:
            if resync:
                like.release()


async def _acquired(semaphore: asyncio.Semaphore, *, unless: asyncio.Event) -> bool:
    """Waits for a place or for the event; whether the place was acquired."""
    place, event = asyncio.ensure_future(semaphore.acquire()), asyncio.ensure_future(unless.wait())
    try:
        await asyncio.wait((place, event), return_when=asyncio.FIRST_COMPLETED)
    finally:
        event.cancel()
        if not place.done():
            place.cancel()
    return place.done() and not place.cancelled()


async def _set_within(event: asyncio.Event, timeout_s: float) -> None:
    """Waits until the event is set, or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
