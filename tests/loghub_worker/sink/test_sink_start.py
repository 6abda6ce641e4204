"""The start of a worker whose target cannot be used, in virtual time."""

from collections.abc import Callable

import pytest

from loghub.backoff import without_jitter
from loghub_consumer.errors import FatalError
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_start import SinkStart
from tests.support import HandClock

OUTAGE_S = 900.0


class Start:
    """A start whose pauses move a clock."""

    def __init__(self, before_a_pause: Callable[[], None] = lambda: None) -> None:
        self.clock = HandClock(100.0)
        self.pauses: list[float] = []
        self.reasons: set[str] = set()
        self._before_a_pause = before_a_pause
        self.sink_start = SinkStart(self._wait, random=without_jitter)

    def _wait(self, seconds: float) -> None:
        self._before_a_pause()
        self.reasons.add(self.sink_start.error.reason)
        self.pauses.append(seconds)
        self.clock.now += seconds


def test_a_target_that_comes_back_after_a_quarter_of_an_hour_lets_the_start_continue() -> None:
    start = Start()
    back_s = start.clock.now + OUTAGE_S

    def step() -> str:
        if start.clock.now < back_s:
            raise NotADirectoryError(20, "Not a directory", "/sink")
        return "the sink"

    assert start.sink_start.take(step) == "the sink"
    assert start.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert set(start.pauses[7:]) == {30}
    assert start.reasons == {"SinkUnavailable"}
    assert start.sink_start.error.reason == ""


def test_what_no_retry_resolves_ends_the_start() -> None:
    start = Start()

    def step() -> None:
        raise InvalidSinkError("no such topic")

    with pytest.raises(FatalError, match="no such topic") as raised:
        start.sink_start.take(step)
    assert (raised.value.reason, start.pauses) == ("InvalidSink", [])


def test_a_stop_ends_the_start_while_it_waits() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    def step() -> None:
        raise ConnectionError("no answer")

    start = Start(before_a_pause=stop)
    with pytest.raises(KeyboardInterrupt):
        start.sink_start.take(step)
    assert start.sink_start.error.message == "no answer"
