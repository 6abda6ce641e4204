"""Shards that the settings name, without a consumer group."""

import threading
from pathlib import Path
from typing import Any

import pytest

from loghub.wire.errors import LogHubError
from loghub_consumer import Consumer, ConsumerSettings, LogBatch, Tracker
from tests.loghub_consumer.databases import ids_in, prepare, store_of, write_ids
from tests.loghub_consumer.support import (
    PROJECT,
    RecordingListener,
    Running,
    Seen,
    Site,
    released,
    running,
    wait_for,
)


def settings_of(site: Site, **changes: Any) -> ConsumerSettings:
    plain = {"endpoint": site.service.endpoint, "project": PROJECT, "logstore": site.logstore}
    return ConsumerSettings(credentials=site.service.credentials, **(plain | {"shards": (0,)} | changes))


def nothing(_: LogBatch, __: Tracker) -> None:
    """Saves nothing."""


def test_shards_that_the_settings_name_are_read_without_a_group_and_by_several_at_once(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=3)
    ids = [site.put(3, shard=shard) for shard in range(3)]
    first, second, listener = Seen(nothing), Seen(nothing), RecordingListener()
    one = Consumer(settings_of(site, shards=(2, 0)), first.factory, listener)
    other = Consumer(settings_of(site, shards=(0,), start_position="end"), second.factory)
    with running(one), running(other):
        wait_for(lambda: sorted(first.ids()) == sorted(ids[0] + ids[2]), "the shards")
        wait_for(lambda: "initialize 0" in second.calls, "the other consumer")
        more = site.put(2)
        wait_for(lambda: second.ids() == more, "what was written after its start")
        wait_for(lambda: first.ids(0) == ids[0] + more, "the same for both")
        assert (one.assignment(), other.assignment(), one.errors()) == ((0, 2), (0,), ())
        assert site.client.list_groups(site.logstore) == ()
    assert first.ids(2) == ids[2]
    assert listener.calls == [("assigned", (0, 2)), ("revoked", (0, 2))]
    assert sorted(first.calls) == ["initialize 0", "initialize 2", "shutdown 0", "shutdown 2"]


def test_without_a_group_nothing_can_be_saved_and_the_listener_seeks(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    ids = site.put(3)
    kept: list[str] = []

    def process(logs: LogBatch, tracker: Tracker) -> None:
        with pytest.raises(ValueError, match="have no consumer group in which to save"):
            tracker.save(persist=False)
        kept.append(logs.next_cursor)

    seen = Seen(process)
    with running(Consumer(settings_of(site), seen.factory)) as run:
        wait_for(lambda: seen.ids() == ids and bool(kept), "the shard")
        with pytest.raises(ValueError, match="checkpoint_store"):
            run.consumer.commit()
    ids += site.put(2)
    listener = RecordingListener(lambda shards: again.seek(shards[0], kept[-1]))
    again = Consumer(settings_of(site), seen.factory, listener)
    with running(again):
        wait_for(lambda: seen.ids() == ids, "what follows")


@pytest.mark.long
def test_without_a_group_positions_in_a_database_continue_and_the_last_program_owns_the_shard(
    site: Site, tmp_path: Path
) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    address = str(tmp_path / "positions")
    prepare(address)
    settings = settings_of(site, consumer_group="readers", checkpoint_store=store_of(address))
    ids = site.put(2)
    with running(Consumer(settings, Seen(write_ids).factory)):
        wait_for(lambda: ids_in(address) == ids, "the first logs")
    ids += site.put(2)
    listener, seen = RecordingListener(), Seen(write_ids)
    with running(Consumer(settings, seen.factory, listener)) as first:
        wait_for(lambda: ids_in(address) == ids, "the second logs")
        assert seen.ids() == ids[4:], "nothing is read again"
        later = Seen(write_ids)
        with running(Consumer(settings, later.factory)):
            wait_for(lambda: "initialize 0" in later.calls, "the second owner")
            ids += site.put(2)
            wait_for(lambda: sorted(set(ids_in(address))) == sorted(ids), "the third logs")
            ids += site.put(1)
            wait_for(lambda: ids_in(address) == ids, "each log once")
            wait_for(lambda: listener.shards("lost") == {0}, "the first owner to notice")
            assert first.consumer.assignment() == ()
            assert seen.calls[-1] == "shutdown 0"


def test_a_shard_that_the_logstore_lacks_is_an_error_that_names_those_that_it_has(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=2)
    run = Running(Consumer(settings_of(site, shards=(1, 7)), Seen().factory))
    run.join()
    assert isinstance(run.error, LogHubError)
    assert "has no shards [7]; it has [0, 1]" in str(run.error)


@pytest.mark.long
def test_without_a_group_a_shutdown_lets_the_batch_end_and_is_bounded(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    site.put(1)
    began, may_end = threading.Event(), threading.Event()

    def process(_: LogBatch, __: Tracker) -> None:
        began.set()
        may_end.wait(60)

    for drain_timeout_s, calls in ((60.0, ["initialize 0", "shutdown 0"]), (0.2, ["initialize 0"])):
        began.clear()
        may_end.clear()
        seen, listener = Seen(process), RecordingListener()
        consumer = Consumer(settings_of(site, drain_timeout_s=drain_timeout_s), seen.factory, listener)
        with released(may_end), running(consumer) as run:
            assert began.wait(60)
            consumer.wakeup()
            if drain_timeout_s > 1:
                assert not consumer.shutdown(timeout_s=0.5)
                may_end.set()
            run.join()
            assert seen.calls == calls
            assert listener.calls[-1][0] == ("revoked" if drain_timeout_s > 1 else "lost")
