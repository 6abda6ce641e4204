"""What retention removes is never what new log groups are written to."""

import random

import pytest

from loghub_service.storage.log_inspection import inspect_log
from loghub_service.storage.segment import NewGroup, create_segment
from loghub_service.storage.segment_format import SEGMENT_HEADER_BYTES, SegmentHeader
from loghub_service.storage.shardlog import NoRoom, ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

FOLDER = "/data/logs/1/0"
FIRST = 1000
BIRTH = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50)
SEGMENT_BYTES = 512
OLD_US, BEFORE_US, NOW_US = 100, 1000, 2000


def opened(disk: SimDisk, *, segment_bytes: int = SEGMENT_BYTES) -> ShardLog:
    return open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=segment_bytes)[0]


def write(log: ShardLog, group: bytes, *, received_us: int = OLD_US) -> None:
    log.append([NewGroup(group=group, logs=1, received_us=received_us)])
    log.sync()


def look(disk: SimDisk, log: ShardLog, *, maximum: int) -> int:
    """One look of retention; returns how many files it removed."""
    files = log.expire(BEFORE_US, now_us=NOW_US, maximum=maximum)
    for path in files:
        disk.remove(path)
    disk.sync_dir(FOLDER)
    return len(files)


def survivors(disk: SimDisk) -> list[bytes]:
    """The log groups that a start after a power cut finds."""
    disk.lose_power(random.Random(1))
    read = opened(disk).read(cursor=0, end_cursor=1 << 62, max_groups=10_000, max_bytes=1 << 40)
    return [entry.group for entry in read.entries]


@pytest.mark.parametrize("maximum", [1, 2, 5])
def test_log_groups_are_kept_that_are_written_after_several_looks_dropped_everything(maximum: int) -> None:
    """An idle shard with more segments than one look drops, all of which have expired."""
    disk = SimDisk()
    log = opened(disk)
    for number in range(30):
        write(log, b"%04d" % number * 30)
    while look(disk, log, maximum=maximum):
        pass
    write(log, b"new", received_us=NOW_US)
    assert survivors(disk) == [b"new"]


def test_log_groups_are_kept_that_are_written_after_a_time_in_the_future() -> None:
    """A segment with such a time stays until a later one expires; looks until then change nothing."""
    disk = SimDisk()
    log = opened(disk)
    for received_us in (OLD_US, 1 << 50, OLD_US):
        write(log, b"old" * 20, received_us=received_us)
    assert [look(disk, log, maximum=100) for _ in range(3)] == [0, 0, 0]
    write(log, b"new", received_us=NOW_US)
    assert survivors(disk)[-1] == b"new"


def test_a_full_volume_frees_what_has_expired_in_the_newest_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small logstore may have nothing else, and the room for another segment is what is missing."""
    disk = SimDisk()
    log = opened(disk)
    write(log, b"old")
    monkeypatch.setattr(disk, "free_bytes", lambda _: 0)
    assert look(disk, log, maximum=100) == 1
    assert sum(len(content.live) for content in disk.live.values()) == SEGMENT_HEADER_BYTES
    with pytest.raises(NoRoom):
        write(log, b"refused", received_us=NOW_US)
    monkeypatch.undo()
    write(log, b"new", received_us=NOW_US)
    assert survivors(disk) == [b"new"]


def test_a_group_that_is_too_large_for_the_segment_of_the_last_look_is_kept() -> None:
    disk = SimDisk()
    log = opened(disk)
    write(log, b"old")
    assert look(disk, log, maximum=100) == 1
    large = b"y" * (3 * SEGMENT_BYTES)
    write(log, large, received_us=NOW_US)
    assert look(disk, log, maximum=100) == 0
    assert survivors(disk) == [large]


def test_a_replaced_segment_still_says_how_many_cursors_it_skips() -> None:
    disk = SimDisk()
    log = opened(disk)
    write(log, b"old")
    log.close()
    goes_on = SegmentHeader(first_cursor=FIRST + 500, logs_before=1, received_us=OLD_US, skipped=499)
    create_segment(disk, folder=FOLDER, header=goes_on, size=SEGMENT_BYTES).close()
    log = opened(disk)
    write(log, b"y" * (3 * SEGMENT_BYTES))
    assert (log.extent.end_cursor, log.extent.logs_total) == (FIRST + 501, 2)
    assert inspect_log(disk, FOLDER).problems == []
    assert log.place(FIRST, now_us=NOW_US).groups_left == 2
