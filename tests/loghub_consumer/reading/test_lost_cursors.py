"""A worker reads over cursors that `loghub fsck` has given up: each log group once, the lost ones counted."""

import contextlib
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire import cursor as wire_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.batch_plan import Range
from loghub_service.fsck.__main__ import main as fsck
from tests.loghub_consumer.reading.reading import read
from tests.support import ServiceProcess, running_service

STORE = "access"


def client_of(service: ServiceProcess) -> HttpLogHub:
    return HttpLogHub(service.endpoint, "demo", credentials=service.credentials)


def put(client: HttpLogHub, count: int, *, name: str) -> None:
    for number in range(count):
        log = Log(time=1, contents=(("line", f"{name} {number}"),))
        client.put_logs(STORE, encode(LogGroup(logs=(log,))))


def cursor(client: HttpLogHub, position: str) -> int:
    return wire_cursor.decode(client.get_cursor(STORE, 0, position))


@pytest.mark.long
def test_a_worker_reads_over_lost_cursors(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with contextlib.closing(client_of(service)) as client:
            client.create_project()
            client.create_logstore(STORE, shards=1)
            put(client, 5, name="first")
            begin = cursor(client, "begin")
        service.terminate()
        (segment,) = service.data.glob("logs/*/*/*.seg")
        content = segment.read_bytes()
        at = content.index(b"first 4")
        segment.write_bytes(content[:at] + b"F" + content[at + 1 :])
        assert fsck([str(service.data), "--accept-loss", "all"]) == 0
        service.start()
        with contextlib.closing(client_of(service)) as client:
            put(client, 3, name="second")
            end = cursor(client, "end")
            rows, counts = read(client, STORE, Range(0, begin, end))
            # A batch that was planned before the loss ends among the lost cursors.
            within, planned = read(client, STORE, Range(0, begin + 4, begin + 5))
    lines = [dict(row["contents"])["line"] for row in rows]
    assert lines == [
        *(f"first {number}" for number in range(4)),
        *(f"second {number}" for number in range(3)),
    ]
    assert [row["__cursor__"] - begin for row in rows] == [0, 1, 2, 3, 5, 6, 7]
    assert (counts.missing, end - begin) == (1, 8)
    assert (within, planned.missing) == ([], 1)
