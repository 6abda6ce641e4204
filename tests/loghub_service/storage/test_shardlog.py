"""The log of one shard: append, read, lookup by time, retention and recovery."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_service.errors import WriteFailed
from loghub_service.storage.log_inspection import LoadedSegments, ProblemKind, inspect_log
from loghub_service.storage.segment import LogDamaged, NewGroup, Room
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import NoRoom, ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

FOLDER = "/data/logs/1/0"
FIRST = 1000
BIRTH = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50)
SEGMENT_BYTES = 1024
SMALL = Room(segment_bytes=16 << 10, first_bytes=1 << 10)
NOW = 1_000_000


def opened(disk: SimDisk) -> ShardLog:
    return open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=SEGMENT_BYTES)[0]


def new(group: bytes, *, received_us: int = 100, logs: int = 2) -> NewGroup:
    return NewGroup(group=group, logs=logs, received_us=received_us)


def groups_of(log: ShardLog) -> list[bytes]:
    read = log.read(cursor=0, end_cursor=1 << 62, max_groups=100_000, max_bytes=1 << 40)
    return [entry.group for entry in read.entries]


def written(disk: SimDisk, count: int, *, size: int = 100) -> ShardLog:
    """A log with ``count`` groups, received at 100, 101, ..."""
    log = opened(disk)
    for number in range(count):
        log.append([new(b"%04d" % number + b"x" * size, received_us=100 + number)])
        log.sync()
    return log


def segments(disk: SimDisk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.list_names(FOLDER)]


def expire(disk: SimDisk, log: ShardLog, received_us: int) -> int:
    """Drop the log groups that are older, with their files; return how many."""
    before = log.extent.oldest_cursor
    for path in log.expire(received_us, now_us=NOW, maximum=100):
        disk.remove(path)
    disk.sync_dir(FOLDER)
    return log.extent.oldest_cursor - before


def test_a_new_shard_log_is_empty() -> None:
    extent = opened(SimDisk()).extent
    assert (extent.oldest_cursor, extent.end_cursor, extent.logs_total) == (FIRST, FIRST, 0)


def test_appended_groups_are_readable_only_after_the_sync() -> None:
    log = opened(SimDisk())
    log.append([new(b"a"), new(b"b")])
    assert (log.extent.end_cursor, groups_of(log)) == (FIRST, [])
    log.sync()
    assert (log.extent.end_cursor, groups_of(log)) == (FIRST + 2, [b"a", b"b"])


def test_a_batch_is_synced_once() -> None:
    disk = SimDisk()
    log = written(disk, 1)
    before = disk.syncs
    log.append([new(b"a"), new(b"b"), new(b"c")])
    log.sync()
    assert disk.syncs == before + 1


def test_read_over_segments_within_bounds() -> None:
    disk = SimDisk()
    log = written(disk, 50)
    assert len(segments(disk)) > 3
    read = log.read(cursor=FIRST + 5, end_cursor=FIRST + 20, max_groups=1000, max_bytes=1 << 30)
    assert [entry.cursor for entry in read.entries] == list(range(FIRST + 5, FIRST + 20))
    assert read.next_cursor == FIRST + 20
    assert (
        log.read(cursor=FIRST, end_cursor=1 << 62, max_groups=3, max_bytes=1 << 30).next_cursor == FIRST + 3
    )
    # The last group may pass the bound on bytes, and the first always comes.
    assert log.read(cursor=FIRST, end_cursor=1 << 62, max_groups=99, max_bytes=150).next_cursor == FIRST + 2
    assert log.read(cursor=FIRST, end_cursor=1 << 62, max_groups=99, max_bytes=1).next_cursor == FIRST + 1


def test_a_group_larger_than_a_segment_gets_its_own() -> None:
    disk = SimDisk()
    log = opened(disk)
    big = b"y" * (3 * SEGMENT_BYTES)
    for group in (b"a", big, b"b"):
        log.append([new(group)])
    log.sync()
    assert groups_of(log) == [b"a", big, b"b"]
    assert groups_of(opened(disk)) == [b"a", big, b"b"]


def test_place_counts_log_groups_and_logs_exactly() -> None:
    disk = SimDisk()
    log = opened(disk)
    for number in range(60):
        log.append([new(b"z" * 40, received_us=100 + number, logs=number)])
    log.sync()
    for reopened in (log, opened(disk)):
        for number in (0, 1, 7, 33, 59):
            place = reopened.place(FIRST + number, now_us=NOW)
            assert place.groups_left == 60 - number
            assert place.logs_left == sum(range(number, 60))
            assert place.received_us == 100 + number
        end = reopened.place(FIRST + 60, now_us=NOW)
        assert (end.groups_left, end.logs_left, end.received_us) == (0, 0, None)


def test_a_shard_takes_as_much_of_the_volume_as_its_logs_need() -> None:
    """One log took 16 MiB: 640 shards with one each filled a volume of 10 GiB."""
    disk, files = SimDisk(), LoadedSegments(SimDisk())
    log = ShardLog(disk, folder=FOLDER, birth=BIRTH, room=SMALL, files=files)
    sizes, syncs = [], 0
    for number in range(400):
        before = disk.syncs
        log.append([new(b"%04d" % number + b"x" * 100)])
        log.sync()
        syncs += disk.syncs - before - 1
        sizes.append([len(disk.live[path].live) for path in segments(disk)])
    assert [sizes[0], sizes[10], sizes[40]] == [[1 << 10], [4 << 10], [16 << 10]]
    # Once one is full, the log has shown that it needs such segments.
    assert min(sizes[-1]) > 15 << 10
    assert len(sizes[-1]) == 4
    assert syncs == 4 + 3 + 2  # each is created, all but the last are sealed, and the first has grown twice


def test_a_segment_that_cannot_grow_is_a_full_disk() -> None:
    disk, files = SimDisk(), LoadedSegments(SimDisk())
    log = ShardLog(disk, folder=FOLDER, birth=BIRTH, room=SMALL, files=files)
    log.append([new(b"x" * 100)] * 3)
    log.sync()
    disk.fail = {"allocate"}
    with pytest.raises(NoRoom) as caught:
        log.append([new(b"y" * 100)] * 30)
    written = 3 + caught.value.written
    disk.fail = set()
    log.sync()
    log.append([new(b"z")])
    log.sync()
    assert len(groups_of(log)) == len(groups_of(opened(disk))) == written + 1


def test_cursor_of_a_time() -> None:
    log = written(SimDisk(), 50)
    assert log.cursor_at(0, now_us=NOW) == FIRST
    for number in (0, 1, 8, 9, 10, 31, 49):
        assert log.cursor_at(100 + number, now_us=NOW) == FIRST + number
    assert log.cursor_at(150, now_us=NOW) == FIRST + 50


def test_retention_drops_whole_segments_and_clamps() -> None:
    disk = SimDisk()
    log = written(disk, 50)
    dropped = expire(disk, log, 100 + 20)
    assert 0 < dropped <= 20
    assert log.extent.oldest_cursor == FIRST + dropped
    assert (
        log.read(cursor=FIRST, end_cursor=1 << 62, max_groups=1, max_bytes=1).entries[0].cursor
        == FIRST + dropped
    )
    assert log.place(FIRST, now_us=NOW).groups_left == 50 - dropped
    second = opened(disk)
    assert second.extent == log.extent


def test_retention_of_everything_keeps_the_cursor() -> None:
    disk = SimDisk()
    log = written(disk, 50)
    assert expire(disk, log, 10_000) == 50
    assert expire(disk, log, 20_000) == 0
    assert (log.extent.oldest_cursor, log.extent.end_cursor, log.extent.logs_total) == (
        FIRST + 50,
        FIRST + 50,
        100,
    )
    second = opened(disk)
    assert second.extent == log.extent
    second.append([new(b"next", received_us=30_000)])
    second.sync()
    assert groups_of(second) == [b"next"]
    assert second.extent.end_cursor == FIRST + 51


def test_retention_drops_a_bounded_number_of_segments_at_once() -> None:
    log = written(SimDisk(), 50)
    assert len(log.expire(10_000, now_us=NOW, maximum=2)) == 2
    assert len(log.expire(10_000, now_us=NOW, maximum=3)) == 3


@pytest.mark.parametrize("seed", range(8))
def test_files_below_the_oldest_cursor_may_be_there_in_any_part(seed: int) -> None:
    """Files are removed after the new oldest cursor is persisted, and a power cut brings any of them back."""
    dice, disk = random.Random(seed), SimDisk()
    log = written(disk, 50)
    known = groups_of(log)
    dropped = log.expire(100 + 30, now_us=NOW, maximum=100)
    oldest = log.extent.oldest_cursor
    for path in dice.sample(dropped, dice.randrange(len(dropped) + 1)):
        disk.remove(path)
    disk.lose_power(dice)
    found = inspect_log(disk, FOLDER, oldest_cursor=oldest)
    assert found.problems == []
    assert {*found.expired} == {*dropped} & {*segments(disk)}
    assert found.end_cursor == FIRST + 50
    for path in found.expired:
        disk.remove(path)
    assert groups_of(opened(disk)) == known[oldest - FIRST :]


def test_a_missing_segment_above_the_oldest_cursor_is_a_problem() -> None:
    disk = SimDisk()
    written(disk, 50)
    disk.remove(segments(disk)[0])
    (problem,) = inspect_log(disk, FOLDER, oldest_cursor=FIRST).problems
    second = int(segments(disk)[0].rpartition("/")[2][:20])
    assert (problem.begin_cursor, problem.end_cursor) == (FIRST, second)


def test_an_append_without_space_for_a_segment_returns_how_much_was_written() -> None:
    disk = SimDisk()
    log = written(disk, 3)
    disk.fail = {"allocate"}
    with pytest.raises(NoRoom) as caught:
        log.append([new(b"fits"), new(b"n" * 2 * SEGMENT_BYTES), new(b"behind")])
    assert caught.value.written == 1
    disk.fail = set()
    log.sync()
    assert groups_of(log)[3:] == [b"fits"]
    log.append([new(b"later")])
    log.sync()
    assert groups_of(log)[-1] == b"later"
    assert groups_of(opened(disk)) == groups_of(log)


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_failed_write_or_sync_is_final(what: str) -> None:
    disk = SimDisk()
    log = written(disk, 1)
    disk.fail = {what}

    def attempt() -> None:
        log.append([new(b"a")])
        log.sync()

    with pytest.raises(WriteFailed):
        attempt()


def test_damage_is_detected_when_it_is_read() -> None:
    disk = SimDisk()
    log = written(disk, 3)
    disk.live[segments(disk)[0]].live[150] ^= 1
    with pytest.raises(LogDamaged):
        groups_of(log)


def test_damage_of_a_sealed_segment_is_detected_by_each_read() -> None:
    disk = SimDisk()
    written(disk, 50)
    disk.live[segments(disk)[0]].live[150] ^= 1
    with pytest.raises(LogDamaged, match=r"\.seg at 64"):
        groups_of(opened(disk))


def test_the_start_fails_if_acknowledged_records_are_damaged() -> None:
    disk = SimDisk()
    written(disk, 4)
    disk.live[segments(disk)[0]].live[150] ^= 1
    with pytest.raises(LogDamaged, match="acknowledged records are damaged"):
        opened(disk)


def test_the_start_fails_if_a_segment_is_missing() -> None:
    disk = SimDisk()
    written(disk, 50)
    disk.remove(segments(disk)[1])
    with pytest.raises(LogDamaged, match="missing"):
        opened(disk)


def test_an_incomplete_tail_is_cut_and_overwritten() -> None:
    disk = SimDisk()
    log = written(disk, 2)
    log.append([new(b"torn" * 20)])
    content = disk.live[segments(disk)[0]].live
    end = len(content.rstrip(b"\0"))
    content[end - 60 : end] = bytes(60)
    second, cut = open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=SEGMENT_BYTES)
    assert cut > 0
    assert second.extent.end_cursor == FIRST + 2
    second.append([new(b"c")])
    second.sync()
    assert groups_of(opened(disk))[2:] == [b"c"]


def test_a_record_that_was_cut_does_not_reappear() -> None:
    """A whole record behind a torn one would fit again behind a new one of the same size."""
    disk = SimDisk()
    log = open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=8192)[0]
    log.append([new(b"old1" * 300), new(b"old2")])
    disk.live[segments(disk)[0]].live[512:1024] = bytes(512)
    second = open_log(disk, folder=FOLDER, birth=BIRTH, segment_bytes=8192)[0]
    assert groups_of(second) == []
    second.append([new(b"new1" * 300)])
    second.sync()
    assert groups_of(opened(disk)) == [b"new1" * 300]


@pytest.mark.parametrize("mark_bytes", range(4))
def test_a_record_whose_end_mark_a_crash_cut_gets_it_back(mark_bytes: int) -> None:
    """A start keeps the whole record, and consumers read it: later damage must not look like a torn tail."""
    disk = SimDisk()
    log = written(disk, 2)
    log.append([new(b"last" * 20)])
    content = disk.live[segments(disk)[0]]
    end = len(content.live.rstrip(b"\0"))
    content.live[end - 4 + mark_bytes : end] = bytes(4 - mark_bytes)
    assert groups_of(opened(disk))[2:] == [b"last" * 20]
    disk.lose_power(random.Random(0))
    content.live[end - 20] ^= 1
    assert [problem.kind for problem in inspect_log(disk, FOLDER).problems] == [ProblemKind.DAMAGED_RECORDS]


@pytest.mark.parametrize("seed", range(8))
def test_data_that_is_readable_after_a_kill_survives_a_power_cut(seed: int) -> None:
    """A kill leaves unsynced records, and an unsynced name, in the page cache: readable, not durable."""
    disk = SimDisk()
    log = opened(disk)
    # Killed after a write, and before the sync of the folder that has the new segment's name.
    disk.sync_dir = lambda path: None  # type: ignore[method-assign]
    log.append([new(b"late" * 20)])
    del disk.sync_dir
    assert groups_of(opened(disk)) == [b"late" * 20]
    disk.lose_power(random.Random(seed))
    assert groups_of(opened(disk)) == [b"late" * 20]


def test_a_read_during_retention_keeps_its_cursors() -> None:
    """The reader has an extent, then the oldest segments go: groups and next cursor must still agree."""
    disk = SimDisk()
    log = written(disk, 50)

    class Overtaken(int):
        """A bound at whose comparison, after the look at the extent, retention runs."""

        def __gt__(self, other: int) -> bool:
            expire(disk, log, 100 + 20)
            return int(self) > other

    read = log.read(cursor=FIRST, end_cursor=Overtaken(1 << 62), max_groups=5, max_bytes=1 << 30)
    oldest = log.extent.oldest_cursor
    assert oldest > FIRST + 5
    assert [entry.cursor for entry in read.entries] == list(range(oldest, oldest + 5))
    assert read.next_cursor == oldest + 5


@pytest.mark.long
@given(
    seed=st.integers(0, 2**32),
    rounds=st.lists(
        st.lists(st.lists(st.integers(1, 700), max_size=6), min_size=1, max_size=6), min_size=1, max_size=4
    ),
)
def test_power_loss_keeps_every_synced_group(seed: int, rounds: list[list[list[int]]]) -> None:
    """Each round: batches are appended and synced but the last one, which the power loss meets."""
    dice, disk, known = random.Random(seed), SimDisk(), list[bytes]()
    for batches in rounds:
        log = opened(disk)
        assert groups_of(log)[: len(known)] == known
        known = groups_of(log)
        for batch in batches[:-1]:
            groups = [b"\n" + dice.randbytes(size) for size in batch]
            log.append([new(group) for group in groups])
            log.sync()
            known += groups
        last = [b"\n" + dice.randbytes(size) for size in batches[-1]]
        log.append([new(group) for group in last])
        disk.lose_power(dice)
        found = groups_of(opened(disk))
        assert found[: len(known)] == known
        assert found[len(known) :] == last[: len(found) - len(known)]
