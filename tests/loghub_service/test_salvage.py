"""The good records of a damaged segment: those that the service wrote, and no bytes that a client sent."""

import random

import pytest

from loghub_service.fsck.salvage import good_runs
from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import SegmentHeader

FIRST = 1000
PACKED = segment_format.pack_segment_header(SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50))
END_MARK = segment_format.unpack_segment_header(PACKED)[1].end_mark


def segment(*groups: bytes) -> tuple[bytearray, list[int]]:
    """A segment with these groups, each written for itself, and the offsets of its records."""
    data, offsets = bytearray(PACKED), []
    for number, group in enumerate(groups):
        offsets.append(len(data))
        data += segment_format.pack_record(
            group, cursor=FIRST + number, received_us=1, logs=1, synced=len(data), end_mark=END_MARK
        )
    return data, offsets


def salvaged(data: bytes | bytearray) -> dict[int, bytes]:
    return {one.cursor: one.group for run in good_runs(bytes(data), first_cursor=FIRST) for one in run}


@pytest.mark.parametrize("cursor", range(FIRST, FIRST + 8))
def test_a_record_within_a_damaged_group_is_no_record(cursor: int) -> None:
    """It would take the place of an acknowledged one."""
    inner = segment_format.pack_record(
        b"forged", cursor=cursor, received_us=1, logs=1, synced=64, end_mark=b"\1\1\1\1"
    )
    groups = [b"zero", b"x" * 800 + inner + b"y" * 800, b"two", b"three"]
    data, offsets = segment(*groups)
    data[offsets[1] + 100] ^= 1
    assert salvaged(data) == {FIRST: b"zero", FIRST + 2: b"two", FIRST + 3: b"three"}


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_end_mark_loses_nothing(seed: int) -> None:
    dice = random.Random(seed)
    groups = [dice.randbytes(dice.randrange(1, 60)) for _ in range(8)]
    data, offsets = segment(*groups)
    for end in (*offsets[1:], len(data)):
        data[end - 1] ^= 1
    assert list(salvaged(data).values()) == groups
