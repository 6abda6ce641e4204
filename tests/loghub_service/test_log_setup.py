"""The log of the service. Nobody may read it: a collector that hangs, a full pipe of a container, Ctrl-S on a
terminal. Few lines of a kind get into it, however often a client causes them.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
import structlog

from loghub_service.log_setup import MAX_LINES, LineLimit, LineWriter, limited
from tests.loghub_service.rawclient import RawClient
from tests.support import ServiceProcess, wait_until

FLOOD = 400
LINES = 3000


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """The ends to read and to write of a pipe that has no room."""
    reading, writing = os.pipe()
    try:
        fill(writing)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def fill(writing: int) -> None:
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    os.set_blocking(writing, True)


def read_all(reading: int) -> bytes:
    found = b""
    os.set_blocking(reading, False)
    try:
        while part := os.read(reading, 1 << 20):
            found += part
    except BlockingIOError:
        pass
    return found


def test_lines_wait_for_their_reader_and_never_block_the_writer() -> None:
    with full_pipe() as (reading, writing):
        lines = LineWriter(writing, queue_bytes=10_000)
        for number in range(LINES):
            lines.write(f"line {number:04}")
        assert 0 < lines.dropped < LINES
        found = b""

        def has_come() -> bool:
            nonlocal found
            found += read_all(reading)
            return found.count(b"line") == LINES - lines.dropped

        wait_until(has_come, "the lines that waited")
        assert found.lstrip(b"x").startswith(b"line 0000\nline 0001\n")
        lines.close()


def test_a_long_line_is_cut_and_a_closed_pipe_is_no_error() -> None:
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    lines.write("y" * 100_000)
    wait_until(lambda: len(lines._lines) == 0, "the line to be taken")
    assert len(os.read(reading, 1 << 20)) < 20_000
    os.close(reading)
    lines.write("to nobody")
    lines.close()
    assert not lines._thread.is_alive()
    os.close(writing)


class UnreadService(ServiceProcess):
    """A service that prints to the pipe with this descriptor."""

    pipe = -1

    def _open_output(self) -> IO[bytes]:
        return os.fdopen(os.dup(self.pipe), "wb")


@pytest.mark.long
def test_a_service_whose_log_nobody_reads_serves_everyone_and_ends(tmp_path: Path) -> None:
    """And once it is read, a flood of bad requests has one line a second."""
    kafka_port = tmp_path / "kafka"
    with full_pipe() as (reading, writing):
        service = UnreadService(
            tmp_path, extra=("--kafka", "127.0.0.1:0", "--kafka-port-file", str(kafka_port))
        )
        service.pipe = writing
        service.start()
        try:
            wait_until(kafka_port.exists, "the Kafka port")
            host, _, port = kafka_port.read_text().strip().rpartition(":")
            for number in range(FLOOD):
                with socket.create_connection((host, int(port))) as stranger:
                    stranger.sendall(b"\xff\xff" + number.to_bytes(2, "big"))  # no length of a request
                    assert stranger.recv(1) == b""
            with RawClient(service) as client:
                client.create()
                client.create_group()
                assert client.heartbeat("w", []) == [0]
            found = b""

            def is_read() -> bool:
                nonlocal found
                found += read_all(reading)
                # The log and what is said to the starter are two queues, so their order is open.
                return b"shard state changed" in found and b"listening on" in found

            wait_until(is_read, "the lines that waited")
            assert 0 < found.count(b"is not accepted") <= MAX_LINES
            fill(writing)
            service.terminate()
        finally:
            if service.running:
                service.kill9()


KIND, MINUTE_S = "login refused", 60.0


def test_the_same_line_is_written_once_a_minute_and_then_says_how_many_there_were() -> None:
    limit = LineLimit()
    answers = [limit.left_out_before(KIND, "10.0.0.1 demo", now_s=second) for second in range(130)]
    assert {second: left for second, left in enumerate(answers) if left is not None} == {
        0: 0,
        60: 59,
        120: 59,
    }
    assert limit.left_out == 130 - 3


def test_who_says_something_else_each_time_has_one_line_a_second() -> None:
    limit = LineLimit()
    for minute in range(3):
        now_s = minute * MINUTE_S
        written = [limit.left_out_before(KIND, f"{minute}-{n}", now_s=now_s) for n in range(5000)]
        assert len([one for one in written if one is not None]) == MAX_LINES
    # Who had no line gets one as soon as there is room.
    assert limit.left_out_before(KIND, "2-4999", now_s=3 * MINUTE_S) == 5000 - MAX_LINES


def test_kinds_do_not_take_each_others_places() -> None:
    limit = LineLimit()
    for number in range(5000):
        limit.left_out_before(KIND, str(number), now_s=0)
    assert limit.left_out_before("record batch refused", "0", now_s=0) == 0


def test_what_is_remembered_is_bounded() -> None:
    limit = LineLimit()
    for second in range(3000):
        limit.left_out_before(KIND, f"{second}", now_s=second)
        limit.left_out_before(f"kind {second}", "", now_s=second)
    assert len(limit._kinds) == 1000
    assert len(limit._kinds[KIND].last_s) == 1000


def test_what_ends_the_service_is_always_written() -> None:
    process = limited(LineLimit(), lambda: 0.0)
    line = {"event": "storage failed, the service stops", "error": "full"}
    for _ in range(3):
        assert process(None, "critical", dict(line)) == line
    assert process(None, "warning", dict(line)) == line
    with pytest.raises(structlog.DropEvent):
        process(None, "warning", dict(line))
