"""The binary layout of a segment file."""

import pytest

from loghub.service.storage import record
from loghub.service.storage.record import DamagedRecord, SegmentHeader


def _packed(group: bytes = b"some group") -> bytes:
    return record.pack_record(group, cursor=7, received_us=11, logs=3, synced=64)


def test_a_record_is_equal_after_unpacking() -> None:
    data = _packed()
    header = record.read_header(data, 0)
    assert header is not None
    record.check(data, 0, header)
    assert (header.cursor, header.received_us, header.logs, header.synced) == (7, 11, 3, 64)
    assert record.group_bytes(data, 0, header) == b"some group"
    assert header.stored_bytes == len(data)
    assert len(data) % 8 == 0


@pytest.mark.parametrize("at", range(record.RECORD_HEADER_BYTES + 10))
def test_each_changed_byte_is_detected(at: int) -> None:
    data = bytearray(_packed())
    data[at] ^= 1
    damaged = bytes(data)
    header = record.read_header(damaged, 0)
    assert header is not None
    with pytest.raises(DamagedRecord):
        record.check(damaged, 0, header)


@pytest.mark.parametrize("size", range(record.RECORD_HEADER_BYTES, record.RECORD_HEADER_BYTES + 10))
def test_a_truncated_record_is_detected(size: int) -> None:
    data = _packed()[:size]
    header = record.read_header(data, 0)
    assert header is not None
    with pytest.raises(DamagedRecord):
        record.check(data, 0, header)


def test_zeros_mark_the_end_of_the_records() -> None:
    assert record.read_header(bytes(64), 0) is None
    assert record.read_header(b"\x01", 0) is None


def test_a_segment_header_is_equal_after_unpacking() -> None:
    header = SegmentHeader(first_cursor=10**18, logs_before=5, received_us=6)
    packed = record.pack_segment_header(header)
    assert len(packed) == record.SEGMENT_HEADER_BYTES
    assert record.unpack_segment_header(packed) == header


@pytest.mark.parametrize("at", range(36))
def test_a_damaged_segment_header_is_detected(at: int) -> None:
    data = bytearray(record.pack_segment_header(SegmentHeader(first_cursor=1, logs_before=2, received_us=3)))
    data[at] ^= 1
    with pytest.raises(DamagedRecord):
        record.unpack_segment_header(bytes(data))


def test_a_truncated_segment_header_is_detected() -> None:
    with pytest.raises(DamagedRecord):
        record.unpack_segment_header(b"LOGHUB1\n")
