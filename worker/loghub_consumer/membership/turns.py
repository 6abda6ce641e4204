"""Work that is done in short turns: by a thread of its own, or by a crew of threads that many parts share.

A consumer has a part that sends heartbeats, one for each shard, and others. Each waits nearly always, so the
consumers of hundreds of logstores need few threads at any moment (docs/decisions/worker.md). A turn does the
work that is due and returns how long there is nothing to do; two threads never call it at once.
"""

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from itertools import count
from typing import Protocol

import structlog

from loghub.clock import Clock
from loghub_consumer.log_context import inherited

log = structlog.get_logger()
MIN_TIMES = 1_024  # a crew with fewer times does not remove void ones
MAX_WAIT_S = 86_400.0  # a user's time may be further away than a lock can wait

# The seconds until the next turn, unless `Turn.wake` is called first; None: the part has ended.
TakeTurn = Callable[[], float | None]
Wait = Callable[[Callable[[], object]], object]


class Turn(Protocol):
    """A started part."""

    def wake(self) -> None:
        """Make the next turn due, because something has changed. Any thread may call this, even during a
        turn."""

    def stop(self, timeout_s: float) -> None:
        """Make the present turn the last one. Waits for its end, but at most `timeout_s` seconds, and not
        inside that turn."""


class Turns(Protocol):
    """Threads for parts."""

    def start(self, name: str, take: TakeTurn, *, wait: Wait | None = None) -> Turn:
        """Begin with the part. An exception of `take` ends the part, which must keep the exception for others
        to see. A thread of the part's own waits by calling `wait` with the function that blocks."""


def _call(wait: Callable[[], object]) -> object:
    return wait()


class OwnThreads:
    """Each part has a thread, which does not keep the program from ending."""

    def start(self, name: str, take: TakeTurn, *, wait: Wait | None = None) -> Turn:
        return _OwnThread(name, take, wait or _call)


class _OwnThread:
    def __init__(self, name: str, take: TakeTurn, wait: Wait) -> None:
        self._take = take
        self._wait = wait
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=inherited(self._run), name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._changed.set()

    def stop(self, timeout_s: float) -> None:
        self._stopped = True
        self._changed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped and (pause_s := self._take()) is not None:
            if pause_s > 0 and not self._stopped:
                timeout_s = None if pause_s == math.inf else min(pause_s, MAX_WAIT_S)
                self._wait(lambda: self._changed.wait(timeout_s))  # noqa: B023 - it is called at once
                self._changed.clear()


class _State(Enum):
    WAITING = auto()
    READY = auto()
    RUNNING = auto()
    ENDED = auto()


class _Part:
    """One part of a crew, guarded by the crew's lock."""

    def __init__(self, crew: "Crew", take: TakeTurn) -> None:
        self.crew = crew
        self.take = take
        self.state = _State.READY
        self.due_s = math.inf
        self.is_woken = False
        self.is_stopped = False
        self.thread: threading.Thread | None = None

    def wake(self) -> None:
        self.crew.wake(self)

    def stop(self, timeout_s: float) -> None:
        self.crew.stop(self, timeout_s)


class Crew:
    """At most `limit` threads, started when they are needed. Parts that are due have their turns in the order
    in which they became due, one each, so none starves another as long as turns end."""

    def __init__(self, name: str, limit: int, clock: Clock) -> None:
        self._name = name
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._has_time = threading.Condition(self._lock)  # one idle thread waits for the first of the times
        self._turn_ended = threading.Condition(self._lock)
        self._ready: deque[_Part] = deque()
        self._times: list[tuple[float, int, _Part]] = []  # a heap, with void times
        self._max_times = MIN_TIMES
        self._numbers = count()
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # idle threads, without the one that watches the times, and the ones that were called
        self._has_watch = False
        self._is_closed = False

    def start(self, name: str, take: TakeTurn, *, wait: Wait | None = None) -> Turn:  # noqa: ARG002
        part = _Part(self, inherited(take))  # the thread has turns of other parts, too
        with self._lock:
            self._make_ready(part)
        return part

    def close(self) -> None:
        """End the threads, each after its present turn. Call it when all parts have ended."""
        with self._lock:
            self._is_closed = True
            self._idle = 0
            self._has_work.notify_all()
            self._has_time.notify_all()

    def wake(self, part: _Part) -> None:
        with self._lock:
            if part.state is _State.WAITING:
                self._make_ready(part)
            part.is_woken = True

    def stop(self, part: _Part, timeout_s: float) -> None:
        with self._lock:
            part.is_stopped = True
            if part.state is not _State.RUNNING:
                part.state = _State.ENDED
            elif part.thread is not threading.current_thread():
                self._turn_ended.wait_for(lambda: part.state is _State.ENDED, timeout_s)

    def _make_ready(self, part: _Part) -> None:
        part.state, part.due_s = _State.READY, math.inf
        self._ready.append(part)
        self._call_a_thread()

    def _call_a_thread(self) -> None:
        """Let a thread look for a due part."""
        if self._idle:
            self._idle -= 1
            self._has_work.notify()
        elif self._has_watch:
            self._has_time.notify()
        elif len(self._threads) < self._limit:
            thread = threading.Thread(target=inherited(self._run), name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        thread = threading.current_thread()
        try:
            while (part := self._next(thread)) is not None:
                self._take_turn(part)
        finally:
            with self._lock:
                self._threads.discard(thread)
                if self._ready:
                    self._call_a_thread()

    def _take_turn(self, part: _Part) -> None:
        pause_s: float | None = None
        try:
            pause_s = part.take()
        except Exception:  # the part has kept it, and the owner of the part acts on it
            log.exception("a part has ended")
        finally:
            with self._lock:
                self._end_turn(part, pause_s)

    def _end_turn(self, part: _Part, pause_s: float | None) -> None:
        part.thread = None
        if pause_s is None or part.is_stopped:
            part.state = _State.ENDED
            self._turn_ended.notify_all()
        elif pause_s <= 0 or part.is_woken:
            self._make_ready(part)
        else:
            part.state = _State.WAITING
            if pause_s < math.inf:
                part.due_s = self._clock.monotonic_s() + pause_s
                self._add_time(part)

    def _add_time(self, part: _Part) -> None:
        heapq.heappush(self._times, (part.due_s, next(self._numbers), part))
        if self._times[0][2] is part:
            self._has_time.notify()  # the time is earlier than the one that is waited for
        if len(self._times) > self._max_times:  # woken parts leave void times behind
            self._times = [entry for entry in self._times if self._holds(entry)]
            heapq.heapify(self._times)
            self._max_times = max(MIN_TIMES, 2 * len(self._times))

    def _next(self, thread: threading.Thread) -> _Part | None:
        with self._lock:
            while True:
                self._collect_due()
                while self._ready:
                    part = self._ready.popleft()
                    if part.state is _State.READY:
                        part.state, part.is_woken, part.thread = _State.RUNNING, False, thread
                        if not self._has_watch:
                            self._call_a_thread()  # this turn may take long
                        return part
                if self._is_closed:
                    return None
                self._await_work()

    def _collect_due(self) -> None:
        now = self._clock.monotonic_s()
        while self._times and (self._times[0][0] <= now or not self._holds(self._times[0])):
            entry = heapq.heappop(self._times)
            if self._holds(entry):
                self._make_ready(entry[2])

    def _holds(self, entry: tuple[float, int, _Part]) -> bool:
        due_s, _, part = entry
        return part.state is _State.WAITING and part.due_s == due_s

    def _await_work(self) -> None:
        if self._has_watch:
            self._idle += 1
            self._has_work.wait()
            return
        self._has_watch = True
        first_s = self._times[0][0] - self._clock.monotonic_s() if self._times else None
        self._has_time.wait(None if first_s is None else min(max(0.0, first_s), MAX_WAIT_S))
        self._has_watch = False
