"""What the bytes after the last good record are: nothing, a torn tail, a footer, or damage."""

import random

import pytest

from loghub_service.storage import segment_format
from loghub_service.storage.recovery import SECTOR_BYTES, Inspection, Tail, inspect
from loghub_service.storage.segment_format import SegmentHeader, pack_footer
from tests.loghub_service.storage import old_format

HEADER = SegmentHeader(first_cursor=1000, logs_before=0, received_us=50)
FILE_BYTES = 16 << 10
PACKED = segment_format.pack_segment_header(HEADER)
LAYOUT = segment_format.unpack_segment_header(PACKED)[1]


def batches(*sizes: list[int], seed: int = 1, zeros: bool = False) -> tuple[bytes, list[int]]:
    """A segment with these batches of groups, and the offset at which each batch begins, then the end."""
    dice, data, cursor, begins = random.Random(seed), PACKED, 1000, []
    for batch in sizes:
        synced = len(data)
        begins.append(synced)
        for size in batch:
            group = bytes(size) if zeros else dice.randbytes(size)
            data += segment_format.pack_record(
                group,
                cursor=cursor,
                received_us=100 + cursor,
                logs=1,
                synced=synced,
                end_mark=LAYOUT.end_mark,
            )
            cursor += 1
    return data.ljust(FILE_BYTES, b"\0"), [*begins, len(data)]


def inspected(data: bytes | bytearray) -> Inspection:
    return inspect(bytes(data), HEADER, LAYOUT)


def test_whole_records_have_a_clean_tail() -> None:
    data, begins = batches([10, 2000], [3])
    found = inspected(data)
    assert (found.tail, found.reason, found.tail_bytes) == (Tail.CLEAN, "", 0)
    assert (found.totals.used, found.totals.next_cursor) == (begins[-1], 1003)


@pytest.mark.parametrize("size", [1, 8, 100, 470, 2000])
def test_each_flipped_bit_of_the_last_record_is_damage(size: int) -> None:
    """Its write was complete, so it may have been acknowledged. The end mark alone may differ."""
    data, (_, begin, end) = batches([100], [size])
    for at in range(begin, end - 4, 1 + size // 500):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        found = inspected(damaged)
        in_padding = found.tail is Tail.CLEAN and found.totals.next_cursor == 1002
        assert found.tail is Tail.DAMAGED or in_padding, at
    damaged = bytearray(data)
    damaged[end - 1] ^= 1
    assert inspected(damaged).totals.next_cursor == 1002


@pytest.mark.parametrize("sizes", [[1], [100], [3000], [100, 100, 100], [600, 5, 1500]])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_write_that_was_cut_short_at_any_byte_is_torn(sizes: list[int], zeros: bool) -> None:
    data, (_, begin, end) = batches([100], sizes, zeros=zeros)
    for cut in range(begin, end, 1 + sum(sizes) // 1000):
        found = inspected(data[:cut].ljust(FILE_BYTES, b"\0"))
        assert found.tail in (Tail.TORN, Tail.CLEAN), cut
        assert found.totals.next_cursor >= 1001


@pytest.mark.parametrize("seed", range(50))
def test_a_write_that_lacks_any_sectors_is_torn(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.randrange(1, 2500) for _ in range(dice.randrange(1, 5))]
    data, (_, begin, end) = batches([dice.randrange(1, 600)], sizes, seed=seed)
    sectors = range(begin // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1)
    lost = dice.sample(sectors, dice.randrange(1, len(sectors) + 1))
    torn = bytearray(data)
    for sector in lost:
        for at in range(max(begin, sector * SECTOR_BYTES), min((sector + 1) * SECTOR_BYTES, end)):
            torn[at] = 0
    found = inspected(torn)
    assert found.tail in (Tail.TORN, Tail.CLEAN)
    assert found.totals.next_cursor >= 1001


def test_a_valid_later_record_shows_that_a_bad_one_was_acknowledged() -> None:
    """Also if the bad one looks torn."""
    data, (_, begin, end, _) = batches([100], [2000], [10])
    damaged = bytearray(data)
    damaged[begin + 600 : end - 200] = bytes(end - 200 - begin - 600)
    found = inspected(damaged)
    assert (found.tail, found.totals.next_cursor) == (Tail.DAMAGED, 1001)


def test_a_bad_record_before_valid_ones_of_the_same_write_is_damage() -> None:
    data, (begin, _) = batches([100, 100, 100])
    damaged = bytearray(data)
    damaged[begin + 150] ^= 1
    assert inspected(damaged).tail is Tail.DAMAGED


def test_a_client_cannot_make_a_torn_write_look_complete() -> None:
    """By the bytes that end a record, repeated: they are not those of another segment."""
    data, (_, begin, end) = batches([10], [2000])
    other = segment_format.unpack_segment_header(
        segment_format.pack_segment_header(SegmentHeader(first_cursor=1000, logs_before=0, received_us=51))
    )[1]
    forged = bytearray(data)
    forged[begin + 32 : end - 4] = (other.end_mark * 600)[: end - 4 - begin - 32]
    for cut in range(begin + 40, end - 8, 8):
        assert inspected(bytes(forged[:cut]).ljust(FILE_BYTES, b"\0")).tail is Tail.TORN


def forged(*, cursor: int, padding: int) -> bytes:
    """A group with a valid record in it, as a client can make it: all but the end mark is known to it."""
    inner = segment_format.pack_record(
        b"forged", cursor=cursor, received_us=1, logs=1, synced=1 << 30, end_mark=b"\1\1\1\1"
    )
    return bytes([1]) * padding + inner + bytes([1]) * padding


@pytest.mark.parametrize("cursor", range(1001, 1005))
def test_a_client_cannot_make_a_torn_write_look_acknowledged(cursor: int) -> None:
    """By a group that contains a later record."""
    data, (*_, end) = batches([10])
    torn = bytearray(data)
    whole = segment_format.pack_record(
        forged(cursor=cursor, padding=800),
        cursor=1001,
        received_us=1,
        logs=1,
        synced=end,
        end_mark=LAYOUT.end_mark,
    )
    torn[end : end + len(whole)] = whole
    assert inspected(torn).totals.next_cursor == 1002
    torn[end:SECTOR_BYTES] = bytes(SECTOR_BYTES - end)
    assert inspected(torn).tail is Tail.TORN


def test_a_footer_or_any_part_of_it_is_recognized() -> None:
    data, (*_, end) = batches([100, 200], [300])
    found = inspected(data)
    footer = pack_footer(found.marks, found.totals, end_mark=LAYOUT.end_mark)
    for length in range(8, len(footer) + 1):
        partial = data[:end] + footer[:length]
        assert inspected(partial.ljust(FILE_BYTES, b"\0")).tail is Tail.FOOTER


@pytest.mark.parametrize("rest", [1, 16, 100, 2000])
def test_damage_is_recognized_before_a_write_that_was_cut_short(rest: int) -> None:
    """Of a later record, or of the footer: the tail does not end in the end mark, but the damaged record."""
    data, (_, begin, end) = batches([100], [300])
    more, _ = batches([100], [300], [3000])
    found = inspected(data)
    footer = pack_footer(found.marks, found.totals, end_mark=LAYOUT.end_mark)
    for whole in (data[:end] + footer, more):
        damaged = bytearray(whole[: end + rest].ljust(FILE_BYTES, b"\0"))
        assert inspected(damaged).tail in (Tail.CLEAN, Tail.FOOTER, Tail.TORN)
        damaged[begin + 40] ^= 1
        assert inspected(damaged).tail is Tail.DAMAGED


@pytest.mark.parametrize(("erased", "at"), [(0, 0), (0, 3), (0, 8), (0, 9), (0, 15), (8, 4), (8, 8), (8, 15)])
def test_a_header_that_no_write_could_leave_is_damage_also_without_the_end_mark(erased: int, at: int) -> None:
    """Its begin, perhaps after zeros, is what shows it: a torn write has what was written, or zeros."""
    data, (_, begin, end) = batches([100], [2000])
    damaged = bytearray(data)
    damaged[begin : begin + erased] = bytes(erased)
    damaged[begin + at] ^= 0x80
    damaged[end - 4 : end] = bytes(4)
    assert inspected(damaged).tail is Tail.DAMAGED


def test_damage_before_a_footer_is_damage() -> None:
    data, (_, begin, end) = batches([100], [300])
    found = inspected(data)
    damaged = bytearray(data[:end] + pack_footer(found.marks, found.totals, end_mark=LAYOUT.end_mark))
    damaged[begin + 100] ^= 1
    assert inspected(damaged).tail is Tail.DAMAGED


def test_in_format_1_only_a_later_record_shows_damage() -> None:
    packed = old_format.header_bytes(HEADER)
    header, layout = segment_format.unpack_segment_header(packed)
    assert (header, layout.version) == (HEADER, 1)
    data = bytearray(packed)
    begins = []
    for cursor in range(1000, 1003):
        begins.append(len(data))
        data += old_format.record_bytes(b"x" * 100, cursor=cursor, received_us=1, logs=1, synced=len(data))
    assert inspect(bytes(data), header, layout).totals.next_cursor == 1003
    for number, tail in ((1, Tail.DAMAGED), (2, Tail.TORN)):
        damaged = bytearray(data)
        damaged[begins[number] + 50] ^= 1
        found = inspect(bytes(damaged), header, layout)
        assert (found.tail, found.totals.next_cursor) == (tail, 1000 + number)
