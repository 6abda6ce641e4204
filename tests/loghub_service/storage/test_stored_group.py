"""Log groups are stored compressed where that pays, and pulled as they were received."""

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub.wire.compression import Compression, compress
from loghub_service.kafka.producers import BatchOrigin
from loghub_service.pulsar.origin import MessageChunk, PulsarOrigin
from loghub_service.storage import segment_format, stored_group
from loghub_service.storage.segment import LogDamaged, NewGroup
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

TEXT = b"\n" + b"".join(b"%d bottles of %d, " % (n, n * n) for n in range(300))


def _unpacked(block: bytes, size: int) -> bytes:
    raw: bytes = lz4.block.decompress(block, uncompressed_size=size)
    return raw


def test_the_block_of_the_client_is_stored() -> None:
    received = compress(TEXT, Compression.LZ4)
    stored = stored_group.packed(TEXT, received)
    assert stored.endswith(received)
    assert len(stored) < len(TEXT) / 2
    assert stored_group.raw_size(stored) == len(TEXT)
    assert stored_group.unpacked(stored) == TEXT


def test_what_came_otherwise_is_compressed() -> None:
    stored = stored_group.packed(TEXT)
    assert len(stored) < len(TEXT) / 2
    assert stored_group.unpacked(stored) == TEXT


def test_a_block_that_other_decoders_may_refuse_is_not_stored() -> None:
    """One that copies from 0 bytes back, as the LZ4 library accepts it: its output has zeros there."""
    odd = b"\x1f\n\x00\x00" + b"\xff" * 8 + b"\x00" + b"\x50" + b"abcde"
    size = 1 + 4 + 15 + 8 * 255 + 5
    group = _unpacked(odd, size)
    stored = stored_group.packed(group, odd)
    assert not stored.endswith(odd)
    assert stored_group.unpacked(stored) == group


@pytest.mark.parametrize("group", [b"\n short", bytes(range(1, 256)) * 1 + bytes(range(255, 0, -1)) * 4])
def test_short_groups_stay_as_they_are(group: bytes) -> None:
    stored = stored_group.packed(group, compress(group, Compression.LZ4))
    assert stored_group.unpacked(stored) == group
    assert stored == group or len(group) >= stored_group.MIN_BYTES


groups = st.integers(0, 3000).flatmap(
    lambda size: st.sampled_from([TEXT[: size + 1], b"\n" + TEXT[-size - 1 :], b"\n" + bytes(range(256)) * 8])
)


@given(st.lists(st.tuples(groups, st.sampled_from(["raw", "lz4", "zstd"])), min_size=1, max_size=8))
def test_a_pulled_list_has_every_group(sent: list[tuple[bytes, str]]) -> None:
    """Also those that an earlier release stored, or a Kafka client sent."""
    stored = [
        group
        if how == "raw"
        else stored_group.packed(group, compress(group, Compression.LZ4) if how == "lz4" else None)
        for group, how in sent
    ]
    block, size = stored_group.lz4_list(stored)
    pulled = _unpacked(block, size)
    assert [bytes(group) for group in loggroup.split(pulled)] == [group for group, _ in sent]


def test_an_unknown_form_is_damage() -> None:
    with pytest.raises(LogDamaged, match="form 7"):
        stored_group.unpacked(b"\0\x07" + bytes(20))
    with pytest.raises(LogDamaged, match="truncated"):
        stored_group.raw_size(b"\0\x01")


def _opened(disk: SimDisk) -> ShardLog:
    birth = SegmentHeader(first_cursor=1000, logs_before=0, received_us=50)
    return open_log(disk, folder="/logs/1/0", birth=birth, segment_bytes=8192)[0]


@pytest.mark.parametrize("torn", [b"", b"\x05"])
def test_a_log_of_format_2_goes_on_in_a_segment_of_format_3(
    monkeypatch: pytest.MonkeyPatch, torn: bytes
) -> None:
    disk = SimDisk()
    monkeypatch.setattr(segment_format, "FORMAT", 2)
    old = _opened(disk)
    for number in range(3):
        old.append([NewGroup(group=TEXT[: 3000 + number], logs=1, received_us=100)])
        old.sync()
    last = max(disk.live)
    if torn:  # the begin of a record that a kill cut short
        used = len(bytes(disk.live[last].live).rstrip(b"\0")) + 7 & ~7
        disk.open(last).write_at(torn, offset=used)
    monkeypatch.setattr(segment_format, "FORMAT", 3)
    log = _opened(disk)
    stored = stored_group.packed(TEXT)
    log.append([NewGroup(group=stored, logs=1, received_us=101)])
    log.sync()
    for again in (log, _opened(disk)):
        read = again.read(cursor=0, end_cursor=1 << 60, max_groups=10, max_bytes=1 << 20)
        found = [stored_group.unpacked(entry.group) for entry in read.entries]
        assert found == [TEXT[:3000], TEXT[:3001], TEXT[:3002], TEXT]
    versions = [
        segment_format.unpack_segment_header(bytes(content.live))[1].version
        for path, content in sorted(disk.live.items())
        if path.endswith(".seg")
    ]
    assert versions == [2, 2, 3]


def test_a_read_is_bounded_by_the_size_without_compression() -> None:
    """It is what a client has to hold."""
    log = _opened(SimDisk())
    log.append([NewGroup(group=stored_group.packed(TEXT), logs=1, received_us=1)] * 5)
    log.sync()
    read = log.read(cursor=0, end_cursor=1 << 60, max_groups=10, max_bytes=2 * len(TEXT))
    assert len(read.entries) == 2


@pytest.mark.parametrize("group", [b"\n short", TEXT])
def test_the_origin_of_a_batch_is_stored_before_it_and_not_pulled(group: bytes) -> None:
    origin = BatchOrigin(producer_id=(1 << 63) - 1, epoch=32767, partition=70_000, first=(1 << 31) - 1)
    plain = stored_group.packed(group)
    stored = stored_group.with_origin(plain, origin)
    assert (stored_group.origin_of(stored), stored_group.origin_of(plain)) == (origin, None)
    assert stored_group.raw_size(stored) == len(group)
    assert stored_group.unpacked(stored) == group
    assert stored_group.lz4_list([plain, stored]) == stored_group.lz4_list([plain, plain])


def test_a_truncated_origin_is_damage() -> None:
    stored = stored_group.with_origin(b"", BatchOrigin(1, 2, 3, 4))
    with pytest.raises(LogDamaged, match="truncated"):
        stored_group.unpacked(stored)
    with pytest.raises(LogDamaged, match="truncated"):
        stored_group.origin_of(stored[:-1])


CHUNK = MessageChunk(uuid="u", number=2, count=3, total_size=9, compression=4, uncompressed_size=8)
PULSAR = PulsarOrigin(
    partition=70_000,
    producer="日志",
    sequence=(1 << 63) - 1,
    highest=(1 << 63) - 1,
    publish_ms=1 << 50,
    is_batch=True,
    is_named=True,
    flags=b"\1\2\3",
    schema_version=bytes(8),
    deliver_at_ms=-1,
    chunk=CHUNK,
)


@pytest.mark.parametrize("group", [b"\n short", TEXT])
def test_the_origin_of_a_send_of_pulsar_is_stored_before_its_group_and_not_pulled(group: bytes) -> None:
    plain = stored_group.packed(group)
    stored = stored_group.with_pulsar_origin(plain, PULSAR)
    assert (stored_group.pulsar_origin_of(stored), stored_group.pulsar_origin_of(plain)) == (PULSAR, None)
    assert stored_group.origin_of(stored) is None
    assert stored_group.raw_size(stored) == len(group)
    assert stored_group.unpacked(stored) == group
    assert stored_group.lz4_list([plain, stored]) == stored_group.lz4_list([plain, plain])


def test_a_damaged_origin_of_a_send_is_damage() -> None:
    stored = stored_group.with_pulsar_origin(b"\n short", PULSAR)
    group_begin = len(stored) - len(b"\n short")
    for size in range(2, group_begin + 1):
        with pytest.raises(LogDamaged):
            stored_group.unpacked(stored[:size])
    for size in range(8, group_begin):
        shorter = stored[:4] + (size - 8).to_bytes(4, "little") + stored[8:]
        with pytest.raises(LogDamaged, match="the origin of a stored log group is damaged"):
            stored_group.pulsar_origin_of(shorter)
