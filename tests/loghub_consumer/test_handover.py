"""Consumers that share a logstore: shards are handed over, also from a process that was killed."""

import signal
import threading
from collections import Counter

import pytest

from loghub_consumer import Consumer, LogBatch, Tracker
from loghub_consumer.membership.membership import ShardPhase
from tests.loghub_consumer.support import (
    GROUP,
    RecordingListener,
    Seen,
    Site,
    programs,
    released,
    running,
    wait_for,
)
from tests.support import START_GUARD_S

SHARDS = 4


def put_everywhere(site: Site, groups: int = 10) -> None:
    for shard in range(SHARDS):
        site.put(groups, shard=shard)


@pytest.mark.long
def test_consumers_share_the_shards_and_hand_them_over_with_each_log_seen_once(site: Site) -> None:
    site.prepare(shards=SHARDS)
    put_everywhere(site)

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.save(persist=False)  # so that what is not yet sent must be sent at the hand-over

    seen, others = Seen(process), Seen(process)
    first, second = RecordingListener(), RecordingListener()
    settings = {"checkpoint_interval_s": 3600.0, "max_bytes": 100}
    with running(Consumer(site.settings("c-0", **settings), seen.factory, first)):
        wait_for(lambda: first.shards("assigned") == set(range(SHARDS)), "the first consumer")
        put_everywhere(site)
        with running(consumer := Consumer(site.settings("c-1", **settings), others.factory, second)):
            wait_for(lambda: len(consumer.assignment()) == SHARDS / 2, "the hand-over")
            assert first.shards("revoked") == second.shards("assigned")
            put_everywhere(site)
            wait_for(lambda: len(seen.ids()) + len(others.ids()) == site.sent.total(), "all logs")
        assert second.shards("revoked") == second.shards("assigned")
        put_everywhere(site)
        wait_for(lambda: len(seen.ids()) + len(others.ids()) == site.sent.total(), "the rest")
    assert Counter(seen.ids() + others.ids()) == site.sent
    assert site.saved() == site.ends()
    assert first.shards("lost") | second.shards("lost") == set()


@pytest.mark.long
def test_a_commit_in_on_revoked_is_what_the_next_consumer_continues_from(site: Site) -> None:
    site.prepare(shards=2)
    for shard in (0, 1):
        site.put(3, shard=shard)

    class Committing(RecordingListener):
        def on_revoked(self, shards: tuple[int, ...]) -> None:
            super().on_revoked(shards)
            consumer.commit()

    seen, others = Seen(lambda logs, tracker: None), Seen(lambda logs, tracker: None)
    listener = Committing()
    consumer = Consumer(site.settings("c-0"), seen.factory, listener)
    with running(consumer):
        wait_for(lambda: len(seen.ids()) == site.sent.total(), "the logs")
        with running(Consumer(site.settings("c-1"), others.factory, Committing())):
            wait_for(lambda: len(listener.shards("revoked")) == 1, "the hand-over")
            (moved,) = listener.shards("revoked")
            ids = site.put(1, shard=moved)
            wait_for(lambda: bool(others.ids()), "the next consumer")
            assert others.ids() == ids


@pytest.mark.long
def test_a_shard_that_is_taken_before_its_processor_began_goes_to_the_other_consumer(site: Site) -> None:
    """The listener keeps the first consumer busy while it is given shards and they are taken again."""
    site.prepare()
    go_on = threading.Event()
    listener = RecordingListener(lambda _: assert_is_set(go_on))
    seen, others = Seen(), Seen()
    first = Consumer(site.settings("c-0"), seen.factory, listener)
    second = Consumer(site.settings("c-1"), others.factory)

    def held(phase: ShardPhase) -> set[int]:
        """Those that have not begun."""
        found = first.inspect(lambda membership, *_: membership.shards) or ()
        return {one.shard for one in found if one.phase is phase} - set(first.assignment())

    with released(go_on), running(first):
        wait_for(lambda: listener.shards("assigned") == {0}, "the first shard")
        site.client.split_shard(site.logstore, 0, parts=SHARDS)
        wait_for(lambda: len(held(ShardPhase.OPEN)) == SHARDS, "the new shards")
        with running(second):
            wait_for(lambda: bool(held(ShardPhase.DRAINING)), "a shard that is taken before it began")
            before = held(ShardPhase.DRAINING)
            go_on.set()
            wait_for(lambda: before <= set(second.assignment()), "the other consumer")
            for shard in range(1, SHARDS + 1):
                site.put(2, shard=shard)
            wait_for(lambda: len(seen.ids()) + len(others.ids()) == site.sent.total(), "all logs")
    assert Counter(seen.ids() + others.ids()) == site.sent


def assert_is_set(event: threading.Event) -> None:
    assert event.wait(START_GUARD_S)


@pytest.mark.long
def test_after_a_kill_at_most_what_was_not_saved_is_repeated_and_nothing_is_lost(site: Site) -> None:
    site.prepare(shards=SHARDS, timeout_s=3)
    put_everywhere(site, 30)
    with programs() as start:
        killed = start(site, "c-0", save_every=3, max_bytes=200)
        wait_for(lambda: len(killed.of("saved")) > 10, "some batches to be saved")
        killed.end(signal.SIGKILL)
        saved = {shard: site.begin(shard) for shard in range(SHARDS)} | {
            shard: cursor for shard, cursor in site.saved().items() if cursor
        }
        put_everywhere(site, 5)
        second = start(site, "c-1", max_bytes=200)
        wait_for(lambda: site.saved() == site.ends(), "the successor")
        assert second.end(signal.SIGTERM) == 0
    seen = killed.ids() + second.ids()
    assert set(seen) == set(site.sent), "nothing is lost"
    assert max(seen.values()) <= 2
    assert set(second.ids().values()) == {1}
    repeated = {name for name, times in seen.items() if times == 2}
    in_last_batches = {
        name
        for shard in range(SHARDS)
        for one in [e for e in killed.of("process") if e["shard"] == shard][-3:]
        for name in one["ids"]
    }
    assert repeated <= in_last_batches, "only what was not saved"
    assert saved != {shard: site.begin(shard) for shard in range(SHARDS)}
    (ended,) = second.of("ended")
    assert ended["modules"] == [], "neither pyspark nor py4j"
    assert site.client.group_status(site.logstore, GROUP).consumers == ()


@pytest.mark.long
def test_a_program_that_is_interrupted_saves_what_it_noted_and_leaves(site: Site) -> None:
    site.prepare()
    site.put(5)
    with programs() as start:
        program = start(site, "c-0", quiet=True, checkpoint_interval_s=3600.0)
        wait_for(lambda: bool(program.of("process")), "the first batch")
        status = program.end(signal.SIGINT)
    assert status != 0, "KeyboardInterrupt is raised again"
    assert [one["shard"] for one in program.of("shutdown")] == [0]
    assert site.saved()[0] != site.begin()
    assert site.client.group_status(site.logstore, GROUP).consumers == ()
