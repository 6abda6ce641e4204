"""Outages of the sink's target that last longer than ten minutes, in virtual time: a real query runner, whose
batches and pauses move a clock of the test."""

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_worker.query.streaming_query import MAX_FAILURES
from loghub_worker.sink.batch_sink import InvalidSinkError, SinkUnreachableError
from tests.loghub_worker.query.open_shard import BEGIN, OpenShard
from tests.support import HandClock

OUTAGE_S, BATCH_S = 900.0, 0.5
GROUPS, BATCHES_BEFORE, BATCHES = 10, 3, 8
END = BEGIN + GROUPS * BATCHES
SHARDS = 2


@dataclass(frozen=True, slots=True)
class Pause:
    """What a user sees while the runner waits for `seconds`."""

    seconds: float
    reason: str
    held: tuple[int, ...]


class VirtualStop(threading.Event):
    """The stop of a runner; to wait for it moves the clock."""

    def __init__(self, clock: HandClock, look: Callable[[float], None]) -> None:
        super().__init__()
        self._clock, self._look = clock, look

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if timeout:
            self._look(timeout)
        self._clock.now += timeout
        return self.is_set()


class Spark:
    """Plans batches from the positions of the shards, as Spark does with the worker's source. If a batch
    raises an error, its query ends with one of its own."""

    def __init__(self, folder: Path) -> None:
        self.shards = OpenShard(folder, shards=SHARDS)
        self.clock, self.sink, self.runner = self.shards.clock, self.shards.sink, self.shards.query_runner
        self.pauses: list[Pause] = []
        self.stop = VirtualStop(self.clock, self._look)
        self.start_error: Exception | None = None
        runner: Any = self.runner
        runner._stop, runner._start_query = self.stop, self._start

    def _look(self, seconds: float) -> None:
        with self.shards.shared_state.use() as (membership, _):
            held = tuple(one.shard for one in membership.shards)
        self.pauses.append(Pause(seconds, self.runner.error.reason, held))

    def _start(self) -> "Spark":
        if self.start_error is not None:
            raise self.start_error
        return self

    def awaitTermination(self) -> None:
        while not self.stop.is_set():
            position = self.shards.position
            assert position is not None
            if position == END:
                self.stop.set()
                return
            self.clock.now += BATCH_S
            try:
                self.shards.batch(position, position + GROUPS)
            except Exception as error:
                raise PySparkException(f"foreachBatch: {error}") from error

    def run(self) -> None:
        self.runner._run()

    @property
    def reason_of_the_end(self) -> str:
        assert isinstance(self.runner.failure, FatalError)
        return self.runner.failure.reason


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path)


def fail_for_a_while(spark: Spark, step: str, error: Exception) -> None:
    """From the batch after the first ones on, this step of the sink raises the error, for `OUTAGE_S`."""
    begun_s: list[float] = []

    def before_a_write() -> None:
        if len(spark.sink.published) == BATCHES_BEFORE and not begun_s:
            begun_s.append(spark.clock.now)
        is_away = bool(begun_s) and spark.clock.now < begun_s[0] + OUTAGE_S
        setattr(spark.sink, step, error if is_away else None)

    spark.sink.writing = before_a_write


@pytest.mark.parametrize("step", ["write_error", "publish_error"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), id="full"),
        pytest.param(NotADirectoryError(errno.ENOTDIR, "Not a directory"), id="not-mounted"),
        pytest.param(FileNotFoundError(errno.ENOENT, "the Delta table is gone"), id="table-gone"),
        pytest.param(OSError("no answer from the object storage"), id="bucket"),
        pytest.param(ConnectionError("Kafka at b:9092: TimeoutException"), id="kafka"),
        pytest.param(SinkUnreachableError("db: connection refused"), id="database"),
    ],
)
def test_a_worker_outlives_a_target_that_is_away_for_a_quarter_of_an_hour(
    spark: Spark, step: str, error: Exception
) -> None:
    fail_for_a_while(spark, step, error)
    spark.run()
    assert spark.runner.failure is None
    pauses = spark.pauses
    assert [one.seconds for one in pauses[:7]] == [1, 2, 4, 8, 16, 30, 30]
    assert {one.seconds for one in pauses[7:]} == {30}, "the worker continues half a minute later at most"
    assert sum(one.seconds for one in pauses) >= OUTAGE_S - BATCH_S * len(pauses)
    assert len(pauses) > 3 * MAX_FAILURES
    assert {one.reason for one in pauses} == {"SinkUnavailable"}
    assert {one.held for one in pauses} == {tuple(range(SHARDS))}, "it keeps its shards all the time"
    assert spark.sink.published == [
        tuple(Range(shard, begin, begin + GROUPS) for shard in range(SHARDS))
        for begin in range(BEGIN, END, GROUPS)
    ]
    assert spark.shards.exchange.positions().shards == dict.fromkeys(range(SHARDS), END)
    assert spark.shards.exchange.retries().shards == {}, "no shard is read alone because of it"
    assert spark.runner.error.reason == ""
    assert spark.runner.totals.batches == BATCHES


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(InvalidSinkError("a column is a number now"), "InvalidSink", id="invalid-sink"),
        pytest.param(OSError(errno.EMFILE, "Too many open files"), "SinkUnavailable", id="own-limit"),
    ],
)
def test_what_a_new_process_may_do_better_ends_the_worker(
    spark: Spark, error: Exception, reason: str
) -> None:
    fail_for_a_while(spark, "publish_error", error)
    spark.run()
    assert spark.reason_of_the_end == reason
    assert len(spark.pauses) == MAX_FAILURES - 1


def test_a_spark_that_cannot_start_a_query_ends_the_worker_also_after_an_outage(spark: Spark) -> None:
    """Only its own failures count, and the outage before does not hide them."""
    fail_for_a_while(spark, "publish_error", OSError(errno.ENOSPC, "No space left on device"))
    outage = 2 * MAX_FAILURES
    look = spark._look

    def look_and_break(seconds: float) -> None:
        look(seconds)
        if len(spark.pauses) == outage:
            spark.start_error = PySparkException("Cannot call methods on a stopped SparkContext")

    spark.stop._look = look_and_break
    spark.run()
    assert spark.reason_of_the_end == "PipelineFailed"
    assert len(spark.pauses) == outage + MAX_FAILURES - 1


def test_a_jvm_that_exits_in_an_outage_ends_the_worker_at_once(spark: Spark) -> None:
    spark.start_error = Py4JNetworkError("Answer from Java side is empty")
    spark.run()
    assert spark.reason_of_the_end == "SparkDriverExited"
    assert spark.pauses == []
