"""Consumers that end at a time, which is that of receipt in whole seconds."""

import time
from typing import Any

import pytest

from loghub.client.port import CheckpointInfo
from loghub_worker.api import Consumer, LogBatch, MultiLogstoreConsumer, Tracker
from tests.loghub_worker.consumer.support import Running, Seen, Site, running, wait_for
from tests.loghub_worker.consumer.test_static_assignment import nothing, settings_of

pytestmark = pytest.mark.long


def next_second() -> int:
    """A time that has come, and before which everything was received that was written until now."""
    end = int(time.time()) + 1
    wait_for(lambda: time.time() >= end, "the next second")
    return end


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
