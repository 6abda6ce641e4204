"""Between two steps of `Consumer.run`: signals, whose handlers the waiting thread calls."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from loghub_consumer import Consumer, LogBatch, Processor, Tracker
from loghub_consumer.consumer import run_to_end
from tests.loghub_consumer.virtual import Program, World, world


class Saving(Processor):
    has_ended = False

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()

    def shutdown(self, tracker: Tracker) -> None:
        type(self).has_ended = True


def interrupted(
    one: World, handler: Callable[[Any], object], factory: Callable[[], Processor] = Saving
) -> Program:
    """A consumer that has saved something, and the wait of whose thread then calls the handler once."""
    one.make_logstore("access")
    one.put("access", ["a"])
    program = one.start(lambda: Consumer(one.settings("access"), factory))
    one.until(lambda: one.is_saved("access"), "the log")
    assignment, called = program.consumer._assignment, list[bool]()
    wait = assignment.wait

    def interrupted_wait(since: int, timeout_s: float) -> None:
        if not called:
            called.append(True)
            handler(program.consumer)
        wait(since, timeout_s)

    assignment.wait = interrupted_wait
    return program


def test_a_signal_handler_may_shut_down_the_consumer() -> None:
    with world() as one:
        answers: list[bool] = []
        program = interrupted(one, lambda consumer: answers.append(consumer.shutdown()))
        one.until(lambda: program.has_ended, "the end")
        assert answers == [False]
        assert program.error is None


def test_a_signal_handler_that_raises_ends_the_consumer_in_order() -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    class Ending(Saving):
        pass

    with world() as one:
        program = interrupted(one, interrupt, Ending)
        one.until(lambda: program.has_ended, "the end")
        assert isinstance(program.error, KeyboardInterrupt)
        assert Ending.has_ended


def test_what_is_raised_in_between_is_raised_in_the_steps_and_what_these_raise_by_them() -> None:
    seen: list[BaseException] = []

    def life(end: BaseException | None) -> Generator[int, None, None]:
        for number in range(3):
            try:
                yield number
            except KeyboardInterrupt as failure:
                seen.append(failure)
        if end is not None:
            raise end

    def wait(since: int) -> None:
        if since == 1:
            raise KeyboardInterrupt

    run_to_end(life(None), wait)
    assert len(seen) == 1
    with pytest.raises(ValueError, match="at the end"):
        run_to_end(life(ValueError("at the end")), lambda _: None)
