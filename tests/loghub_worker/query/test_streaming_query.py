"""Delivery of a batch by the query runner, without Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.worker_contract import ParquetSink
from loghub_worker.batch_plan import BatchPlan, Range
from loghub_worker.exchange_files import ExchangeFiles, ReadCount
from loghub_worker.membership.membership import HeartbeatRequest, Membership, MembershipTimings
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.query.streaming_query import QueryRunner, QuerySettings
from tests.loghub_worker.support import worker_config
from tests.support import HandClock

BEGIN = 10


class Published:
    """A sink that takes everything."""

    def __init__(self) -> None:
        self.ranges: list[tuple[Range, ...]] = []

    def write(self, result: object, batch: str) -> int:
        return 0

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        assert may_commit()
        self.ranges.append(ranges)


def identity_transform() -> Any:
    return lambda rows: rows


class OpenShard:
    """One shard, open at `BEGIN`."""

    def __init__(self, folder: Path) -> None:
        clock = HandClock(100.0)
        membership = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
        self.shared_state = SharedState(membership, ExchangeFiles(folder), clock)
        request = membership.poll(100)
        assert isinstance(request, HeartbeatRequest)
        membership.answered(request.number, (0,), now=100)
        membership.opened(0, epoch=membership.shards[0].epoch, position=BEGIN, saved=BEGIN)
        self.exchange, self.sink = ExchangeFiles(folder), Published()
        sink: Any = self.sink
        absent: Any = None
        self.query_runner = QueryRunner(
            QuerySettings(
                config=worker_config("http://x", ParquetSink(path="/unused")),
                consumer="w-0",
                credentials_dir="/k",
                scratch=folder / "query",
            ),
            absent,
            self.shared_state,
            absent,
            transform=identity_transform(),
            sink=sink,
        )

    def deliver(self, count: ReadCount) -> Range:
        """Deliver a batch of ten log groups of which this was read; return the range that was published."""
        self.exchange.write_count(count, plan=1, shard=0)
        rows: Any = None
        assert self.query_runner._deliver(rows, BatchPlan(1, (Range(0, BEGIN, BEGIN + 10),)))
        ((published,),) = self.sink.ranges
        assert self.exchange.positions().shards == {0: published.end}
        return published


@pytest.fixture
def open_shard(tmp_path: Path) -> OpenShard:
    return OpenShard(tmp_path)


def test_a_range_that_was_read_is_published_and_counted(open_shard: OpenShard) -> None:
    assert open_shard.deliver(ReadCount(logs=20, bytes=500, missing=1)) == Range(0, BEGIN, BEGIN + 10)
    with open_shard.shared_state.use() as (membership, _):
        assert [(s.logs, s.group_bytes) for s in membership.shards] == [(20, 50.0)]
    assert open_shard.query_runner.totals.missing == 1


def test_the_cursors_of_an_earlier_logstore_of_the_same_name_are_skipped_as_one_range(
    open_shard: OpenShard,
) -> None:
    """So that a consumer that finds the range in the sink's record continues after it."""
    assert open_shard.deliver(ReadCount(logs=0, bytes=0, missing=10, oldest=10**18)) == Range(
        0, BEGIN, 10**18
    )
