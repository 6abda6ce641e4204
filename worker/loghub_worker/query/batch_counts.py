"""The plan of a batch, what was read of its ranges, and the rows that were computed for the sink.

The plan is in Spark's log of the batch; the source has counted each range. The counts of a range are known
once any action has read it to its end; some actions end earlier, such as `head`, and a query need not read
all of its logs. That does no harm: `RangesRead` says what is consumed without counts.

Rows that executors elsewhere compute are counted where they are computed (`DataFrame.observe`), and Spark
returns the number when an action ends, so that the sink's files can be compared with it. Counting has a cost
for each row, so a worker whose tasks run in its pod does not count.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.source import Counts, CountsByRange

log = structlog.get_logger()


UNKNOWN = ReadCount(logs=0, bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangesRead:
    """The outcome of reading a batch: the `consumed` ranges are done once the sink has the batch, and nothing
    was read of the `failed` ranges."""

    consumed: tuple[Range, ...]
    failed: tuple[tuple[Range, Failure], ...]


def ranges_read(plan: BatchPlan, counts: Mapping[int, ReadCount], *, only_counted: bool) -> RangesRead:
    """The outcome of reading a batch, with the counts by shard. A range without counts counts as consumed,
    because a query need not read all of it, unless `only_counted`: then nothing is known of it, and it is
    read again."""
    consumed, failed = [], []
    for part in plan.ranges:
        if part.shard not in counts and only_counted:
            continue
        count = counts.get(part.shard, UNKNOWN)
        failure = count.failure
        if failure is None:
            consumed.append(consumed_range(part, count))
        else:
            cause = Cause.REJECTED if failure.rejected else Cause.UNAVAILABLE
            failed.append((part, Failure(cause=cause, reason=failure.reason, message=failure.message)))
    return RangesRead(consumed=tuple(consumed), failed=tuple(failed))


def consumed_range(shard_range: Range, count: ReadCount) -> Range:
    """The consumed range once the range was read. If the reading ended early, it ends there; if all of the
    range has expired, it ends before the oldest existing log group: between two incarnations of a logstore
    lie more cursors than batches could ever work through."""
    end = count.end or max(shard_range.end, count.oldest)
    return Range(shard_range.shard, shard_range.begin, end)


def plan_of_batch(scratch: Path, number: int) -> BatchPlan:
    """The plan of a batch from Spark's log of it: a version line, a line of Spark's own, then one line for
    each source."""
    return BatchPlan.from_json(json.loads(_lines(scratch, number)[-1]))


def watermark_of_batch(scratch: Path, number: int) -> int:
    """The watermark during a batch in milliseconds, from Spark's log of it; 0: there is none yet."""
    return int(json.loads(_lines(scratch, number)[1])["batchWatermarkMs"])


def _lines(scratch: Path, number: int) -> list[str]:
    return (scratch / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()


ROWS = "rows"
MAX_WAIT_MS = 10_000  # for Spark to hand over the results of the actions that have ended


class ComputedRows:
    """The rows of the batches of one query, one batch after the other."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._name = f"{ROWS}-{token_hex(8)}"  # another query may run in the session
        self._listener = _Listener(self._name)

    def counted(self, result: DataFrame) -> DataFrame:
        """The rows for the sink, which are counted where they are computed."""
        self._listener.listen_to(result.sparkSession)
        return result.observe(self._name, F.count(F.lit(1)).alias(ROWS))

    def number(self) -> int:
        """How many rows an action has computed since `counted`, at most; 0 if Spark does not say."""
        try:
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(MAX_WAIT_MS)
        except Py4JJavaError:  # a TimeoutException
            log.warning("Spark did not hand over how many rows it has computed", waited_ms=MAX_WAIT_MS)
        return self._listener.take()


class _Listener:
    """A QueryExecutionListener of one session at a time; Spark calls it in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._session = ""
        self._rows = 0
        self._lock = threading.Lock()

    def listen_to(self, session: SparkSession) -> None:
        """Forget what was heard, and listen to the actions of this session: each start of Spark's query has a
        new one."""
        self.take()
        its_id = session._jsparkSession.sessionUUID()
        if its_id != self._session:
            ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]
            session._jsparkSession.listenerManager().register(self)
            self._session = its_id

    def take(self) -> int:
        with self._lock:
            rows, self._rows = self._rows, 0
        return rows

    # Spark calls these under exactly these names.

    def onSuccess(self, action: str, execution: Any, nanoseconds: int) -> None:  # noqa: ARG002, N802
        rows = execution.observedMetrics().get(self._name)
        if rows.isDefined():
            with self._lock:
                self._rows = max(self._rows, rows.get().getLong(0))

    def onFailure(self, action: str, execution: Any, error: Any) -> None:  # noqa: N802
        """The batch fails, or the user's function has handled the error."""

    class Java:
        """For py4j."""

        implements = ["org.apache.spark.sql.util.QueryExecutionListener"]  # noqa: RUF012 - py4j's own form


class BatchCounts:
    """The counts of the batches of one query, one batch after the other."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._counts: Counts = {}

    def begin_query(self) -> int:
        """The id of the accumulator for a start of Spark's query. Running tasks of an earlier start have
        another one."""
        self._counts = {}
        return self._spark.sparkContext.accumulator(self._counts, CountsByRange()).aid

    def begin_batch(self) -> None:
        """Forget the counts of the batches before."""
        self._counts.clear()

    def of(self, ranges: tuple[Range, ...]) -> dict[int, ReadCount]:
        """The counts of these ranges since `begin_batch`, by shard."""
        # Another thread may add to the counts meanwhile, so they are not gone through.
        counts = {one.shard: self._counts.get(one) for one in ranges}
        return {shard: count for shard, count in counts.items() if count is not None}
