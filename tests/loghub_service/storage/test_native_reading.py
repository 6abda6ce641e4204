"""The log groups of a shard are read and joined for PullLogs in the same way natively and in Python."""

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import native
from loghub_service.storage import segment_format, stored_group
from loghub_service.storage.segment import LogDamaged, NewGroup
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log
from tests.loghub_service.tiers import without_native_part

WORDS = b"".join(b"%d bottles of %d, " % (n, n * n) for n in range(40))
FIRST = 1000

texts = st.builds(
    lambda text, times: b"\n" + text * times, st.sampled_from([b"a", b"abcdefg", WORDS]), st.integers(1, 300)
)
Found = list[object] | str


def log_of(disk: SimDisk, groups: list[bytes]) -> ShardLog:
    birth = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50)
    log, _ = open_log(disk, folder="/logs/1/0", birth=birth, segment_bytes=64 << 10)
    log.append(
        [NewGroup(group=group, logs=number, received_us=100) for number, group in enumerate(groups, 1)]
    )
    log.sync()
    return log


def read(log: ShardLog, cursor: int, most: int) -> Found:
    try:
        found = log.read(cursor=cursor, end_cursor=1 << 60, max_groups=most, max_bytes=1 << 20)
    except LogDamaged as error:
        return str(error)
    return [*found.entries, found.next_cursor]


@given(
    groups=st.lists(st.binary(min_size=1, max_size=20_000), min_size=1, max_size=12),
    cursor=st.integers(FIRST - 1, FIRST + 12),
    most=st.integers(1, 12),
    version=st.sampled_from([2, 3]),
    damage=st.none() | st.tuples(st.integers(0, 64 << 10), st.integers(1, 255)),
)
def test_the_same_log_groups_or_the_same_damage_are_found(
    groups: list[bytes], cursor: int, most: int, version: int, damage: tuple[int, int] | None
) -> None:
    disk = SimDisk()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_format, "FORMAT", version)
        log = log_of(disk, [b"\n" + group for group in groups])
        if damage is not None:
            at, bits = damage
            file = disk.open(min(disk.live))
            at = segment_format.SEGMENT_HEADER_BYTES + at % sum(map(len, groups))
            file.write_at(bytes((file.read_at(1, offset=at)[0] ^ bits,)), offset=at)
        natively = read(log, cursor, most)
        without_native_part(patch)
        assert read(log, cursor, most) == natively


@given(st.lists(texts.map(stored_group.packed), min_size=1, max_size=8))
def test_the_same_block_is_sent(stored: list[bytes]) -> None:
    block, size = stored_group.lz4_list(stored)
    assert len(lz4.block.decompress(block, uncompressed_size=size)) == size
    are_blocks = not any(group[0] for group in stored)
    assert (native.lz4_list(stored) is not None) == (are_blocks and native.is_installed)
    with pytest.MonkeyPatch.context() as patch:
        without_native_part(patch)
        assert stored_group.lz4_list(stored) == (block, size)


@given(texts.map(stored_group.packed), st.integers(0, 100), st.binary(min_size=1, max_size=4))
def test_a_damaged_block_is_no_reason_to_fail(stored: bytes, at: int, damage: bytes) -> None:
    damaged = stored[:at] + damage + stored[at + len(damage) :]
    found = native.lz4_list([damaged, stored])
    assert found is None or isinstance(found[0], bytes)


@given(st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=8), st.sampled_from([b"", b"mark"]))
def test_all_records_that_are_whole_are_read_at_once(groups: list[bytes], mark: bytes) -> None:
    records = b"".join(
        segment_format.pack_record(
            group, cursor=number, received_us=-number, logs=number + 1, synced=0, end_mark=mark
        )
        for number, group in enumerate(groups)
    )
    found = native.whole_records(records[: len(records) - len(mark)], 0, len(mark), 100)
    expected = [(number, -number, number + 1, group) for number, group in enumerate(groups)]
    assert found == (expected if native.is_installed else None)
