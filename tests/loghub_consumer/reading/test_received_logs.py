"""What a logstore received between two times, at a service with a clock of the test's choice."""

from collections.abc import Callable
from typing import Any

import pytest

from loghub.client.port import Position
from loghub.wire.errors import Code, LogHubError
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.reading import shard_reader
from loghub_consumer.reading.received_logs import ReadBounds, ReceivedLogs, read_received
from tests.fakes.fake_log_service import MemoryServer
from tests.support import HandClock

LOGSTORE = "access"
LOW, HIGH = "0" * 32, "f" * 32
BEGAN_S = 1_700_000_000
PLENTY = 1 << 30


class Stage:
    """A logstore of two shards, and its clock."""

    def __init__(self) -> None:
        self.clock = HandClock(BEGAN_S)
        self.client = MemoryServer(self.clock).client("proj")
        self.client.create_project()
        self.client.create_logstore(LOGSTORE, shards=2)

    def put(self, name: str | bytes, *, at: int = 0, key: str = LOW) -> None:
        self.clock.now = BEGAN_S + at
        log = Log(time=1, contents=(("name", "first"), ("name", name)))
        self.client.put_logs(LOGSTORE, encode(LogGroup(logs=(log,))), hash_key=key)

    def read(
        self,
        begin: Position = "begin",
        end: Position = "end",
        *,
        max_bytes: int = PLENTY,
        max_s: float = 60.0,
        read: Callable[[int, int], None] = lambda _logs, _size: None,
    ) -> ReceivedLogs:
        bounds = ReadBounds(begin=begin, end=end, max_bytes=max_bytes, max_s=max_s)
        return read_received(self.client, LOGSTORE, bounds=bounds, clock=self.clock, read=read)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Of which each log group is an answer and a step of its own."""
    monkeypatch.setattr(shard_reader, "PULL_LOG_GROUPS", 1)
    monkeypatch.setattr(shard_reader, "STEP_BYTES", 1)
    return Stage()


def names(received: ReceivedLogs) -> list[str]:
    return [dict(pairs)["name"] for pairs in received.rows.column("contents").to_pylist()]


def test_what_all_shards_received_between_two_times_is_read_across_a_split(stage: Stage) -> None:
    stage.put("early", at=0)
    stage.put("one", at=10)
    stage.put("high", at=11, key=HIGH)
    stage.client.split_shard(LOGSTORE, 0)
    stage.put("child", at=12)
    stage.put("late", at=20)
    received = stage.read(BEGAN_S + 10, BEGAN_S + 20)
    assert names(received) == ["one", "high", "child"]
    assert received.shards == (0, 1, 2, 3)
    assert (received.begin_s, received.end_s, received.cut) == (BEGAN_S + 10, BEGAN_S + 20, None)
    assert received.rows.column("__shard__").to_pylist() == [0, 1, 2]
    assert received.summary(LOGSTORE, more="").startswith(
        "3 logs of access, received from 2023-11-14T22:13:30Z to 2023-11-14T22:13:40Z; 4 shards, 0.0 MiB read"
    )


@pytest.mark.parametrize("cut", ["bytes", "time"])
def test_a_limit_leaves_every_log_up_to_a_time_and_none_after_it(stage: Stage, cut: str) -> None:
    """The second shard has ten logs in a second, and the first one a log in each of ten."""
    for number in range(10):
        stage.put(f"low-{number}", at=number)
    for number in range(10):
        stage.put(f"high-{number}", at=9, key=HIGH)
    steps: list[tuple[int, int]] = []

    def read(logs: int, size: int) -> None:
        steps.append((logs, size))
        stage.clock.now += 1

    size = len(encode(LogGroup(logs=(Log(time=1, contents=(("name", "first"), ("name", "low-0"))),))))
    limits: dict[str, Any] = {"max_bytes": 7 * size} if cut == "bytes" else {"max_s": 7.0}
    received = stage.read(read=read, **limits)
    assert received.cut == cut
    assert received.end_s is not None
    until = received.end_s - BEGAN_S
    assert 0 < until < 9
    assert names(received) == [f"low-{number}" for number in range(until)]
    assert "ended it there" in received.summary(LOGSTORE, more="")
    assert [logs for logs, _ in steps] == list(range(1, len(steps) + 1))


def test_shards_are_read_evenly_so_that_a_limit_leaves_much_of_the_time(stage: Stage) -> None:
    for number in range(10):
        stage.put("low", at=number)
        stage.put("high", at=number, key=HIGH)
    received = stage.read(max_bytes=stage.read().bytes // 2)
    assert received.end_s == BEGAN_S + 5
    assert names(received) == ["low"] * 5 + ["high"] * 5


def test_a_limit_within_the_first_second_leaves_the_first_logs_and_no_time(stage: Stage) -> None:
    for key in (LOW, HIGH):
        for number in range(5):
            stage.put(f"{key[0]}-{number}", key=key)
    received = stage.read(max_bytes=1)
    assert (names(received), received.end_s, received.cut) == (["0-0"], None, "bytes")
    assert "only the first ones of each shard" in received.summary(LOGSTORE, more="")


def test_a_limit_that_is_reached_with_the_last_log_cuts_nothing(stage: Stage) -> None:
    stage.put("one")
    received = stage.read(max_bytes=1)
    assert (names(received), received.cut) == (["one"], None)


def test_no_log_is_an_empty_table_with_all_columns(stage: Stage) -> None:
    received = stage.read(BEGAN_S + 5, BEGAN_S + 9)
    assert (received.rows.num_rows, received.rows.num_columns, received.bytes) == (0, 9, 0)
    assert stage.read(BEGAN_S + 9, BEGAN_S + 5).rows.num_rows == 0


def test_invalid_text_is_replaced_and_counted_and_the_last_value_of_a_key_counts(stage: Stage) -> None:
    stage.put(b"a\xffb")
    received = stage.read()
    assert names(received) == ["a\ufffdb"]
    assert received.replaced == 1
    assert "1 texts were not UTF-8" in received.summary(LOGSTORE, more="")


def test_a_shard_that_expires_after_it_was_listed_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put("one")
    stage.put("gone", key=HIGH)
    get_cursor = stage.client.get_cursor

    def missing(logstore: str, shard: int, position: Position) -> str:
        if shard == 1:
            raise LogHubError.of(Code.SHARD_NOT_EXIST, "gone")
        return get_cursor(logstore, shard, position)

    monkeypatch.setattr(stage.client, "get_cursor", missing)
    received = stage.read()
    assert (names(received), received.shards) == (["one"], (0,))


def test_a_logstore_that_is_not_there_is_an_error(stage: Stage) -> None:
    stage.client.delete_logstore(LOGSTORE)
    with pytest.raises(LogHubError, match="LogStoreNotExist"):
        stage.read()
