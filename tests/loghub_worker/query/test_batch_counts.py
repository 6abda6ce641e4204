"""What the processes that read have counted reaches the driver, whatever is done with the rows."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.wire.cursor import decode
from loghub_consumer.batch_plan import GroupSize, Range
from loghub_consumer.exchange_files import ExchangeFiles, Positions
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.query.batch_counts import BatchCounts, ComputedRows
from loghub_worker.sink.logstore.sink import FORMAT
from loghub_worker.source import SourceOptions
from tests.loghub_consumer.reading.options import source_options
from tests.loghub_worker.query.poison import LOWER, UPPER
from tests.loghub_worker.support import GUARD_S, LOGSTORE, Producer, prepare
from tests.support import ServiceProcess, running_service

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOGS = {0: 20, 1: 30}  # in each shard, ten in a log group
ALL = sum(LOGS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of two shards, with one task for each, while Spark waits for the end of their batch."""

    rows: DataFrame
    counts: BatchCounts
    ranges: tuple[Range, ...]

    def logs(self, counts: BatchCounts | None = None) -> dict[int, int]:
        """How many logs were counted, by shard."""
        counted = (counts or self.counts).of(self.ranges)
        assert all(count == ReadCount(logs=count.logs, bytes=count.bytes) for count in counted.values())
        return {shard: count.logs for shard, count in counted.items()}


def filled_shards(service: ServiceProcess) -> tuple[Range, ...]:
    client = prepare(service, shards=len(LOGS))
    producer = Producer(client)
    for shard, hash_key in enumerate((LOWER, UPPER)):
        producer.put(groups=LOGS[shard] // 10, hash_key=hash_key)

    def cursor(shard: int, side: str) -> int:
        return decode(client.get_cursor(LOGSTORE, shard, side))

    return tuple(Range(shard, cursor(shard, "begin"), cursor(shard, "end")) for shard in LOGS)


def options_for(service: ServiceProcess, folder: Path, ranges: tuple[Range, ...]) -> SourceOptions:
    """Of a source that reads these ranges in one batch."""
    ExchangeFiles(folder).write_positions(
        Positions(
            version=1,
            shards={one.shard: one.begin for one in ranges},
            group_sizes={one.shard: GroupSize(bytes=1, logs=1) for one in ranges},
        )
    )
    return source_options(service.endpoint, service.credentials_dir, folder, cores=len(ranges))


@pytest.fixture(scope="module")
def open_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder, counts = tmp_path_factory.mktemp("batch"), BatchCounts(spark)
    given: queue.Queue[DataFrame] = queue.Queue()
    ended = threading.Event()

    def on_batch(rows: DataFrame, _: int) -> None:
        if rows.isEmpty():  # the first batch, if the ends of the shards were not known in time
            return
        given.put(rows)
        ended.wait(GUARD_S)

    with running_service(folder / "service") as service:
        ranges = filled_shards(service)
        options = replace(options_for(service, folder, ranges), counts=counts.begin_query())
        rows = spark.readStream.format(FORMAT).option("settings", options.to_option()).load()
        writer = rows.writeStream.foreachBatch(on_batch).trigger(processingTime="0 seconds")
        query = writer.option("checkpointLocation", (folder / "query").as_uri()).start()
        try:
            yield Batch(rows=given.get(timeout=GUARD_S), counts=counts, ranges=ranges)
        finally:
            ended.set()
            query.stop()


@pytest.fixture
def batch(open_batch: Batch) -> Batch:
    open_batch.counts.begin_batch()
    return open_batch


def persisted(rows: DataFrame) -> None:
    kept = rows.persist()
    try:
        assert (kept.count(), kept.count()) == (ALL, ALL)
    finally:
        kept.unpersist()


def with_a_look_before(rows: DataFrame) -> None:
    assert len(rows.head(1)) == 1, "which ends before the shard does"
    rows.toArrow()


def joined_with_itself(rows: DataFrame) -> None:
    pairs = sum(logs * logs for logs in LOGS.values())
    shards = rows.select("__shard__")
    assert shards.alias("a").join(shards.alias("b"), "__shard__").union(shards).count() == pairs + ALL


@pytest.mark.parametrize(
    "action",
    [
        lambda rows: rows.toArrow(),
        lambda rows: rows.groupBy("__shard__").count().collect(),
        lambda rows: rows.select(F.udf(abs, "int")("__shard__")).collect(),
        lambda rows: rows.rdd.count(),
        persisted,
        with_a_look_before,
        joined_with_itself,
    ],
)
def test_counts_arrive_once_whatever_action_computes_the_rows(
    batch: Batch, action: Callable[[DataFrame], object]
) -> None:
    action(batch.rows)
    assert batch.logs() == LOGS
    batch.counts.begin_batch()
    assert batch.logs() == {}


def test_a_query_that_reads_nothing_or_not_all_has_no_counts(batch: Batch) -> None:
    batch.rows.where("false").collect()
    assert len(batch.rows.head(3)) == 3
    assert batch.logs() == {}


def test_a_task_that_fails_has_no_counts(batch: Batch) -> None:
    with pytest.raises(PySparkException, match="no such thing"):
        batch.rows.where("if(__shard__ = 1, raise_error('no such thing'), true)").collect()
    assert 1 not in batch.logs()


def test_counts_are_those_of_one_query(batch: Batch, spark: SparkSession, tmp_path: Path) -> None:
    other = BatchCounts(spark)
    other.begin_query()
    batch.rows.where("__shard__ = 0").write.parquet((tmp_path / "rows").as_uri())
    assert (batch.logs(), batch.logs(other)) == (LOGS, {})


def test_rows_that_are_computed_for_the_sink_are_counted(spark: SparkSession) -> None:
    rows, other = ComputedRows(spark), ComputedRows(spark)
    result = rows.counted(spark.range(70).where("id >= 20"))
    result.where("id >= 30").write.format("noop").mode("append").save()
    other.counted(spark.range(3)).collect()
    assert (rows.number(), other.number()) == (50, 3)
    assert rows.number() == 0
