"""The data source and the query runner on a real Spark and a real service, in this process."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.wire.cursor import decode, encode
from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_consumer.exchange_files import ExchangeFiles, Positions
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.query.batch_counts import plan_of_batch
from loghub_worker.query.spark_session import register_sources
from loghub_worker.query.transform import SqlTransform, empty_logs
from loghub_worker.sink.logstore.sink import FORMAT
from tests.loghub_consumer.reading.options import source_options
from tests.loghub_worker.query.worker_threads import WorkerThreads
from tests.loghub_worker.support import GROUP, GUARD_S, LOGSTORE, Producer, prepare, worker_config
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOWER, UPPER = "1" * 32, "9" * 32  # hash keys of shard 0 and shard 1


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope FROM logs", "UNRESOLVED_COLUMN"),
        ("SELEKT 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM elsewhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DROP TABLE logs", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1; SELECT 2", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_invalid_sql_is_fatal_with_sparks_own_message(spark: SparkSession, sql: str, message: str) -> None:
    with pytest.raises(FatalError, match=message) as raised:
        SqlTransform(sql).check(empty_logs(spark))
    assert raised.value.reason == "InvalidPipeline"
    assert "JVM" not in raised.value.message


def test_a_setting_of_sql_without_a_valid_value_is_fatal_and_named(spark: SparkSession) -> None:
    setting = "spark.sql.shuffle.partitions"
    assert spark.sparkContext._jsc is not None
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.getOption(setting)
    conf.set(setting, "many")
    try:
        with pytest.raises(FatalError, match=f"'many' in the config \"{setting}\"") as raised:
            register_sources(spark.newSession())
    finally:
        conf.set(setting, before.get()) if before.isDefined() else conf.remove(setting)
    assert raised.value.reason == "SparkNotStarted"


class Reading:
    """A query over the worker's format whose positions the test writes, as a driver would."""

    def __init__(self, spark: SparkSession, service: ServiceProcess, folder: Path) -> None:
        folder.mkdir()
        self.exchange = ExchangeFiles(folder)
        self.scratch = folder / "scratch"
        self.rows: Counter[tuple[int, int, int]] = Counter()
        self.partitions: list[int] = []
        self._lock = threading.Lock()
        self._positions: dict[int, int] = {}
        self._version = 0
        self.set_positions({})
        options = source_options(service.endpoint, service.credentials_dir, folder, max_log_groups=3, cores=2)
        rows = spark.readStream.format(FORMAT).option("settings", options.to_option()).load()
        writer = rows.writeStream.foreachBatch(self._on_batch).trigger(processingTime="50 milliseconds")
        self.query = writer.option("checkpointLocation", self.scratch.as_uri()).start()

    def set_positions(self, positions: dict[int, int]) -> int:
        """Write these positions and return their version."""
        with self._lock:
            self._positions = dict(positions)
            return self._write()

    def _write(self) -> int:
        self._version += 1
        self.exchange.write_positions(Positions(version=self._version, shards=self._positions))
        return self._version

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        plan = plan_of_batch(self.scratch, number)
        table = rows.select("__shard__", "__cursor__", "__index__").toArrow()
        with self._lock:
            self.partitions.append(rows.rdd.getNumPartitions())
            self.rows.update(tuple(row.values()) for row in table.to_pylist())
            for shard_range in plan.ranges:
                if self._positions.get(shard_range.shard) == shard_range.begin:
                    self._positions[shard_range.shard] = shard_range.end
            self._write()

    def wait_for(self, expected: Counter[tuple[int, int, int]]) -> None:
        def is_read() -> bool:
            assert self.query.isActive, self.query.exception()
            return self.rows.total() >= expected.total()

        wait_until(is_read, f"{expected.total()} rows", guard_s=GUARD_S)
        assert self.rows == expected

    def wait_version(self, version: int) -> None:
        wait_until(
            lambda: self.exchange.report().version >= version, "the source to plan by it", guard_s=GUARD_S
        )


def rows_of(shard: int, begin: int, end: int) -> Counter[tuple[int, int, int]]:
    return Counter((shard, cursor, index) for cursor in range(begin, end) for index in range(10))


def test_shards_are_added_removed_and_added_again_while_the_query_runs(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=2)
    producer = Producer(client)
    begins = {shard: decode(client.get_cursor(LOGSTORE, shard, "begin")) for shard in (0, 1)}
    producer.put(groups=8, hash_key=LOWER)
    producer.put(groups=8, hash_key=UPPER)
    reading = Reading(spark, service, tmp_path / "reading")
    try:
        expected = rows_of(0, begins[0], begins[0] + 8)
        reading.set_positions({0: begins[0]})
        reading.wait_for(expected)

        reading.set_positions({0: begins[0] + 8, 1: begins[1] + 2})
        expected += rows_of(1, begins[1] + 2, begins[1] + 8)
        reading.wait_for(expected)

        reading.wait_version(reading.set_positions({1: begins[1] + 8}))
        producer.put(groups=4, hash_key=LOWER)
        producer.put(groups=1, hash_key=UPPER)
        expected += rows_of(1, begins[1] + 8, begins[1] + 9)
        reading.wait_for(expected)

        # Added again after another consumer delivered two of its groups; then moved back on purpose.
        reading.set_positions({0: begins[0] + 10, 1: begins[1] + 9})
        expected += rows_of(0, begins[0] + 10, begins[0] + 12)
        reading.wait_for(expected)
        reading.set_positions({0: begins[0] + 11, 1: begins[1] + 9})
        expected += rows_of(0, begins[0] + 11, begins[0] + 12)
        reading.wait_for(expected)
        assert max(reading.partitions) <= 2
    finally:
        reading.query.stop()


class StubbornSink:
    """A sink that fails the first time, blocks the second time, and then takes the batch."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.blocked = threading.Event()
        self.attempts = 0
        self.aborted = 0
        self.published: list[tuple[Range, ...]] = []

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Nobody else uses this sink."""

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin,
    ) -> int:
        confirm()
        return checkpoint

    def write(self, result: DataFrame, batch: str) -> int:
        self.attempts += 1
        if self.attempts == 1:
            raise OSError(28, "No space left on device")
        rows = result.count()
        self.blocked.set()
        assert self.go_on.wait(GUARD_S)
        return rows

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        assert may_commit()
        self.published.append(ranges)

    def abort(self, batch: str) -> None:
        self.aborted += 1

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        pass


class Heartbeats:
    """Those of a worker that the service has answered."""

    def __init__(self, threads: WorkerThreads) -> None:
        self._answered = threading.Event()
        self._membership = threads.shared_state._membership
        self._take = self._membership.answered
        self._membership.answered = self._note  # type: ignore[method-assign]

    def _note(self, *answer: Any, **more: Any) -> None:
        self._take(*answer, **more)
        self._answered.set()

    def wait_for_next(self) -> None:
        """One that was sent after the call."""
        for _ in range(2):
            self._answered.clear()
            assert self._answered.wait(GUARD_S), "no heartbeat"


def checkpoints(client: HttpLogHub) -> dict[int, int]:
    return {c.shard: decode(c.cursor) for c in client.get_checkpoints(LOGSTORE, GROUP) if c.cursor}


def test_checkpoint_follows_the_sink_and_a_blocked_batch_stops_no_heartbeat(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """A failing sink leaves the checkpoint where it was. A blocked one stops no heartbeat: the consumer keeps
    the shard."""
    client = prepare(service, shards=1)
    producer = Producer(client)
    producer.put(groups=5)
    begin = decode(client.get_cursor(LOGSTORE, 0, "begin"))
    sink: Any = StubbornSink()
    config = worker_config(service.endpoint, ParquetSink(path="/unused"))
    threads = WorkerThreads(spark, config, sink, service.credentials_dir, tmp_path / "state")
    heartbeats = Heartbeats(threads)
    threads.start()
    try:
        wait_until(sink.blocked.is_set, "the second attempt", guard_s=GUARD_S)
        assert sink.aborted == 1
        assert threads.query_runner.error.reason == "SinkUnavailable"
        assert "No space left" in threads.query_runner.error.message
        for _ in range(5):
            heartbeats.wait_for_next()
            consumers = client.group_status(LOGSTORE, GROUP).consumers
            assert [(c.name, c.held) for c in consumers] == [("w-0", (0,))]
            assert checkpoints(client) == {0: begin}
        sink.go_on.set()
        wait_until(lambda: checkpoints(client) == {0: begin + 5}, "the checkpoint", guard_s=GUARD_S)
        assert sink.published == [(Range(0, begin, begin + 5),)]
        totals = threads.query_runner.totals  # counts a batch after the sink has it
        wait_until(lambda: totals.rows == producer.sent.total(), "the rows to be counted", guard_s=GUARD_S)
        assert client.get_checkpoints(LOGSTORE, GROUP, 0)[0].cursor == encode(begin + 5)
        assert 100 < threads.exchange.positions().group_sizes[0].bytes < 100_000, "for the next plan"
    finally:
        sink.go_on.set()
        threads.stop()
