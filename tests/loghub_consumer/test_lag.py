"""What a consumer says of the ends of its shards, and of those that are paused."""

import threading

import pytest
from msgspec.structs import replace

from loghub.wire.cursor import decode
from loghub_consumer import Consumer, LogBatch, NotAssignedError, ShardLag, Tracker
from loghub_consumer.consumer import lag_of
from loghub_consumer.held_shard import HeldShardState
from tests.loghub_consumer.support import Seen, Site, released, running, wait_for


def test_a_lag_is_complete_only_where_the_end_was_seen() -> None:
    state = HeldShardState(shard=0, epoch=1, position=5, read_to=9)
    assert lag_of(state, 9) == ShardLag(log_groups=4, is_complete=True)
    assert lag_of(state, None) == ShardLag(log_groups=4, is_complete=False)
    beyond = replace(state, position=12, read_to=12)
    assert lag_of(beyond, 9) == ShardLag(log_groups=0, is_complete=False)


@pytest.mark.long
def test_lag_and_end_are_what_the_pulls_have_seen(site: Site) -> None:
    site.prepare()
    site.put(4)
    may_end = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        may_end.wait(60)
        tracker.save()

    consumer = Consumer(site.settings(max_bytes=1), Seen(process).factory)
    with running(consumer), released(may_end):
        wait_for(lambda: consumer.assignment() == (0,), "the shard")
        wait_for(lambda: consumer.end(0) == site.ends()[0], "a pull that reaches the end")
        assert consumer.lag(0) == ShardLag(log_groups=4, is_complete=True)
        site.put(2)
        wait_for(lambda: consumer.lag(0) == ShardLag(log_groups=6, is_complete=True), "a later pull")
        may_end.set()
        wait_for(lambda: consumer.lag(0) == ShardLag(log_groups=0, is_complete=True), "the end")
        assert consumer.cursor_at(0, "begin") == site.begin()
        assert consumer.cursor_at(0, "end") == site.ends()[0]
        for ask in (consumer.lag, consumer.end):
            with pytest.raises(NotAssignedError):
                ask(7)


def test_with_a_backlog_the_end_is_unknown_and_the_lag_a_lower_bound(site: Site) -> None:
    site.prepare()
    site.put(6)
    began, may_end = threading.Event(), threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        began.set()
        may_end.wait(60)
        tracker.save()

    consumer = Consumer(site.settings(max_buffered_bytes=1), Seen(process).factory)
    with running(consumer), released(may_end):
        assert began.wait(60)
        lag = consumer.lag(0)
        assert (consumer.end(0), lag.is_complete) == (None, False)
        assert 1 <= lag.log_groups < 6
        may_end.set()
        wait_for(lambda: consumer.lag(0) == ShardLag(log_groups=0, is_complete=True), "the end")
        assert decode(consumer.position(0)) == decode(site.ends()[0])
