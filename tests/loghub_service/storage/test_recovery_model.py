"""Recovery against a model of crashes and of damage, in which the truth is known.

A segment gets writes that were synced and then writes that were not. After a crash, each sector has what it
had at some moment since the sync, or the file has all bytes up to one of them. Nothing that was synced may be
lost, no such state may be taken for damage, and damage of a synced record may be taken for a torn write only
if the record reads as if one of its sectors had never been written.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from loghub_service.storage import segment_format
from loghub_service.storage.recovery import SECTOR_BYTES, Tail, inspect
from loghub_service.storage.segment_format import SegmentHeader, pack_footer

HEADER = SegmentHeader(
    first_cursor=1_700_000_000_000_000_000, logs_before=0, received_us=1_700_000_000_123_456
)
PACKED = segment_format.pack_segment_header(HEADER)
LAYOUT = segment_format.unpack_segment_header(PACKED)[1]
# Around the sizes at which a record or a part of it ends with a sector.
SIZES = (1, 4, 8, 60, 100, 404, 408, 412, 440, 464, 468, 472, 476, 500, 700, 988, 1200)


@dataclass(frozen=True, slots=True)
class Written:
    """A segment: its bytes after the last sync and after each later write, all of the same length; and the
    begin and end of each record, of which the first ``synced`` ones were acknowledged."""

    images: list[bytes]
    records: list[tuple[int, int]]
    synced: int


def any_group(dice: random.Random, cursor: int) -> bytes:
    """What a client may send: noise, zeros, both, or what looks like records."""
    size = dice.choice(SIZES)
    kind = dice.choice(("noise", "zeros", "both", "records"))
    if kind == "zeros":
        return bytes(size)
    if kind == "records":
        inner = segment_format.pack_record(
            dice.randbytes(20),
            cursor=cursor + dice.randrange(1, 4),
            received_us=1,
            logs=1,
            synced=1 << 30,
            end_mark=dice.randbytes(segment_format.END_MARK_BYTES),
        )
        return dice.randbytes(dice.randrange(1, 17)) + inner * 3 + bytes(dice.randrange(600))
    group = bytearray(dice.randbytes(size))
    if kind == "both":
        begin = dice.randrange(size)
        end = min(size, begin + dice.randrange(800))
        group[begin:end] = bytes(end - begin)
    return bytes(group)


def any_segment(dice: random.Random, *, writes: int = 3, groups: int = 3) -> Written:
    data, records, synced = bytearray(PACKED), list[tuple[int, int]](), 64
    durable_writes = dice.randrange(3)
    images, synced_records = [bytes(data)], 0
    for number in range(durable_writes + dice.randrange(writes + 1)):
        begin = synced
        for _ in range(dice.randrange(1, groups + 1)):
            cursor = HEADER.first_cursor + len(records)
            packed = segment_format.pack_record(
                any_group(dice, cursor),
                cursor=cursor,
                received_us=1,
                logs=1,
                synced=begin,
                end_mark=LAYOUT.end_mark,
            )
            records.append((len(data), len(data) + len(packed)))
            data += packed
        if number < durable_writes:
            synced, synced_records, images = len(data), len(records), []
        images.append(bytes(data))
    if dice.random() < 0.3:
        found = inspect(bytes(data), HEADER, LAYOUT)
        images.append(bytes(data) + pack_footer(found.marks, found.totals, end_mark=LAYOUT.end_mark))
    size = (len(images[-1]) // SECTOR_BYTES + 2) * SECTOR_BYTES
    return Written([image.ljust(size, b"\0") for image in images], records, synced_records)


def sectors_of(data: bytes) -> Iterator[slice]:
    return (slice(at, at + SECTOR_BYTES) for at in range(0, len(data), SECTOR_BYTES))


def any_crash(dice: random.Random, images: list[bytes]) -> bytes:
    """One of the images; or all before some byte of the last one; or any sectors of these."""
    begin, end = (len(images[at].rstrip(b"\0")) for at in (0, -1))
    cut = dice.randint(min(begin, end), end)
    partial = images[-1][:cut] + images[0][cut:]
    kind = dice.choice(("image", "part", "sectors", "sectors", "sectors of a part"))
    if kind == "image":
        return dice.choice(images)
    if kind == "part":
        return partial
    candidates = images if kind == "sectors" else [images[0], partial]
    return b"".join(dice.choice(candidates)[sector] for sector in sectors_of(partial))


def assert_torn(written: Written, state: bytes) -> None:
    """Nothing is refused, nothing that was acknowledged is lost, and what is kept is what was written."""
    found = inspect(state, HEADER, LAYOUT)
    assert found.tail is not Tail.DAMAGED, found.reason
    kept = found.totals.next_cursor - HEADER.first_cursor
    assert written.synced <= kept <= len(written.records)
    for begin, end in written.records[:kept]:
        header, intact = segment_format.read_header(state, begin), written.images[-1][begin:end]
        assert header is not None
        assert segment_format.group_bytes(state, begin, header) == segment_format.group_bytes(
            intact, 0, header
        )


def flip(dice: random.Random, state: bytearray, begin: int, end: int) -> None:
    state[dice.randrange(begin, end)] ^= 1 << dice.randrange(8)


def overwrite(dice: random.Random, state: bytearray, begin: int, end: int) -> None:
    at = dice.randrange(begin, end)
    size = min(dice.randrange(1, 200), len(state) - at)
    state[at : at + size] = dice.randbytes(size)


def lose_a_block(size: int) -> Callable[[random.Random, bytearray, int, int], None]:
    """It has other bytes, as after a write that went astray."""

    def lose(dice: random.Random, state: bytearray, begin: int, end: int) -> None:
        at = dice.randrange(begin, end) // size * size
        first, last = max(at, segment_format.SEGMENT_HEADER_BYTES), min(at + size, len(state))
        state[first:last] = dice.randbytes(last - first)

    return lose


def seems_unwritten(state: bytes, begin: int, end: int) -> bool:
    """Whether a sector of the record consists of zeros."""
    first = begin - begin % SECTOR_BYTES
    return any(
        not any(state[max(at, begin) : min(at + SECTOR_BYTES, end)]) for at in range(first, end, SECTOR_BYTES)
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_write_is_never_refused(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        written = any_segment(dice)
        assert_torn(written, any_crash(dice, written.images))


@pytest.mark.parametrize("seed", range(15))
def test_every_crash_of_a_small_segment_is_torn(seed: int) -> None:
    """Each combination of what its sectors had, and each byte at which the write may have ended."""
    dice = random.Random(f"small {seed}")
    written = any_segment(dice, writes=2, groups=2)
    while len(set(written.images)) < 2:
        written = any_segment(dice, writes=2, groups=2)
    choices = [
        sorted({image[sector] for image in written.images}) for sector in sectors_of(written.images[0])
    ]
    for parts in itertools.islice(itertools.product(*choices), 2000):
        assert_torn(written, b"".join(parts))
    first, *_, last = written.images
    for cut in range(len(first.rstrip(b"\0")), len(last.rstrip(b"\0")) + 1):
        assert_torn(written, last[:cut] + first[cut:])


@pytest.mark.parametrize("damage", [flip, overwrite, lose_a_block(SECTOR_BYTES), lose_a_block(4096)])
@pytest.mark.parametrize("seed", range(5))
def test_damage_of_a_synced_record_is_not_taken_for_a_torn_write(
    seed: int, damage: Callable[[random.Random, bytearray, int, int], None]
) -> None:
    dice, refused = random.Random(f"damage {seed}"), 0
    for _ in range(150):
        written = any_segment(dice)
        if not written.synced:
            continue
        state = bytearray(any_crash(dice, written.images))
        damage(dice, state, *written.records[dice.randrange(written.synced)])
        found = inspect(bytes(state), HEADER, LAYOUT)
        kept = found.totals.next_cursor - HEADER.first_cursor
        if found.tail is Tail.DAMAGED:
            refused += 1
        elif kept < written.synced:
            assert seems_unwritten(bytes(state), *written.records[kept]), (found.tail, found.reason)
    assert refused > 50
