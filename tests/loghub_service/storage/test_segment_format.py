"""The binary layout of a segment file."""

import pytest

from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import DamagedRecord, Layout, NewerFormat, SegmentHeader

MARK = b"\x11\x22\x33\x44"


def _packed(group: bytes = b"some group", *, end_mark: bytes = MARK) -> bytes:
    return segment_format.pack_record(group, cursor=7, received_us=11, logs=3, synced=64, end_mark=end_mark)


def test_a_record_is_equal_after_unpacking() -> None:
    data = _packed()
    header = segment_format.read_header(data, 0)
    assert header is not None
    segment_format.check(data, 0, header)
    assert (header.cursor, header.received_us, header.logs, header.synced) == (7, 11, 3, 64)
    assert segment_format.group_bytes(data, 0, header) == b"some group"
    assert (
        Layout(2, MARK).stored_bytes(header.length) == segment_format.stored_bytes(header.length) == len(data)
    )
    assert len(data) % 8 == 0


@pytest.mark.parametrize("size", range(1, 20))
def test_a_record_ends_in_the_end_mark(size: int) -> None:
    """So a write that was cut short is recognized, even if the group ends in zeros."""
    assert _packed(bytes(size)).endswith(MARK)


@pytest.mark.parametrize("at", range(segment_format.RECORD_HEADER_BYTES + 10))
def test_each_changed_byte_is_detected(at: int) -> None:
    data = bytearray(_packed())
    data[at] ^= 1
    damaged = bytes(data)
    header = segment_format.read_header(damaged, 0)
    assert header is not None
    with pytest.raises(DamagedRecord):
        segment_format.check(damaged, 0, header)


@pytest.mark.parametrize(
    "size", range(segment_format.RECORD_HEADER_BYTES, segment_format.RECORD_HEADER_BYTES + 10)
)
def test_a_truncated_record_is_detected(size: int) -> None:
    data = _packed()[:size]
    header = segment_format.read_header(data, 0)
    assert header is not None
    with pytest.raises(DamagedRecord):
        segment_format.check(data, 0, header)


def test_zeros_mark_the_end_of_the_records() -> None:
    assert segment_format.read_header(bytes(64), 0) is None
    assert segment_format.read_header(b"\x01", 0) is None


def test_a_segment_header_is_equal_after_unpacking() -> None:
    header = SegmentHeader(first_cursor=10**18, logs_before=5, received_us=6, skipped=7, salt=8)
    packed = segment_format.pack_segment_header(header)
    assert len(packed) == segment_format.SEGMENT_HEADER_BYTES
    unpacked, layout = segment_format.unpack_segment_header(packed)
    assert (unpacked, layout.version) == (header, segment_format.FORMAT)
    assert header.follows == 10**18 - 7


def test_the_end_mark_has_no_zero_byte_and_differs_between_segments() -> None:
    marks = {
        segment_format.unpack_segment_header(
            segment_format.pack_segment_header(SegmentHeader(first_cursor=n, logs_before=0, received_us=0))
        )[1].end_mark
        for n in range(200)
    }
    assert len(marks) > 150
    assert not any(0 in mark for mark in marks)


def test_the_end_mark_depends_on_the_salt() -> None:
    """Of what else it depends on, clients know everything."""
    marks = {
        segment_format.unpack_segment_header(
            segment_format.pack_segment_header(
                SegmentHeader(first_cursor=1, logs_before=0, received_us=0, salt=salt)
            )
        )[1].end_mark
        for salt in range(0, 1 << 32, (1 << 32) // 200)
    }
    assert len(marks) > 150
    assert not any(0 in mark for mark in marks)


def test_a_segment_of_an_earlier_release_keeps_its_end_mark() -> None:
    header = SegmentHeader(first_cursor=1, logs_before=2, received_us=3)
    packed = segment_format.pack_segment_header(header)
    assert packed[44:] == bytes(20)
    crc = int.from_bytes(packed[40:44], "little")
    mark = (crc | 0x01010101).to_bytes(4, "little")
    assert segment_format.unpack_segment_header(packed) == (
        header,
        segment_format.Layout(segment_format.FORMAT, mark),
    )


@pytest.mark.parametrize("at", range(52))
def test_a_damaged_segment_header_is_detected(at: int) -> None:
    data = bytearray(
        segment_format.pack_segment_header(
            SegmentHeader(first_cursor=1, logs_before=2, received_us=3, salt=4)
        )
    )
    data[at] ^= 1
    with pytest.raises(DamagedRecord):
        segment_format.unpack_segment_header(bytes(data))


def test_a_format_of_a_newer_release_is_named() -> None:
    for number in (4, 9, 10):
        with pytest.raises(NewerFormat, match="does not know the segment's format"):
            segment_format.unpack_segment_header((b"LOGHUB%d\n" % number).ljust(64, b"\0"))


def test_a_flipped_bit_does_not_make_a_segment_that_of_a_newer_release() -> None:
    """Otherwise fsck would refuse to repair it."""
    packed = segment_format.pack_segment_header(
        SegmentHeader(first_cursor=1, logs_before=2, received_us=3, salt=4)
    )
    for bit in range(64):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedRecord) as raised:
            segment_format.unpack_segment_header(bytes(flipped))
        assert not isinstance(raised.value, NewerFormat)


def test_a_truncated_segment_header_is_detected() -> None:
    with pytest.raises(DamagedRecord):
        segment_format.unpack_segment_header(b"LOGHUB1\n")
