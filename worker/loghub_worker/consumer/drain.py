"""The steps of a consumer, and its end: its running batches end, what was noted is saved, and it leaves its
group."""

from collections.abc import Callable, Generator, Iterator
from inspect import GEN_CLOSED, getgeneratorstate

import structlog

from loghub.clock import Clock
from loghub_worker.consumer.assignment import Assignment
from loghub_worker.consumer.shard_runs import ShardRuns

log = structlog.get_logger()

MAX_LEAVE_S = 10.0  # for leaving the group once every shard is given up


def run_to_end(life: Generator[int, None, None], wait: Callable[[int], None]) -> None:
    """Take all steps. Each yields the change after which the next one is due, for which `wait` waits. What
    is raised between two steps, such as Ctrl-C, is raised in `life`."""
    between: BaseException | None = None
    while True:
        try:
            since = next(life) if between is None else life.throw(between)
            between = None
            wait(since)
        except StopIteration:
            return
        except BaseException as failure:
            if getgeneratorstate(life) == GEN_CLOSED:  # `life` has ended with it
                raise
            between = failure


class Drain:
    """Each step of `run` yields the number of the change after which the next one may do more."""

    def __init__(self, assignment: Assignment, runs: ShardRuns, clock: Clock) -> None:
        self._assignment = assignment
        self._runs = runs
        self._clock = clock

    def run(self, *, leaves: bool, timeout_s: float) -> Iterator[int]:
        """The timeout bounds the wait; then the shards are abandoned, so that other consumers continue with
        them."""
        self._assignment.give_up(leaves=leaves)
        yield from self._until(self._is_drained, timeout_s)
        if not self._is_drained():
            log.warning("drain timeout: other consumers continue with the shards", shards=self._runs.shards)
            self._assignment.abandon()
            self._runs.step()
        elif not leaves:
            return
        # Until the service knows, or for a while: the membership ends by itself later.
        yield from self._until(lambda: self._assignment.has_left, MAX_LEAVE_S)

    def _is_drained(self) -> bool:
        self._runs.step()
        return self._assignment.is_drained and not self._runs.shards

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> Iterator[int]:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while self._clock.monotonic_s() < deadline_s:
            since = self._assignment.changes
            if condition():
                return
            yield since
