"""What a processor has got and not saved is passed by no checkpoint, and comes again without its memory.

It may keep logs there, and save once it has written them: those that are new, those that come again since it
has refused them, and those that have waited in a retry logstore. It saves in `shutdown`, too.
"""

from collections.abc import Callable
from typing import Any

import pytest

from loghub.contract.processor import retry_group
from loghub_consumer import Consumer, LogBatch, OnFailure, Processor, RetryLogstore, Tracker
from loghub_consumer.processor import ProcessorFactory
from tests.loghub_consumer.virtual import GROUP, world
from tests.loghub_consumer.virtual_worker import DirectPool, in_worker

# How logs come again: after a refusal, or out of the logstore "waiting".
REFUSED: dict[str, Any] = {"on_failure": OnFailure(policy="Skip", max_attempts=10), "redelivery_delay_s": 5.0}
WAITED: dict[str, Any] = {
    "on_failure": OnFailure(policy="Skip", max_attempts=1),
    "retry": RetryLogstore(logstore="waiting", delays_s=(5.0,)),
}


class Gathered:
    """What processors get, and what they have in their memory and write at the end. `process` may refuse,
    raise and save."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.written: list[str] = []
        self.process: Callable[[LogBatch, Tracker], None] = refuse_new

    @property
    def factory(self) -> ProcessorFactory:
        everything = self

        class Gathering(Processor):
            def __init__(self) -> None:
                self.kept: list[str] = []

            def process(self, logs: LogBatch, tracker: Tracker) -> None:
                ids = [str(log.get("id")) for group in logs.groups for log in group.logs]
                everything.came += ids
                everything.process(logs, tracker)
                self.kept += ids

            def shutdown(self, tracker: Tracker) -> None:
                everything.written += self.kept
                tracker.save()

        return Gathering


def refuse_new(logs: LogBatch, tracker: Tracker) -> None:
    """What comes again is kept, and not saved."""
    is_new = logs.delivery == 1 and not any(key == "retry_cursor" for key, _ in logs.groups[0].tags)
    if is_new:
        tracker.nack()
        tracker.save()


def test_what_is_saved_while_a_shard_moves_passes_no_batch_that_was_not_processed() -> None:
    """`shutdown` in the process that it leaves comes before the first batch in the other one."""
    gathered = Gathered()
    gathered.process = lambda *_: None
    with world() as one:
        one.make_logstore("access")
        pool = DirectPool(gathered.factory)
        settings = one.settings("access")
        program = one.start(lambda: in_worker(settings, gathered.factory, None, one.clock, pool=pool))
        first = one.put("access", ["a"])
        one.until(lambda: gathered.came == ["a"], "the first")

        def fail(*_: object) -> None:
            raise ValueError("it cannot be written")

        gathered.process, pool.moves = fail, 1
        one.put("access", ["b"])
        one.until(lambda: gathered.came.count("b") == 3, "the second, again and again")
        assert (gathered.written, one.saved("access")) == (["a"], {0: first + 1})

        gathered.process = lambda _, tracker: tracker.nack(delay_s=60.0)
        one.until(lambda: program.call(lambda found: found.lag(0)).log_groups == 0, "a refusal")
        assert one.saved("access") == {0: first + 1}
        assert not program.call(lambda found: found.errors())
        program.kill()


@pytest.mark.parametrize("how", [REFUSED, WAITED], ids=["refused", "waited"])
@pytest.mark.parametrize("ends", ["program", "process"])
def test_what_came_again_and_was_not_saved_comes_once_more(how: dict[str, Any], ends: str) -> None:
    """Whatever else comes again after it. Nothing does once it is saved."""
    gathered = Gathered()
    with world() as one:
        one.make_logstore("access")
        one.make_logstore("waiting", has_group=False)
        pool = DirectPool(gathered.factory)

        def start(name: str) -> Any:
            settings = one.settings("access", consumer=name, **how)
            if ends == "program":
                return one.start(lambda: Consumer(settings, gathered.factory))
            return one.start(lambda: in_worker(settings, gathered.factory, None, one.clock, pool=pool))

        program = start("c-0")
        for name in "ab":
            one.put("access", [name])
            one.pass_time(2.0)
        one.until(lambda: sorted(gathered.came) == [*"aabb"], "both once more")
        one.pass_time(2.0)
        gathered.came.clear()
        if ends == "program":
            program.kill()
            program = start("c-1")
        else:
            program.call(lambda _: [process.replaced() for process in pool.processes])
            one.put("access", ["c"])
            one.put("waiting", ["d"])
        one.until(lambda: {*"ab"} <= {*gathered.came}, "both again")

        gathered.process = lambda _, tracker: tracker.save()
        for name in ("access", "waiting"):
            one.put(name, ["end"])
        places = [("access", GROUP)]
        if how is WAITED:
            places.append(("waiting", retry_group(GROUP, "access")))
        one.until(lambda: all(one.is_saved(*place) for place in places), "the end")
        program.kill()
