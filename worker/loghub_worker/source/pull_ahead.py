"""Pulls several ranges at the same time, and ahead of the task that takes the answers.

A worker far from the log service would otherwise wait for one round trip after the other, and do nothing
meanwhile. The answers are taken range by range, in order, so the rows of a batch have the order that they
would have without it. What is pulled and not yet taken is bounded in bytes over all ranges.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
THREADS = 16  # as many connections as the client keeps


class _Lane(Generic[T]):
    """The answers of one range."""

    def __init__(self, pulls: Iterator[T]) -> None:
        self.pulls = pulls
        self.answers: deque[T] = deque()  # not yet taken
        self.ended = False
        self.error: BaseException | None = None


class PullAhead(Generic[T]):
    """Use it as ``with PullAhead(...) as ahead: ...``, and take the answers of each range in order.

    Each of `ranges` pulls the answers of one range, one after the other; `size` is that of an answer in
    bytes. The next answer of a range is pulled while less than `max_bytes` wait to be taken. The range whose
    turn it is may always pull one.
    """

    def __init__(
        self,
        ranges: Sequence[Iterator[T]],
        *,
        size: Callable[[T], int],
        max_bytes: int,
        threads: int = THREADS,
    ) -> None:
        self._lanes = [_Lane(pulls) for pulls in ranges]
        self._size = size
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._turn = 0  # the lane from which answers are taken
        self._begun = 0
        self._closed = False
        self._changed = threading.Condition()
        # Daemons: a request that does not end must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._run, name="pull", daemon=True)
            for _ in range(min(threads, len(self._lanes)))
        ]

    def __enter__(self) -> "PullAhead[T]":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def answers(self, number: int) -> Iterator[T]:
        """The answers of the range of this number. Raises what pulling raised."""
        lane = self._lanes[number]
        while True:
            with self._changed:
                self._turn = number
                self._changed.notify_all()
                self._changed.wait_for(lambda: lane.answers or lane.ended)
                if not lane.answers:
                    if lane.error is not None:
                        raise lane.error
                    return
                answer = lane.answers.popleft()
                self._waiting_bytes -= self._size(answer)
                self._changed.notify_all()
            yield answer

    def _run(self) -> None:
        """Pull one range after the other. They begin in order, so the one whose turn it is has begun once
        those before it have ended."""
        while True:
            with self._changed:
                if self._closed or self._begun == len(self._lanes):
                    return
                number = self._begun
                self._begun += 1
            self._pull(number)

    def _pull(self, number: int) -> None:
        lane = self._lanes[number]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._may_pull(number))
                if self._closed:
                    return
            try:
                answer = next(lane.pulls, None)
            except BaseException as error:  # noqa: BLE001 - it is raised where the answers are taken
                lane.error, answer = error, None
            with self._changed:
                if answer is None:
                    lane.ended = True
                else:
                    lane.answers.append(answer)
                    self._waiting_bytes += self._size(answer)
                self._changed.notify_all()
                if answer is None:
                    return

    def _may_pull(self, number: int) -> bool:
        is_next = number == self._turn and not self._lanes[number].answers
        return is_next or self._waiting_bytes < self._max_bytes
