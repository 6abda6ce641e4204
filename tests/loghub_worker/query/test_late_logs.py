"""What comes late at a stateful pipeline, on a real Spark with each of its stores, and a real service.

`tests/loghub_worker/test_level_plan.py` has the whole table of rates, backlogs and times, in a simulation."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.loghub_worker.query.stateful_stage import LOWER, UPPER, Stage
from tests.loghub_worker.support import GUARD_S, LOGSTORE, prepare
from tests.support import running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MINUTES, BUSY_LOGS = 4, 100  # of the backlog, and those of the busy shard in each of them
BATCH_LOGS = 150
FUTURE = 4_000_000_000  # of a device with a wrong clock


@contextmanager
def keeping_state_in(spark: SparkSession, provider: str | None) -> Iterator[None]:
    if provider is not None:
        spark.conf.set(PROVIDER, provider)
    try:
        yield
    finally:
        spark.conf.unset(PROVIDER)


def within_a_minute(logs: DataFrame) -> DataFrame:
    rows = logs.select("__time__", logs["contents"]["id"].alias("id"), "__shard__")
    return rows.withWatermark("__time__", "1 minute").dropDuplicatesWithinWatermark(["id"])


class Sender:
    """Sends logs of which each has an id of its own."""

    def __init__(self, client: HttpLogHub) -> None:
        self._client = client
        self.sent: Counter[str] = Counter()

    def put(self, key: str, *times_s: float) -> None:
        """A log group with a log of each time."""
        ids = [f"id-{self.sent.total() + n}" for n in range(len(times_s))]
        logs = tuple(
            Log(time=int(time_s), contents=(("id", one),)) for time_s, one in zip(times_s, ids, strict=True)
        )
        self._client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)), hash_key=key)
        self.sent.update(ids)


@pytest.mark.parametrize(
    "provider",
    [pytest.param(ROCKSDB, id="rocksdb"), pytest.param(None, id="files", marks=pytest.mark.deep)],
)
def test_a_pipeline_that_is_behind_loses_no_log_and_names_those_that_are_late(
    spark: SparkSession, tmp_path: Path, provider: str | None
) -> None:
    """One shard has fifty times the logs of the other. Some say that they are of the future."""
    with running_service(tmp_path / "service") as service, keeping_state_in(spark, provider):
        sender = Sender(prepare(service, shards=2))
        began_s = time.time() - 2 * 3600
        for minute in range(MINUTES):
            at_s = began_s + 60 * minute
            sender.put(UPPER, at_s, FUTURE if minute in (1, 3) else at_s)
            for part in range(5):
                sender.put(LOWER, *[at_s + 12 * part] * (BUSY_LOGS // 5))
        stage = Stage(spark, service, tmp_path, max_log_groups=100_000, max_logs=BATCH_LOGS)
        stage.function = within_a_minute
        threads = stage.start()
        stage.wait_for(sender.sent)
        stage.wait_until_ended()
        threads.stop()  # a batch counts a moment after its rows are in the sink
        totals = threads.query_runner.totals
        assert totals.batches >= MINUTES * BUSY_LOGS / BATCH_LOGS
        assert totals.ahead == 2
        figures = stage.ledger.figures
        assert figures is not None
        assert (figures.late_rows, figures.is_ahead) == (0, False)
        assert figures.bytes > figures.rows > 0
        # A restart continues with the same watermark, and what lies behind it is named, once.
        threads = stage.start()
        try:
            expected = sender.sent.copy()
            sender.put(UPPER, *[began_s] * 7)
            wait_until(lambda: stage.ledger.figures.late_rows == 7, "late rows", guard_s=GUARD_S)  # type: ignore[union-attr]
            last = Sender(sender._client)
            last.sent = sender.sent.copy()
            last.put(LOWER, time.time())
            stage.wait_for(expected + (last.sent - sender.sent))
        finally:
            threads.stop()
        assert stage.ledger.figures is not None
        assert stage.ledger.figures.late_rows == 7
