"""The lock around the membership: which changes wake a waiting thread, and what the positions file
contains."""

import threading
from pathlib import Path

from loghub.clock import SystemClock
from loghub.contract.worker import WorkerReason
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.membership.membership import Membership, MembershipTimings, SendHeartbeat, ShutdownMode
from loghub_consumer.membership.shared_membership import SharedState


def shared_state(folder: Path) -> SharedState:
    membership = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    return SharedState(membership, ExchangeFiles(folder), SystemClock())


def test_reading_alone_wakes_no_thread(tmp_path: Path) -> None:
    shared = shared_state(tmp_path)
    since = shared.changes
    for _ in range(3):
        with shared.use() as (membership, now):
            assert membership.session_left_s(now) < 0
    assert shared.changes == since


def test_a_change_wakes_a_waiting_thread(tmp_path: Path) -> None:
    shared = shared_state(tmp_path)
    woken = threading.Event()

    def wait() -> None:
        shared.wait(0, 60)
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not woken.is_set()
    with shared.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.STOP)
    assert woken.wait(60)


def test_the_positions_file_is_written_when_the_step_ends(tmp_path: Path) -> None:
    shared = shared_state(tmp_path)
    with shared.use() as (membership, now):
        request = membership.poll(now)
        assert isinstance(request, SendHeartbeat)
        membership.answered(request.number, (4,), now=now)
        membership.opened(4, epoch=membership.shards[0].epoch, position=17, saved=17)
        version = membership.version
    positions = ExchangeFiles(tmp_path).positions()
    assert (positions.version, positions.shards) == (version, {4: 17})


def test_a_state_directory_that_cannot_be_written_ends_no_thread_and_is_reported(
    tmp_path: Path,
) -> None:
    """What the source plans by the older positions is not committed; the next step writes the new ones."""
    folder = tmp_path / "not-mounted"
    shared = shared_state(folder)
    for _ in range(2):
        with shared.use() as (membership, _):
            membership.source_started()
        assert shared.error.reason == WorkerReason.STATE_UNAVAILABLE
        assert str(folder) in shared.error.message
    folder.mkdir()
    with shared.use() as (membership, _):
        version = membership.version
    assert ExchangeFiles(folder).positions().version == version
    assert shared.error.reason == ""
