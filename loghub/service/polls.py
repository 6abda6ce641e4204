"""Requests that wait for news: bounded in number and memory, and ended when they have no reason to wait.

A long poll ends when there is news, when its time is over, when its client goes away, when the same client
begins another one under the same name, and when the service stops. Its connection may be closed for another
one meanwhile (`loghub.service.http.connections`), so that polls never keep a heartbeat from being served.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loghub.service.api_errors import failure
from loghub.service.memory import MemoryBudget
from loghub.service.messages import Request
from loghub.service.settings import Limits
from loghub.wire.errors import Code

_POLL_BYTES = 4096  # a poll with its request and its connection, beyond the body
_WATCHED_BYTES = 512  # each thing that a poll watches


class Poll:
    """One poll that waits. `wake` lets it look again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.is_over = False
        self._wake = wake

    def end(self) -> None:
        """Let it answer at once, with or without news."""
        self.is_over = True
        self._wake()


class Polls:
    """The polls of a service. Used on the event loop only."""

    def __init__(self, limits: Limits) -> None:
        self.budget = MemoryBudget("polls", limit=limits.poll_bytes)
        self._most_of_key = limits.polls_per_key
        self._of_key: Counter[str] = Counter()
        self._open: dict[Poll, None] = {}
        self._named: dict[tuple[str, str], Poll] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all polls, and let no other one wait: the service stops."""
        self._is_closed = True
        for poll in tuple(self._open):
            poll.end()

    @contextmanager
    def place(self, request: Request, name: str, *, watched: int, wake: Callable[[], None]) -> Iterator[Poll]:
        """A place for a poll that watches so many things. It ends the one that its key has under this name.
        Raises LogHubError ServerBusy if there is none."""
        key_id = request.key.key_id
        before = self._named.get((key_id, name))
        if before is not None:
            before.end()
        elif self._of_key[key_id] >= self._most_of_key:
            raise failure(
                Code.SERVER_BUSY, f"access key {key_id!r} has {self._most_of_key} polls, which is the most"
            )
        with self.budget.reservation() as memory:
            memory.take(_POLL_BYTES + len(request.body) + watched * _WATCHED_BYTES)
            request.memory.release()  # the body is counted here while it waits
            poll = Poll(wake)
            poll.is_over = self._is_closed
            self._open[poll] = None
            self._of_key[key_id] += 1
            self._named[key_id, name] = poll
            try:
                yield poll
            finally:
                del self._open[poll]
                self._of_key -= Counter({key_id: 1})
                if self._named.get((key_id, name)) is poll:  # a later one may be over already
                    del self._named[key_id, name]


async def wait_for_news(
    request: Request, poll: Poll, woken: asyncio.Event, *, wait_s: float, is_news: Callable[[], bool]
) -> None:
    """Return once there is news or the poll ends. `woken` is set whenever `is_news` may have changed; that
    may raise LogHubError, for what no longer exists. A poll that does not wait asks for no news."""
    if wait_s <= 0:
        return
    gone = asyncio.ensure_future(request.gone())
    gone.add_done_callback(lambda _: woken.set())
    try:
        with request.parked():
            async with asyncio.timeout(wait_s):
                while not (poll.is_over or gone.done() or is_news()):
                    await woken.wait()
                    woken.clear()
    except TimeoutError:
        return  # nothing has happened, and that is the answer
    finally:
        gone.cancel()
