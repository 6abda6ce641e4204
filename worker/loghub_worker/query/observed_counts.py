"""Takes what the source counted out of the rows of a batch.

Spark observes the column of counts while it computes the rows for the sink (`DataFrame.observe`), and hands
the result over when an action ends. Every action of a batch is listened to, since the user's function may
have some of its own, such as `head`, which end before everything is read. So the counts of a range are known
once any action has read it to its end.

Two things are unknown here, and do no harm: the counts of a range that no action reads to its end, and those
of a function that works on RDDs, which Spark does not observe.
"""

import threading
from secrets import token_hex
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_worker.batch_plan import Range
from loghub_worker.source.read_counts import COUNTS, ReadCount, counts_in

log = structlog.get_logger()

ROWS = "rows"
MAX_WAIT_MS = 10_000  # for Spark to hand over the results of the actions that have ended


class ObservedCounts:
    """The counts of the batches of one query, one batch after the other."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.rows = 0  # of the last batch, if they were counted
        self._name = f"counts-{token_hex(8)}"  # another query may run in the session
        self._rows_name = f"{ROWS}-{self._name}"
        self._listener = _Listener(self._name, self._rows_name)

    def logs_of(self, rows: DataFrame) -> DataFrame:
        """The logs among the rows of a batch, whose counts are observed."""
        self._listener.listen_to(rows.sparkSession)
        observed = rows.observe(self._name, F.collect_set(COUNTS).alias(COUNTS))
        return observed.where(F.col(COUNTS).isNull()).drop(COUNTS)

    def rows_of(self, result: DataFrame) -> DataFrame:
        """The rows for the sink, which are counted where they are computed."""
        return result.observe(self._rows_name, F.count(F.lit(1)).alias(ROWS))

    def counts(self, ranges: tuple[Range, ...]) -> dict[int, ReadCount]:
        """What was counted of these ranges since `logs_of`, by shard."""
        try:
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(MAX_WAIT_MS)
        except Py4JJavaError:  # a TimeoutException
            log.warning("Spark did not hand over what the source has counted", waited_ms=MAX_WAIT_MS)
        counts, self.rows = self._listener.take()
        return {one.shard: counts[one] for one in ranges if one in counts}


class _Listener:
    """A QueryExecutionListener of one session at a time; Spark calls it in a thread of its own."""

    def __init__(self, name: str, rows_name: str) -> None:
        self._name = name
        self._rows_name = rows_name
        self._session = ""
        self._texts: list[str] = []
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

    def take(self) -> tuple[dict[Range, ReadCount], int]:
        with self._lock:
            texts, self._texts = self._texts, []
            rows, self._rows = self._rows, 0
        return counts_in(texts), rows

    # Spark calls these under exactly these names.

    def onSuccess(self, action: str, execution: Any, nanoseconds: int) -> None:  # noqa: ARG002, N802
        metrics = execution.observedMetrics()
        counts, rows = metrics.get(self._name), metrics.get(self._rows_name)
        if counts.isDefined():
            texts = counts.get().getSeq(0)
            with self._lock:
                self._texts += [texts.apply(index) for index in range(texts.size())]
        if rows.isDefined():
            with self._lock:
                self._rows = max(self._rows, rows.get().getLong(0))

    def onFailure(self, action: str, execution: Any, error: Any) -> None:  # noqa: N802
        """The batch fails, or the user's function has handled the error."""

    class Java:
        """For py4j."""

        implements = ["org.apache.spark.sql.util.QueryExecutionListener"]  # noqa: RUF012 - py4j's own form
