"""The good records of a damaged segment: those that the service wrote, and no bytes that a client sent. What
ends a record in the log is not known to clients, who could otherwise imitate it in their groups.
"""

import asyncio
import random
from pathlib import Path

import pytest

from loghub.wire import cursor as wire_cursor
from loghub_service.fsck.salvage import good_runs
from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import SegmentHeader
from tests.loghub_service.inprocess import in_process
from tests.loghub_service.rawclient import group_of, noise

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


def test_a_client_cannot_compute_the_end_mark_from_what_it_sees(tmp_path: Path) -> None:
    """A torn write with the end mark in it would look complete, and the next start would be refused."""

    async def main() -> int:
        async with in_process(tmp_path) as service:
            for _ in range(3):
                headers = {"Content-Type": "application/x-protobuf"}
                group = group_of(noise(3000))
                await service.ok("POST", "/logstores/access/shards/lb", body=group, headers=headers)
            query = {"type": "cursor", "from": "begin"}
            answer = await service.ok("GET", "/logstores/access/shards/0", query)
            return wire_cursor.decode(answer.json()["cursor"])

    first = asyncio.run(main())
    segments = sorted(tmp_path.glob("logs/*/*/*.seg"))
    found = [segment_format.unpack_segment_header(path.read_bytes()) for path in segments]
    assert found[0][0].first_cursor == first
    assert len(found) == 3
    for header, layout in found:
        guess = SegmentHeader(
            first_cursor=header.first_cursor, logs_before=header.logs_before, received_us=header.received_us
        )
        assert layout != segment_format.unpack_segment_header(segment_format.pack_segment_header(guess))[1]
    seen = SegmentHeader(first_cursor=first, logs_before=0, received_us=first // 1000)
    assert found[0][1] != segment_format.unpack_segment_header(segment_format.pack_segment_header(seen))[1]
