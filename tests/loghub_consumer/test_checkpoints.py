"""What is saved, by whom and when."""

import threading

import pytest

from loghub.wire.cursor import decode
from loghub_consumer import Consumer, LogBatch, NotAssignedError, Tracker
from tests.loghub_consumer.support import Seen, Site, released, running, wait_for


@pytest.mark.long
def test_what_is_noted_is_sent_within_the_interval_and_at_the_end(site: Site) -> None:
    site.prepare()
    site.put()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.save(persist=False)
        assert tracker.get() == logs.next_cursor

    with running(Consumer(site.settings(checkpoint_interval_s=0.5), Seen(process).factory)):
        wait_for(lambda: site.saved() == site.ends(), "the interval")
    seen, ids = Seen(process), site.put()
    with running(Consumer(site.settings(checkpoint_interval_s=3600), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the first one, which does not wait")
        begun = site.saved()
        ids += site.put()
        wait_for(lambda: seen.ids() == ids, "the logs")
        assert site.saved() == begun, "the interval is not over"
    assert site.saved() == site.ends()


def test_a_processor_may_save_any_cursor_of_its_shard(site: Site) -> None:
    site.prepare()
    site.put(4)
    saved: list[str] = []

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()
        for group in reversed(logs.groups):  # the checkpoint may also move back
            tracker.save(cursor=group.cursor)
            saved.append(tracker.get())

    seen = Seen(process)
    with running(Consumer(site.settings(), seen.factory)):
        wait_for(lambda: len(seen.ids()) == site.sent.total(), "the logs")
    assert site.saved() == {0: saved[-1]}
    assert decode(saved[-1]) < decode(site.ends()[0])


@pytest.mark.long
def test_position_commit_and_commit_async(site: Site) -> None:
    site.prepare()
    begin = site.begin()
    seen = Seen(lambda logs, tracker: None)
    consumer = Consumer(site.settings(), seen.factory)
    with running(consumer):
        wait_for(lambda: consumer.assignment() == (0,), "the shard")
        assert consumer.position(0) == begin
        for commit in (consumer.commit, lambda: consumer.commit_async().result(60)):
            site.put()
            wait_for(lambda: consumer.position(0) == site.ends()[0], "the logs")
            assert site.saved() != site.ends()
            commit()
            assert site.saved() == site.ends()
    with pytest.raises(NotAssignedError):
        consumer.position(0)


def test_a_commit_does_not_undo_what_the_running_batch_has_saved(site: Site) -> None:
    site.prepare()
    site.put(2)
    has_saved, may_go = threading.Event(), threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()
        has_saved.set()
        may_go.wait(60)

    consumer = Consumer(site.settings(max_bytes=1), Seen(process).factory)
    with running(consumer), released(may_go):
        assert has_saved.wait(60)
        saved = site.saved()
        consumer.commit()
        assert site.saved() == saved != {0: consumer.position(0)}
        may_go.set()
