"""Shards that are read level with one another, by a service with a clock of the test's choice."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.batch_plan import BatchPlan, GroupSize, Range
from loghub_consumer.exchange_files import ExchangeFiles, Positions
from loghub_consumer.reading.end_cursors import EndWatch
from loghub_consumer.reading.shard_reader import Receipts
from loghub_worker.source import GroupStreamReader, SourceOptions
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.loghub_consumer.reading.reading import read
from tests.support import HandClock

LOGSTORE = "level"
KEYS = ("0" * 32, "f" * 32)
BEGAN_S = 1_700_000_000


class Stage:
    """A reader of two shards, and their service."""

    def __init__(self, folder: Path, *, polls: bool = False) -> None:
        self.clock = HandClock(BEGAN_S)
        self.server = MemoryServer(self.clock, polls=polls)
        self.client = self.server.client("proj")
        self.client.create_project()
        self.client.create_logstore(LOGSTORE, shards=2)
        self.begins = {s: decode(self.client.get_cursor(LOGSTORE, s, "begin")) for s in (0, 1)}
        self.exchange = ExchangeFiles(folder)
        self.reader = GroupStreamReader(
            SourceOptions(
                endpoint="http://127.0.0.1:1",
                project="proj",
                logstore=LOGSTORE,
                credentials_dir="/etc/key",
                exchange_dir=str(folder),
                fetch_interval_s=1.0,
                batch_interval_s=0.0,
                max_log_groups=1000,
                max_bytes=1 << 30,
                max_logs=10,
                cores=2,
                levels=True,
            )
        )
        self.reader._ends = EndWatch(self.client, logstore=LOGSTORE, interval_s=1.0)
        self.reader._receipts = Receipts(self.client, logstore=LOGSTORE)
        self.reader._clock, self.reader._sleep = self.clock, self._sleep  # type: ignore[assignment]
        self.offset = self.reader.initialOffset()

    def _sleep(self, seconds: float) -> None:
        self.clock.now += seconds

    def put(self, shard: int, times: int = 1) -> None:
        body = encode(LogGroup(logs=(Log(time=1, contents=()),)))
        for _ in range(times):
            self.client.put_logs(LOGSTORE, body, hash_key=KEYS[shard])

    def at(self, positions: dict[int, int], *, opening: list[int] | None = None) -> None:
        """The positions, as log groups of the shards."""
        shards = {shard: self.begins[shard] + groups for shard, groups in positions.items()}
        sizes = dict.fromkeys(shards, GroupSize(bytes=10, logs=1))
        self.exchange.write_positions(
            Positions(version=1, shards=shards, group_sizes=sizes, opening=opening or [])
        )

    def plan(self) -> tuple[dict[int, tuple[int, int]], int | None] | None:
        """The ranges of the next plan, and its latest second since the beginning; None: there is none."""
        after = self.reader.latestOffset(self.offset, ReadAllAvailable())
        if after == self.offset:
            return None
        self.offset, plan = after, BatchPlan.from_json(after)
        ranges = {
            r.shard: (r.begin - self.begins[r.shard], r.end - self.begins[r.shard]) for r in plan.ranges
        }
        return ranges, None if plan.latest_s is None else plan.latest_s - BEGAN_S


def test_a_shard_waits_for_what_others_received_before(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.put(0, times=20)
    stage.clock.now += 100
    stage.put(1)
    stage.clock.now += 100
    stage.put(0, times=20)
    stage.at({0: 0, 1: 0})
    assert stage.plan() == ({0: (0, 10)}, 0)
    stage.at({0: 10, 1: 0})
    assert stage.plan() == ({0: (10, 20)}, 0)
    stage.at({0: 20, 1: 0})
    assert stage.plan() == ({0: (20, 30), 1: (0, 1)}, 200)


def test_an_end_that_was_requested_long_ago_lets_no_shard_be_read_ahead(tmp_path: Path) -> None:
    """While it has nothing more to read of a shard, the source asks for its end seldom; and never while it
    has."""
    stage = Stage(tmp_path)
    stage.put(0, times=12)
    stage.put(1)
    stage.at({0: 0, 1: 0})
    assert stage.plan() == ({0: (0, 10), 1: (0, 1)}, 0)
    stage.clock.now += 60
    stage.put(0, times=40)  # the source knows of 12 log groups in this shard
    stage.clock.now += 60
    stage.put(1)
    stage.at({0: 10, 1: 1})
    assert stage.plan() == ({0: (10, 20)}, 60)


def test_nothing_is_read_while_a_shard_is_opened(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.put(0)
    stage.put(1)
    stage.at({0: 0}, opening=[1])
    assert stage.plan() is None
    stage.at({0: 0, 1: 0})
    assert stage.plan() == ({0: (0, 1), 1: (0, 1)}, 0)


def test_without_the_service_nothing_is_planned_and_the_reason_is_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.put(0, times=20)
    stage.at({0: 0})
    assert stage.plan() == ({0: (0, 10)}, 0)
    stage.at({0: 10})
    stage.server.unreachable = True
    assert stage.plan() is None
    assert stage.exchange.report().reason == "EndpointUnreachable"
    stage.server.unreachable = False
    assert stage.plan() == ({0: (10, 20)}, 0)
    assert stage.exchange.report().reason == ""


@pytest.fixture
def client() -> MemoryLogHub:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore(LOGSTORE, shards=1)
    times = [(BEGAN_S, None), (BEGAN_S, 999_999_999), (BEGAN_S + 1, 5), (2**32 - 1, 7), (5, 8)]
    for time, part in times:
        logs = (Log(time=time, time_ns=part, contents=()),)
        client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)))
    return client


def test_a_log_of_a_time_after_its_receipt_gets_the_latest_one_that_is_not_and_is_counted(
    client: MemoryLogHub,
) -> None:
    begin = decode(client.get_cursor(LOGSTORE, 0, "begin"))
    all_of_it = Range(0, begin, begin + 5)
    own, counts = read(client, LOGSTORE, all_of_it)
    assert counts.ahead == 0
    rows, counts = read(client, LOGSTORE, all_of_it, latest_s=BEGAN_S)
    assert counts.ahead == 2
    latest = own[1]["__time__"]
    assert [(r["__time__"], r["__time_ns__"]) for r in rows] == [
        *((r["__time__"], r["__time_ns__"]) for r in own[:2]),
        (latest, None),
        (latest, None),
        (own[4]["__time__"], 8),
    ]
    without = [{k: v for k, v in r.items() if not k.startswith("__time")} for r in own]
    assert [{k: v for k, v in r.items() if not k.startswith("__time")} for r in rows] == without
    alone, _ = read(client, LOGSTORE, replace(all_of_it, begin=begin + 2, end=begin + 4), latest_s=BEGAN_S)
    received = own[0]["__time__"]
    assert [r["__time__"] for r in alone] == [received, received]
    _, cut = read(client, LOGSTORE, replace(all_of_it, end=begin + 3), latest_s=BEGAN_S)
    assert cut.ahead == 1, "log groups after the range are not counted"
