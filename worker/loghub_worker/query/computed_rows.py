"""Counts the rows that executors elsewhere compute for the sink, to compare them with what it finds.

Spark observes them where they are computed (`DataFrame.observe`), and hands the number over when an action
ends. It costs a little for each row, so a worker whose tasks run in its pod does without.
"""

import threading
from secrets import token_hex
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

log = structlog.get_logger()

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
