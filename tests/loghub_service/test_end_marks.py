"""What ends a record in the log is not known to clients, who could otherwise imitate it in their groups."""

import asyncio
from pathlib import Path

from loghub.wire import cursor as wire_cursor
from loghub_service.storage import segment_format
from loghub_service.storage.segment_format import SegmentHeader
from tests.loghub_service.inprocess import in_process
from tests.loghub_service.rawclient import group_of, noise


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
