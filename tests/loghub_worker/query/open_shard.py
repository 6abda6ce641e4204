"""A query runner without Spark: open shards, a clock of the test, and batches of the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loghub.contract.sinks import FileRoll, ParquetSink
from loghub.contract.worker import LOCAL_MASTER, OnFailure
from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.dead_letter import DeadLetters
from loghub_consumer.membership.membership import Membership, MembershipTimings, SendHeartbeat
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.stateful_query import StatefulQueryRunner
from loghub_worker.query.streaming_query import QueryRunner
from loghub_worker.sink.files.commit_log import SessionLostError
from loghub_worker.state.ledger import StateLedger
from tests.loghub_worker.support import SOURCE, worker_config
from tests.support import HandClock

BEGIN = 10
TIMEOUT_S = 600.0


class FakeSink:
    """A sink that takes everything, unless an error is set that the next calls raise."""

    def __init__(self) -> None:
        self.published: list[tuple[Range, ...]] = []
        self.file_bytes = 0
        self.aborted = 0
        self.write_error: Exception | None = None
        self.publish_error: Exception | None = None
        self.check_error: Exception | None = None
        self.writing: Callable[[], None] = lambda: None

    def check(self, empty: object) -> None:
        if self.check_error is not None:
            raise self.check_error

    def write(self, result: object, batch: str) -> int:
        self.writing()
        if self.write_error is not None:
            raise self.write_error
        return 0

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        if self.publish_error is not None:
            raise self.publish_error
        if not may_commit():
            raise SessionLostError
        self.published.append(ranges)

    def abort(self, batch: str) -> None:
        self.aborted += 1


class FakeSpark:
    """A Spark session that only records which job groups are cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    @property
    def sparkContext(self) -> "FakeSpark":
        return self

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def createDataFrame(self, rows: list[Any], schema: object) -> object:
        return rows


class Ignored:
    """A shard manager that saves nothing, and a query with an id."""

    def __init__(self) -> None:
        self.runId = "run-1"

    def save_all(self) -> None:
        pass


class FakeCounts:
    """What the source counts, by shard."""

    def __init__(self, counts: dict[int, ReadCount]) -> None:
        self._counts = counts
        self._begun = False

    def begin_batch(self) -> None:
        self._begun = True

    def of(self, ranges: tuple[Range, ...]) -> dict[int, ReadCount]:
        assert self._begun, "the counts of the last attempt would count for this one"
        self._begun = False
        return {one.shard: self._counts.pop(one.shard) for one in ranges if one.shard in self._counts}


class FakeComputedRows:
    """How many rows executors elsewhere say that they have computed."""

    def __init__(self) -> None:
        self.computed = 0

    def counted(self, result: object) -> object:
        return result

    def number(self) -> int:
        return self.computed


class OpenShard:
    """One or more shards, open at `BEGIN`, and the query runner that reads them."""

    def __init__(
        self,
        folder: Path,
        *,
        on_failure: OnFailure | None = None,
        dead_letters: DeadLetters | None = None,
        clock: HandClock | None = None,
        shards: int = 1,
        spark_master: str = LOCAL_MASTER,
        roll: FileRoll | None = None,
        ledger: StateLedger | None = None,
    ) -> None:
        """With `ledger`, the pipeline is stateful."""
        self._shards = range(shards)
        self.clock = clock or HandClock(100.0)
        # The session outlives every test.
        membership = Membership(MembershipTimings(interval_s=5, timeout_s=10**9, margin_s=4))
        self.exchange = ExchangeFiles(folder)
        self.shared_state = SharedState(membership, self.exchange, self.clock)
        request = membership.poll(self.clock.now)
        assert isinstance(request, SendHeartbeat)
        membership.answered(request.number, tuple(self._shards), now=self.clock.now)
        for held in membership.shards:
            membership.opened(held.shard, epoch=held.epoch, position=BEGIN, saved=BEGIN)
        self.sink, self.spark = FakeSink(), FakeSpark()
        self._scratch, self._batches = folder / "query", 0
        (self._scratch / "offsets").mkdir(parents=True, exist_ok=True)
        sink: Any = self.sink
        spark: Any = self.spark
        ignored: Any = Ignored()
        transform: Any = lambda rows: rows  # noqa: E731
        self.query_runner = (QueryRunner if ledger is None else StatefulQueryRunner)(
            QuerySettings(
                config=worker_config(
                    "http://x",
                    ParquetSink(path="/unused", roll=roll),
                    batch_timeout_s=TIMEOUT_S,
                    on_failure=on_failure or OnFailure(),
                    spark_master=spark_master,
                ),
                consumer="w-0",
                address=SOURCE,
                exchange=self.exchange,
                scratch=self._scratch,
                journal=folder / "attempts.json",
                dead_letters=dead_letters,
                ledger=ledger,
            ),
            spark,
            self.shared_state,
            ignored,
            transform=transform,
            sink=sink,
        )
        self.query_runner._query = ignored
        self.counts: dict[int, ReadCount] = {}
        self.computed_rows = FakeComputedRows()
        counts: Any = FakeCounts(self.counts)
        rows: Any = self.computed_rows
        self.query_runner.counts, self.query_runner.rows = counts, rows

    @property
    def position(self) -> int | None:
        with self.shared_state.use() as (membership, _):
            return next((s.position for s in membership.shards), None)

    def deliver(self, count: ReadCount) -> Range:
        """Deliver a batch of ten log groups of which this was read; return the range that was published."""
        self.counts[0] = count
        rows: Any = None
        assert self.query_runner._deliver(rows, BatchPlan(1, (Range(0, BEGIN, BEGIN + 10),)))
        ((published,),) = self.sink.published
        assert self.exchange.positions().shards == {0: published.end}
        return published

    def batch(self, begin: int, end: int) -> None:
        """Let Spark call back with a batch of this range of each shard."""
        self._batches += 1
        plan = BatchPlan(self._batches, tuple(Range(shard, begin, end) for shard in self._shards))
        log = self._scratch / "offsets" / str(self._batches)
        log.write_text(f"v1\n{{}}\n{json.dumps(plan.to_json())}\n")
        rows: Any = None
        self.query_runner._on_batch(rows, self._batches)
