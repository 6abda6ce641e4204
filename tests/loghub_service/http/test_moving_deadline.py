"""The deadline of a connection, on a loop whose time the test moves."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from loghub_service.http.moving_deadline import MovingDeadline


class ManualLoop:
    """Counts the timers that were requested."""

    def __init__(self) -> None:
        self.now_s, self.started = 100.0, 0
        self.timers: dict[ManualTimer, None] = {}

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], object]) -> "ManualTimer":
        self.started += 1
        timer = ManualTimer(self, at_s, call)
        self.timers[timer] = None
        return timer

    def pass_s(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer.at_s <= end_s]:
            timer = min(due, key=lambda timer: timer.at_s)
            timer.cancel()
            self.now_s = max(self.now_s, timer.at_s)
            timer.call()
        self.now_s = end_s


class ManualTimer:
    def __init__(self, loop: ManualLoop, at_s: float, call: Callable[[], object]) -> None:
        self.at_s, self.call = at_s, call
        self._loop = loop

    def cancel(self) -> None:
        self._loop.timers.pop(self, None)


class Watched:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.expired: list[float] = []
        self.deadline = MovingDeadline(
            cast("asyncio.AbstractEventLoop", self.loop), lambda: self.expired.append(self.loop.now_s)
        )


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_it_expires_once_at_its_time(watched: Watched) -> None:
    watched.deadline.expect(10)
    watched.loop.pass_s(100)
    assert watched.expired == [110.0]
    assert not watched.loop.timers


def test_it_moves_without_another_timer(watched: Watched) -> None:
    for _ in range(1000):
        watched.deadline.expect(10)
        watched.loop.pass_s(0.001)
    assert watched.loop.started == 1
    watched.loop.pass_s(100)
    assert watched.expired == [pytest.approx(110.999)]
    assert watched.loop.started == 2


def test_an_earlier_one_replaces_a_later_one(watched: Watched) -> None:
    watched.deadline.expect(75)
    watched.deadline.expect(15)
    watched.loop.pass_s(100)
    assert watched.expired == [115.0]


def test_it_does_not_expire_after_its_end_and_can_begin_again(watched: Watched) -> None:
    watched.deadline.expect(10)
    watched.deadline.end()
    watched.loop.pass_s(100)
    assert watched.expired == []
    watched.deadline.expect(10)
    watched.loop.pass_s(100)
    assert watched.expired == [210.0]


def test_nothing_refers_to_a_closed_one(watched: Watched) -> None:
    watched.deadline.expect(10)
    watched.deadline.close()
    assert not watched.loop.timers
    assert watched.expired == []


def test_what_it_calls_may_begin_another_one(watched: Watched) -> None:
    deadline = MovingDeadline(
        cast("asyncio.AbstractEventLoop", watched.loop), lambda: watched.deadline.expect(5)
    )
    deadline.expect(10)
    watched.loop.pass_s(100)
    assert watched.expired == [115.0]
