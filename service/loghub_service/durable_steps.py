"""What consumer groups of SLS and of Kafka and subscriptions have in common: answers that wait for the disk.

A step is effective in memory immediately, and its facts are committed in the same order. A response waits for
the newest facts of its group or of its subscription, including the facts of earlier steps. No response
therefore depends on anything that a crash could undo, yet waiting steps share one transaction, and a
heartbeat that changes nothing does not wait for the disk. A failed commit stops the service, which bounds how
long the state in memory can be ahead of the disk.

Groups also need to know of pauses of the process (`PauseDetector`), and endpoints turn the result of a commit
into their own terms (`converted`).
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import structlog

from loghub.clock import Clock

_log = structlog.get_logger("loghub_service.durable_steps")
K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")


class NewestCommits(Generic[K]):
    """The commit of each group's newest facts, until it is on disk. Used on the event loop only."""

    def __init__(self) -> None:
        self._saved: dict[K, asyncio.Future[object]] = {}

    def add(self, group: K, saved: "asyncio.Future[object]") -> None:
        """Note the commit of facts that are newer than all earlier facts of the group."""
        self._saved[group] = saved
        saved.add_done_callback(lambda done: self._forget(group, done))

    def _forget(self, group: K, done: "asyncio.Future[object]") -> None:
        """Forget a commit that has succeeded. A failed commit stays, so that nothing is answered after it."""
        if self._saved.get(group) is done and not done.cancelled() and done.exception() is None:
            del self._saved[group]

    async def durable(self, group: K) -> None:
        """Return once all facts of the group are persisted; raises the error of their commit."""
        saved = self._saved.get(group)
        if saved is not None:
            await asyncio.shield(saved)

    def answer(self, group: K, waiting: "asyncio.Future[A]", answer: A) -> None:
        """Answer a waiting request, once all facts of its group are persisted."""
        saved = self._saved.get(group)
        if saved is None:
            waiting.set_result(answer)
        else:
            saved.add_done_callback(lambda done: _resolve(waiting, answer, done))


def converted(
    saved: "asyncio.Future[A]", value: Callable[[A], B], error: Callable[[BaseException], BaseException]
) -> "asyncio.Future[B]":
    """The result of a commit in the terms of an endpoint. Cancelling it does not end the commit."""
    result: asyncio.Future[B] = asyncio.get_running_loop().create_future()

    def done(saved: "asyncio.Future[A]") -> None:
        if result.done():
            return
        failure = asyncio.CancelledError() if saved.cancelled() else saved.exception()
        if failure is None:
            result.set_result(value(saved.result()))
        else:
            result.set_exception(error(failure))

    saved.add_done_callback(done)
    return result


def _resolve(waiting: "asyncio.Future[A]", answer: A, saved: "asyncio.Future[object]") -> None:
    if waiting.done():
        return  # its connection is gone
    error = None if saved.cancelled() else saved.exception()
    if error is not None:
        waiting.set_exception(error)
    elif saved.cancelled():
        waiting.cancel()
    else:
        waiting.set_result(answer)


class PauseDetector:
    """Notices that the process was paused, because the machine slept or the process was stopped: `tick` is
    called every ``interval_s`` seconds otherwise. After a pause the event loop ticks before it reads the
    requests that arrived meanwhile, so no session ends because the service was silent."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self.begin()

    def begin(self) -> None:
        """Expect the first tick an interval from now on."""
        self._ticked_s = self._clock.monotonic_s()

    def tick(self) -> float:
        """How long the process was paused since the last tick; 0 for a delay of less than an interval."""
        now = self._clock.monotonic_s()
        late_s, self._ticked_s = now - self._ticked_s - self._interval_s, now
        if late_s <= self._interval_s:
            return 0.0
        _log.warning("the service was paused", seconds=round(late_s, 1))
        return late_s
