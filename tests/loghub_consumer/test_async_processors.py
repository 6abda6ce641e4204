"""Processors whose methods are coroutines, on a real service."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from loghub_consumer import Consumer, LogBatch, MultiLogstoreConsumer, Processor, Tracker
from tests.loghub_consumer.support import Site, ids_of, running, wait_for


class AsyncProcessor(Processor):
    def __init__(self) -> None:
        self.loops: set[int] = set()
        self.ids: list[str] = []
        self.ended = False

    async def initialize(self, shard: int) -> None:
        self.loops.add(id(asyncio.get_running_loop()))

    async def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        await asyncio.sleep(0)
        self.loops.add(id(asyncio.get_running_loop()))
        self.ids += ids_of(logs)
        tracker.save()
        return None

    async def shutdown(self, tracker: Tracker) -> None:
        self.ended = True


def test_the_methods_of_a_processor_may_be_async(site: Site) -> None:
    site.prepare()
    ids = site.put(3)
    processor = AsyncProcessor()
    with running(Consumer(site.settings(), lambda: processor)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert processor.ids == ids
    assert processor.ended
    assert len(processor.loops) == 1, "one event loop for the whole shard"


class Ticking(AsyncProcessor):
    """Starts a task that goes on by itself, and cancels all tasks once."""

    def __init__(self) -> None:
        super().__init__()
        self.ticked = threading.Event()

    async def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        self.task = asyncio.create_task(self.tick())
        return await super().process(logs, tracker)

    async def tick(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0.01)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not self.ticked.is_set():
            for task in others:  # none of them is the user's
                task.cancel()
        self.ticked.set()


def consumer_of(
    site: Site, factory: Callable[[], Processor], *, is_alone: bool
) -> Consumer | MultiLogstoreConsumer:
    if is_alone:
        return Consumer(site.settings(), factory)
    return MultiLogstoreConsumer(replace(site.settings(), logstore=""), lambda _: factory, [site.logstore])


@pytest.mark.parametrize("is_alone", [True, False])
def test_tasks_of_an_async_processor_go_on_between_its_calls(site: Site, is_alone: bool) -> None:
    site.prepare()
    site.put()
    processor = Ticking()
    with running(consumer_of(site, lambda: processor, is_alone=is_alone)):
        wait_for(processor.ticked.is_set, "the task, without another batch")
        more = site.put()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert processor.ids[-len(more) :] == more
    assert len(processor.loops) == 1


class CancelledOnce(AsyncProcessor):
    async def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        task = asyncio.current_task()
        if task is not None and not self.ids:
            self.ids.append("cancelled")
            task.cancel()
        return await super().process(logs, tracker)


def test_a_task_that_is_cancelled_is_an_error_as_others_and_ends_no_consumer(site: Site) -> None:
    site.prepare()
    ids = site.put()
    processor = CancelledOnce()
    with running(Consumer(site.settings(), lambda: processor)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert processor.ids == ["cancelled", *ids]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_task_may_shut_down_the_consumer_between_two_calls(site: Site, is_alone: bool) -> None:
    """`shutdown` does not wait for the thread that it is called in."""
    returned = threading.Event()

    class Leaving(AsyncProcessor):
        async def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
            self.task = asyncio.create_task(self.leave())
            return await super().process(logs, tracker)

        async def leave(self) -> None:
            await asyncio.sleep(0.1)
            assert not consumer.shutdown()
            returned.set()

    site.prepare()
    site.put()
    consumer = consumer_of(site, Leaving, is_alone=is_alone)
    with running(consumer):
        wait_for(returned.is_set, "shutdown to return")
    assert site.saved() == site.ends()
