"""Consumers that end at a time, which is that of receipt in whole seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from loghub.client.port import CheckpointInfo
from loghub.clock import SystemClock
from loghub_consumer import Consumer, LogBatch, MultiLogstoreConsumer, Tracker, end_time
from loghub_consumer import consumer as consumer_module
from tests.loghub_consumer.support import RecordingListener, Running, Seen, Site, released, running, wait_for
from tests.loghub_consumer.test_static_assignment import nothing, settings_of

pytestmark = pytest.mark.long


def next_second() -> int:
    """A time that has come, and before which everything was received that was written until now."""
    end = int(time.time()) + 1
    wait_for(lambda: time.time() >= end, "the next second")
    return end


class TooLateError(Exception):
    """The machine was slower than the test allows for."""


def require_before(end: int) -> None:
    if time.time() >= end:
        raise TooLateError


def wait_before(end: int, condition: Callable[[], bool], what: str) -> None:
    wait_for(lambda: condition() or time.time() >= end, what)
    require_before(end)


def until_in_time(site: Site, story: Callable[[Site, int], None]) -> None:
    """Run a story with an end time that lies ahead, and further ahead where it was too near."""
    for ahead_s in (2, 8, 32, 128):
        with suppress(TooLateError):
            story(Site(site.service, site.client), int(time.time()) + ahead_s)
            return
    raise TooLateError


@contextmanager
def joined(run: Running) -> Iterator[Running]:
    """It ends by itself, as its end time comes."""
    try:
        yield run
    finally:
        run.join()


class RefusesOnce:
    """Refuses each first log group once, and saves."""

    def __call__(self, logs: LogBatch, tracker: Tracker) -> None:
        if logs.delivery == 1:
            tracker.nack(logs.groups[0])
        tracker.save()


def test_consumers_of_a_group_end_when_everything_before_the_end_time_is_processed(site: Site) -> None:
    site.prepare(shards=3)
    ids = [name for shard in range(3) for name in site.put(4, shard=shard)]
    end = next_second()
    later = [name for shard in range(3) for name in site.put(2, shard=shard)]
    seen = Seen(RefusesOnce())
    changes: dict[str, Any] = {"end_time_s": end, "redelivery_delay_s": 0.1}
    runs = [Running(Consumer(site.settings(f"c-{n}", **changes), seen.factory)) for n in range(2)]
    for run in runs:
        run.join()
        assert run.error is None
    assert set(seen.ids()) == set(ids)
    assert not set(seen.ids()) & set(later)
    assert site.saved() == {shard: site.client.get_cursor(site.logstore, shard, end) for shard in range(3)}


def test_a_consumer_runs_until_an_end_time_that_lies_ahead(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    end = int(time.time()) + 2
    seen = Seen(nothing)
    run = Running(Consumer(settings_of(site, end_time_s=end), seen.factory))
    ids = site.put(2)
    wait_for(lambda: seen.ids() == ids, "what was received before")
    wait_for(lambda: time.time() >= end, "the end time")
    site.put(2)
    run.join()
    assert (run.error, seen.ids()) == (None, ids)


def test_a_consumer_does_not_end_before_the_shards_of_another_are_saved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare(shards=2)
    ids = site.put(1) + site.put(1, shard=1)
    end = next_second()
    slow, fast = Seen(lambda _, __: None), Seen()
    with running(Consumer(site.settings("c-0"), slow.factory)) as first:
        wait_for(lambda: len(first.consumer.assignment()) == 2, "both shards")
        second = Consumer(site.settings("c-1", end_time_s=end), fast.factory)
        asked: list[int] = []
        get_checkpoints = second._client.get_checkpoints

        def counted(logstore: str, group: str, shard: int | None = None) -> tuple[CheckpointInfo, ...]:
            if shard is None and len(fast.ids()) == 2:
                asked.append(1)
            return get_checkpoints(logstore, group, shard)

        monkeypatch.setattr(second._client, "get_checkpoints", counted)
        run = Running(second)
        wait_for(lambda: len(asked) > 1, "two looks at the checkpoints, with the logs of one shard processed")
        first.consumer.wakeup()
        run.join()
    assert sorted(fast.ids()) == sorted(ids), "the other's logs, which it had not saved"
    assert site.saved() == site.ends()


def test_several_logstores_have_no_end_time(site: Site) -> None:
    settings = site.settings(logstore="", end_time_s=1)
    with pytest.raises(ValueError, match="end_time_s is set; run a Consumer for each"):
        MultiLogstoreConsumer(settings, lambda _: Seen().factory, ["access"])


def test_the_children_of_a_split_before_the_end_are_read_although_the_group_begins_at_the_end(
    site: Site,
) -> None:
    def story(site: Site, end: int) -> None:
        site.prepare(order=True)
        seen = Seen(lambda _, tracker: tracker.save(persist=False))
        settings = site.settings(end_time_s=end, start_position="end", checkpoint_interval_s=3.0)
        with joined(Running(Consumer(settings, seen.factory))) as run:
            wait_for(lambda: "initialize 0" in seen.calls, "the shard")
            ids = site.put(1)
            site.client.split_shard(site.logstore, 0)
            ids += site.put(1, shard=1) + site.put(1, shard=2)
            require_before(end)
        assert (run.error, sorted(seen.ids())) == (None, sorted(ids))

    until_in_time(site, story)


class ShiftedClock(SystemClock):
    """The wall clock of a machine that is wrong."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def unix_s(self) -> float:
        return super().unix_s() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedClock:
    clock = ShiftedClock()
    monkeypatch.setattr(consumer_module, "SystemClock", lambda: clock)
    return clock


def test_what_is_written_just_after_the_end_time_has_passed_here_is_read(
    site: Site, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_time, "INTERVAL_S", 0.001)  # before it is written

    def story(site: Site, end: int) -> None:
        site.prepare()
        clock.ahead_s = end - time.time()
        seen = Seen()
        with joined(Running(Consumer(site.settings(end_time_s=end), seen.factory))):
            wait_for(lambda: "initialize 0" in seen.calls, "the shard")
            ids = site.put(1)
            require_before(end)
            assert end <= clock.unix_s()
        assert seen.ids() == ids

    until_in_time(site, story)


def test_a_clock_that_was_ahead_for_a_while_does_not_move_the_end(site: Site, clock: ShiftedClock) -> None:
    def story(site: Site, end: int) -> None:
        site.prepare()
        ids, may_end = site.put(1), threading.Event()

        def process(_: LogBatch, tracker: Tracker) -> None:
            may_end.wait()
            tracker.save()

        seen = Seen(process)
        consumer = Consumer(site.settings(end_time_s=end), seen.factory)
        with joined(Running(consumer)), released(may_end):
            wait_before(end, lambda: seen.ids() == ids, "the first batch")
            clock.ahead_s = 3600
            wait_before(end, lambda: consumer._table.entry(0).state.end is not None, "an end")
            clock.ahead_s = 0
            wait_before(end, lambda: consumer._table.entry(0).state.end is None, "no end any more")
            ids += site.put(1)
            require_before(end)
        assert seen.ids() == ids

    until_in_time(site, story)


def test_a_listener_may_go_back_although_the_group_has_read_everything(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_time, "INTERVAL_S", 0.001)  # before the first heartbeat is answered
    site.prepare()
    ids, end, seen = site.put(1), next_second(), Seen()
    Running(Consumer(site.settings(end_time_s=end), seen.factory)).join()
    listener = RecordingListener(lambda shards: again.seek(shards[0], "begin"))
    again = Consumer(site.settings(end_time_s=end), seen.factory, listener)
    Running(again).join()
    assert seen.ids() == ids + ids
