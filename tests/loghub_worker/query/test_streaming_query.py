"""What becomes of a batch that was read, without Spark around it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.worker_contract import ParquetSink
from loghub_worker.batch_plan import Plan, Range
from loghub_worker.exchange_files import Count, Handover
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Beat, Membership, MembershipTimings
from loghub_worker.query.streaming_query import Job
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


class Stand:
    """One shard, open at `BEGIN`."""

    def __init__(self, folder: Path) -> None:
        clock = HandClock(100.0)
        consumer = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
        self.session = SharedState(consumer, Handover(folder), clock)
        beat = consumer.poll(100)
        assert isinstance(beat, Beat)
        consumer.answered(beat.number, (0,), now=100)
        consumer.opened(0, epoch=consumer.shards[0].epoch, position=BEGIN, saved=BEGIN)
        self.handover, self.sink = Handover(folder), Published()
        parts: dict[str, Any] = {"keeper": None, "transform": lambda rows: rows, "sink": self.sink}
        nothing: Any = None
        self.job = Job(
            worker_config("http://x", ParquetSink(path="/unused")),
            nothing,
            session=self.session,
            handover=self.handover,
            clock=clock,
            credentials_dir="/k",
            scratch=folder / "query",
            name="w-0",
            **parts,
        )

    def deliver(self, count: Count) -> Range:
        """A batch of ten log groups of which this was read; what was published of it."""
        self.handover.write_count(count, plan=1, shard=0)
        rows: Any = None
        assert self.job._deliver(rows, Plan(1, (Range(0, BEGIN, BEGIN + 10),)))
        ((published,),) = self.sink.ranges
        assert self.handover.positions().shards == {0: published.end}
        return published


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_a_range_that_was_read_is_done_and_counted(stand: Stand) -> None:
    assert stand.deliver(Count(logs=20, bytes=500, missing=1)) == Range(0, BEGIN, BEGIN + 10)
    with stand.session.use() as (consumer, _):
        assert [(s.logs, s.group_bytes) for s in consumer.shards] == [(20, 50.0)]
    assert stand.job.tally.missing == 1


def test_what_an_earlier_logstore_of_the_name_had_is_passed_over_at_once(stand: Stand) -> None:
    """As one range, so that whoever finds it in the sink's record goes on behind it."""
    assert stand.deliver(Count(logs=0, bytes=0, missing=10, oldest=10**18)) == Range(0, BEGIN, 10**18)
