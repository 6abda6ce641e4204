"""The commit of log data: which items of a batch were written, and which certainly were not."""

import errno
import threading

import pytest

from loghub_service.append_series import AppendSeries
from loghub_service.errors import WriteFailed
from loghub_service.storage.group_commit import Append, commit_logs, run_tasks
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

SEGMENT_BYTES = 1024
GUARD_S = 120.0


def _opened(disk: SimDisk, shard: int = 0) -> ShardLog:
    birth = SegmentHeader(first_cursor=1000, logs_before=0, received_us=50)
    return open_log(disk, folder=f"/logs/1/{shard}", birth=birth, segment_bytes=SEGMENT_BYTES)[0]


def _append(log: ShardLog, group: bytes, series: AppendSeries | None = None) -> Append:
    return Append(log=log, new=NewGroup(group=group, logs=1, received_us=100), series=series)


def test_without_disk_space_only_unwritten_groups_are_refused() -> None:
    """A refused write may be retried, so a group that is in the log must not be refused."""
    disk = SimDisk()
    full, other = _opened(disk), _opened(disk, shard=1)
    commit_logs([_append(full, b"first"), _append(other, b"first")])
    disk.fail = {"allocate"}
    outcomes = commit_logs(
        [
            _append(full, b"fits"),
            _append(full, b"x" * SEGMENT_BYTES),
            _append(other, b"elsewhere"),
            _append(full, b"behind"),
        ]
    )
    assert [isinstance(outcome, OSError) for outcome in outcomes] == [False, True, False, True]
    assert full.extent.end_cursor == 1002
    assert other.extent.end_cursor == 1002


def test_nothing_of_a_series_is_written_behind_what_found_no_room() -> None:
    """Not in a later batch either, which the sender had sent before it could know, and where it would fit."""
    disk = SimDisk()
    log = _opened(disk)
    series, other = AppendSeries(), AppendSeries()
    assert commit_logs([_append(log, b"first", series)]) == [1000]
    disk.fail = {"allocate"}
    batch = [_append(log, b"fits", series), _append(log, b"x" * SEGMENT_BYTES, series)]
    assert [type(outcome) for outcome in commit_logs(batch)] == [int, OSError]
    disk.fail = set()
    batch = [_append(log, b"of another", other), _append(log, b"behind", series), _append(log, b"alone")]
    outcomes = commit_logs(batch)
    assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (1002, OSError, 1003)
    assert [type(outcome) for outcome in commit_logs([_append(log, b"late", series)])] == [OSError]
    assert commit_logs([_append(log, b"again", AppendSeries())]) == [1004]


@pytest.mark.parametrize("step", ["create", "allocate", "write", "sync", "rename", "sync_dir"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS])
def test_only_a_full_disk_passes_while_a_segment_is_made(step: str, error: int) -> None:
    """After any other error, and any failed sync, nobody knows what of the new segment would be there after a
    restart of the machine. A second attempt would seem to succeed."""
    disk = SimDisk()
    log = _opened(disk)
    disk.fail, disk.errno = {step}, error
    is_full = "sync" not in step and error not in (errno.EIO, errno.EROFS)
    if is_full:
        (outcome,) = commit_logs([_append(log, b"first")])
        assert isinstance(outcome, OSError)
        disk.fail = set()
        assert commit_logs([_append(log, b"second")]) == [1000]
    else:
        with pytest.raises(WriteFailed):
            commit_logs([_append(log, b"first")])


def test_a_task_whose_sync_fails_ends_the_thread_of_files() -> None:
    disk = SimDisk()
    disk.fail = {"sync_dir"}
    with pytest.raises(WriteFailed):
        run_tasks([lambda: None, lambda: disk.sync_dir("/logs/1")])


def test_a_task_runs_after_all_appends_of_its_batch() -> None:
    log = _opened(SimDisk())
    outcomes = commit_logs([lambda: log.extent.end_cursor, _append(log, b"a"), _append(log, b"b")])
    assert outcomes == [1002, 1000, 1001]  # the cursors of the appends


class _Gathering(SimDisk):
    """A disk whose syncs end once a number of them is in progress."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(count)
        self.is_gathering = False

    def step(self, what: str) -> None:
        if what == "sync" and self.is_gathering:
            self.barrier.wait(GUARD_S)
        super().step(what)


def test_shards_are_synced_at_the_same_time() -> None:
    """One after the other, the syncs of 32 shards would take 32 times as long as one."""
    disk = _Gathering(8)
    logs = [_opened(disk, shard) for shard in range(32)]
    commit_logs([_append(log, b"first") for log in logs])
    disk.is_gathering = True
    commit_logs([_append(log, b"second") for log in logs])
    assert [log.extent.end_cursor for log in logs] == [1002] * 32


def test_a_failed_sync_of_one_shard_fails_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    logs = [_opened(disk, shard) for shard in range(9)]
    commit_logs([_append(log, b"first") for log in logs])
    broken = logs[4]
    monkeypatch.setattr(broken, "sync", _failing)
    with pytest.raises(WriteFailed, match="of this shard"):
        commit_logs([_append(log, b"second") for log in logs])
    assert broken.extent.end_cursor == 1001  # what is not durable is not readable


def _failing() -> None:
    raise WriteFailed("the sync of this shard")
