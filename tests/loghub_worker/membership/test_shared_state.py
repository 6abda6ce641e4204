"""The lock around the membership: who is woken, and what the source finds."""

import threading
from pathlib import Path

from loghub.clock import SystemClock
from loghub_worker.exchange_files import Count, Handover
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Beat, Membership, MembershipTimings, ShutdownMode


def session(folder: Path) -> SharedState:
    consumer = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    return SharedState(consumer, Handover(folder), SystemClock())


def test_a_mere_look_wakes_nobody(tmp_path: Path) -> None:
    shared = session(tmp_path)
    since = shared.changes
    for _ in range(3):
        with shared.use() as (consumer, now):
            assert consumer.lease_s(now) < 0
    assert shared.changes == since


def test_a_change_wakes_who_waits(tmp_path: Path) -> None:
    shared = session(tmp_path)
    woken = threading.Event()

    def wait() -> None:
        shared.wait(0, 60)
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not woken.is_set()
    with shared.use() as (consumer, _):
        consumer.set_goal(ShutdownMode.STOP)
    assert woken.wait(60)


def test_positions_are_on_disk_when_the_step_is_over(tmp_path: Path) -> None:
    shared = session(tmp_path)
    with shared.use() as (consumer, now):
        beat = consumer.poll(now)
        assert isinstance(beat, Beat)
        consumer.answered(beat.number, (4,), now=now)
        consumer.opened(4, epoch=consumer.shards[0].epoch, position=17, saved=17)
        version = consumer.version
    positions = Handover(tmp_path).positions()
    assert (positions.version, positions.shards) == (version, {4: 17})


def test_counts_are_taken_once(tmp_path: Path) -> None:
    handover = Handover(tmp_path)
    handover.write_count(Count(logs=3, bytes=10, replaced=1), plan=2, shard=4)
    assert handover.take_count(plan=2, shard=4).logs == 3
    assert handover.take_count(plan=2, shard=4).logs == 0
