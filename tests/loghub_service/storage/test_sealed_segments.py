"""Sealed segments: their footers make starts short and memory bounded, and may be damaged without loss."""

from collections.abc import Callable

import pytest

from loghub_service.storage import segment_format
from loghub_service.storage.log_inspection import LoadedSegments, inspect_log
from loghub_service.storage.segment import NewGroup, create_segment
from loghub_service.storage.segment_format import END_BLOCK_BYTES, SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage import old_format
from tests.loghub_service.storage.opened_log import open_log

FOLDER = "/data/logs/1/0"
FIRST = 1000
BIRTH = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50)
SEGMENT_BYTES = 64 << 10
NOW = 1_000_000


def opened(disk: SimDisk, files: LoadedSegments | None = None) -> ShardLog:
    return open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=SEGMENT_BYTES, files=files)[0]


def written(disk: SimDisk, count: int) -> ShardLog:
    """``count`` groups of 1000 bytes and one log each, received at 100, 101, ..."""
    log = opened(disk)
    for number in range(count):
        log.append([NewGroup(group=b"%04d" % number * 250, logs=1, received_us=100 + number)])
    log.sync()
    return log


def groups_of(log: ShardLog) -> list[bytes]:
    read = log.read(cursor=0, end_cursor=1 << 62, max_groups=100_000, max_bytes=1 << 40)
    return [entry.group for entry in read.entries]


def segments(disk: SimDisk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.list_names(FOLDER)]


def test_a_start_reads_the_records_of_the_open_segment_only() -> None:
    disk = SimDisk()
    log = written(disk, 1000)
    sealed = len(segments(disk)) - 1
    assert sealed >= 15
    disk.bytes_read = 0
    again = opened(disk)
    per_sealed = segment_format.SEGMENT_HEADER_BYTES + END_BLOCK_BYTES
    assert disk.bytes_read <= SEGMENT_BYTES + segment_format.SEGMENT_HEADER_BYTES + sealed * per_sealed
    assert again.extent == log.extent
    assert groups_of(again) == groups_of(log)


def test_a_read_loads_the_segments_that_it_reads_and_few_of_them_stay_loaded() -> None:
    disk = SimDisk()
    written(disk, 1000)
    files = LoadedSegments(disk, maximum=4)
    log = opened(disk, files)
    assert len(files) == 0
    assert log.place(FIRST + 500, now_us=NOW).received_us == 600
    assert len(files) == 1
    assert len(groups_of(log)) == 1000
    assert len(files) == 4


def _cut_footer(content: bytearray) -> None:
    del content[-40:]


def _flip_index(content: bytearray) -> None:
    content[-END_BLOCK_BYTES - 20] ^= 1


def _flip_end_block(content: bytearray) -> None:
    content[-30] ^= 1


@pytest.mark.parametrize("damage", [_cut_footer, _flip_index, _flip_end_block])
def test_a_damaged_footer_loses_nothing(damage: Callable[[bytearray], None]) -> None:
    disk = SimDisk()
    log = written(disk, 300)
    damage(disk.live[segments(disk)[1]].live)
    again = opened(disk)
    assert again.extent == log.extent
    assert groups_of(again) == groups_of(log)
    assert again.place(FIRST + 70, now_us=NOW) == log.place(FIRST + 70, now_us=NOW)


def test_a_sealed_segment_that_was_cut_is_a_problem() -> None:
    disk = SimDisk()
    written(disk, 300)
    content = disk.live[segments(disk)[1]].live
    del content[-20_000:]
    (problem,) = inspect_log(disk, FOLDER).problems
    third = int(segments(disk)[2].rpartition("/")[2][:20])
    assert problem.end_cursor == third
    assert FIRST < problem.begin_cursor < third


def _old_log(disk: SimDisk, count: int) -> list[bytes]:
    groups = [b"%04d" % number * 250 for number in range(count)]
    old_format.write_log(disk, FOLDER, groups, first_cursor=FIRST, per_segment=60, size=SEGMENT_BYTES)
    return groups


def test_a_log_of_the_old_format_is_read_once_and_then_has_footers() -> None:
    disk = SimDisk()
    groups = _old_log(disk, 200)
    assert groups_of(opened(disk)) == groups
    disk.bytes_read = 0
    again = opened(disk)
    assert disk.bytes_read < 2 * SEGMENT_BYTES
    assert groups_of(again) == groups
    again.append([NewGroup(group=b"new", logs=1, received_us=999)])
    again.sync()
    assert groups_of(opened(disk)) == [*groups, b"new"]
    versions = [
        segment_format.unpack_segment_header(bytes(disk.live[path].live))[1].version
        for path in segments(disk)
    ]
    assert versions == [1, 1, 1, 1, segment_format.FORMAT]


def test_a_log_of_the_old_format_opens_without_space_for_footers() -> None:
    disk = SimDisk()
    groups = _old_log(disk, 200)
    disk.fail = {"write"}
    log = opened(disk)
    assert groups_of(log) == groups


def test_cursors_that_were_skipped_are_not_read_or_counted() -> None:
    """After an accepted loss, the log goes on above the cursors that may have been given out."""
    disk = SimDisk()
    last = written(disk, 10).extent
    header = SegmentHeader(
        first_cursor=FIRST + 500, logs_before=10, received_us=last.received_us, skipped=490
    )
    open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=SEGMENT_BYTES)
    create_segment(disk, folder=FOLDER, header=header, size=SEGMENT_BYTES)
    log = opened(disk)
    assert log.extent.end_cursor == FIRST + 500
    log.append([NewGroup(group=b"a", logs=1, received_us=900), NewGroup(group=b"b", logs=1, received_us=901)])
    log.sync()

    def read(cursor: int, end_cursor: int = 1 << 62) -> tuple[list[int], int]:
        found = log.read(cursor=cursor, end_cursor=end_cursor, max_groups=100, max_bytes=1 << 30)
        return [entry.cursor for entry in found.entries], found.next_cursor

    assert read(FIRST + 8) == ([FIRST + 8, FIRST + 9], FIRST + 10)
    for cursor in (FIRST + 10, FIRST + 300, FIRST + 500):
        assert read(cursor) == ([FIRST + 500, FIRST + 501], FIRST + 502)
    assert read(FIRST + 10, FIRST + 400) == ([], FIRST + 500)
    assert log.place(FIRST + 8, now_us=NOW).groups_left == 4
    assert log.place(FIRST + 8, now_us=NOW).logs_left == 4
    assert log.place(FIRST + 300, now_us=NOW).groups_left == 2
    assert log.cursor_at(900, now_us=NOW) == FIRST + 500
    assert log.cursor_at(105, now_us=NOW) == FIRST + 5
    assert opened(disk).extent == log.extent
