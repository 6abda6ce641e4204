"""The source and the job on a real Spark and a real service, in this process."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.client.http import HttpLogHub
from loghub.clock import SystemClock
from loghub.wire.cursor import decode, encode
from loghub.worker_contract import ParquetSink
from loghub_worker.batch_plan import Range
from loghub_worker.exchange_files import Handover, Positions
from loghub_worker.log_service import Address, connect
from loghub_worker.membership.heartbeat import HeartbeatThread
from loghub_worker.membership.shard_manager import ShardManager
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Membership, MembershipTimings
from loghub_worker.query.spark_session import FatalError
from loghub_worker.query.streaming_query import Job, plan_of_batch
from loghub_worker.query.transform import SqlTransform, empty_logs
from loghub_worker.sink.commit_log import Incarnation
from loghub_worker.sink.logstore import FORMAT
from loghub_worker.source.datasource import Options
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    SQL,
    Producer,
    prepared,
    worker_config,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOWER, UPPER = "1" * 32, "9" * 32  # hash keys of shard 0 and shard 1


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT nope FROM logs", "UNRESOLVED_COLUMN"),
        ("SELEKT 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM elsewhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DROP TABLE logs", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1; SELECT 2", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_wrong_sql_is_fatal_with_sparks_own_words(spark: SparkSession, sql: str, says: str) -> None:
    with pytest.raises(FatalError, match=says) as raised:
        SqlTransform(sql).check(empty_logs(spark))
    assert raised.value.reason == "InvalidPipeline"
    assert "JVM" not in raised.value.message


class Reading:
    """A query over `format("loghub")` whose positions the test writes, as a driver would."""

    def __init__(self, spark: SparkSession, service: ServiceProcess, folder: Path) -> None:
        folder.mkdir()
        self.handover = Handover(folder)
        self.scratch = folder / "scratch"
        self.seen: Counter[tuple[int, int, int]] = Counter()
        self.parts: list[int] = []
        self._lock = threading.Lock()
        self._positions: dict[int, int] = {}
        self._version = 0
        self.place({})
        options = Options(
            endpoint=service.endpoint,
            project=PROJECT,
            logstore=LOGSTORE,
            credentials_dir=str(service.credentials_dir),
            handover=str(folder),
            fetch_interval_s=0.1,
            max_log_groups=3,
            max_bytes=1 << 30,
            cores=2,
        )
        rows = spark.readStream.format(FORMAT).option("settings", options.to_option()).load()
        writer = rows.writeStream.foreachBatch(self._on_batch).trigger(processingTime="50 milliseconds")
        self.query = writer.option("checkpointLocation", self.scratch.as_uri()).start()

    def place(self, positions: dict[int, int]) -> int:
        """These shards at these cursors; the version under which the source finds them."""
        with self._lock:
            self._positions = dict(positions)
            return self._write()

    def _write(self) -> int:
        self._version += 1
        self.handover.write_positions(Positions(version=self._version, shards=self._positions))
        return self._version

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        plan = plan_of_batch(self.scratch, number)
        table = rows.select("__shard__", "__cursor__", "__index__").toArrow()
        with self._lock:
            self.parts.append(rows.rdd.getNumPartitions())
            self.seen.update(tuple(row.values()) for row in table.to_pylist())
            for piece in plan.ranges:
                if self._positions.get(piece.shard) == piece.begin:
                    self._positions[piece.shard] = piece.end
            self._write()

    def wait_for(self, wanted: Counter[tuple[int, int, int]]) -> None:
        def there() -> bool:
            assert self.query.isActive, self.query.exception()
            return self.seen.total() >= wanted.total()

        wait_until(there, f"{wanted.total()} rows", guard_s=GUARD_S)
        assert self.seen == wanted

    def wait_version(self, version: int) -> None:
        wait_until(lambda: self.handover.report().version >= version, "the source to see it", guard_s=GUARD_S)


def rows_of(shard: int, begin: int, end: int) -> Counter[tuple[int, int, int]]:
    return Counter((shard, cursor, index) for cursor in range(begin, end) for index in range(10))


def test_shards_come_go_and_come_back_while_the_query_runs(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    hub = prepared(service, shards=2)
    producer = Producer(hub)
    begins = {shard: decode(hub.get_cursor(LOGSTORE, shard, "begin")) for shard in (0, 1)}
    producer.put(groups=8, hash_key=LOWER)
    producer.put(groups=8, hash_key=UPPER)
    reading = Reading(spark, service, tmp_path / "reading")
    try:
        wanted = rows_of(0, begins[0], begins[0] + 8)
        reading.place({0: begins[0]})
        reading.wait_for(wanted)

        reading.place({0: begins[0] + 8, 1: begins[1] + 2})
        wanted += rows_of(1, begins[1] + 2, begins[1] + 8)
        reading.wait_for(wanted)

        reading.wait_version(reading.place({1: begins[1] + 8}))
        producer.put(groups=4, hash_key=LOWER)
        producer.put(groups=1, hash_key=UPPER)
        wanted += rows_of(1, begins[1] + 8, begins[1] + 9)
        reading.wait_for(wanted)

        # Back, after another consumer took two of its groups; then moved back on purpose.
        reading.place({0: begins[0] + 10, 1: begins[1] + 9})
        wanted += rows_of(0, begins[0] + 10, begins[0] + 12)
        reading.wait_for(wanted)
        reading.place({0: begins[0] + 11, 1: begins[1] + 9})
        wanted += rows_of(0, begins[0] + 11, begins[0] + 12)
        reading.wait_for(wanted)
        assert max(reading.parts) <= 2
    finally:
        reading.query.stop()


class StubbornSink:
    """Fails the first time, is blocked the second time, and takes the batch then."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.blocked = threading.Event()
        self.tries = 0
        self.aborted = 0
        self.published: list[tuple[Range, ...]] = []

    def resume(
        self, shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        confirm()
        return checkpoint

    def write(self, result: DataFrame, batch: str) -> int:
        self.tries += 1
        if self.tries == 1:
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


def checkpoints(hub: HttpLogHub) -> dict[int, int]:
    return {c.shard: decode(c.cursor) for c in hub.get_checkpoints(LOGSTORE, GROUP) if c.cursor}


def test_checkpoint_only_after_the_sink_and_beats_beside_a_blocked_batch(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """A failing sink leaves the checkpoint where it was; a blocked one stops no beat: the shard
    stays here for several timeouts of the group."""
    timeout_s = 3
    hub = prepared(service, shards=1, timeout_s=timeout_s)
    producer = Producer(hub)
    producer.put(groups=5)
    begin = decode(hub.get_cursor(LOGSTORE, 0, "begin"))
    sink: Any = StubbornSink()
    config = worker_config(service.endpoint, ParquetSink(path="/unused"), timeout_s=timeout_s)
    parts = Parts(spark, config, sink, service.credentials_dir, tmp_path / "state")
    parts.start()
    try:
        wait_until(sink.blocked.is_set, "the second try", guard_s=GUARD_S)
        assert sink.aborted == 1
        assert parts.job.trouble.reason == "SinkUnavailable"
        assert "No space left" in parts.job.trouble.message
        began_s = SystemClock().monotonic_s()
        while SystemClock().monotonic_s() < began_s + 2.5 * timeout_s:
            consumers = hub.group_status(LOGSTORE, GROUP).consumers
            assert [(c.name, c.held) for c in consumers] == [("w-0", (0,))]
            assert checkpoints(hub) == {0: begin}
        sink.go_on.set()
        wait_until(lambda: checkpoints(hub) == {0: begin + 5}, "the checkpoint", guard_s=GUARD_S)
        assert sink.published == [(Range(0, begin, begin + 5),)]
        assert parts.job.tally.rows == producer.sent.total()
        assert hub.get_checkpoints(LOGSTORE, GROUP, 0)[0].cursor == encode(begin + 5)
        assert 100 < parts.handover.positions().group_bytes[0] < 100_000, "for the next plan"
    finally:
        sink.go_on.set()
        parts.stop()


class Parts:
    """A worker's threads around a sink of the test's."""

    def __init__(
        self, spark: SparkSession, config: Any, sink: Any, credentials_dir: Path, folder: Path
    ) -> None:
        folder.mkdir()
        handover, clock = Handover(folder), SystemClock()
        self.handover = handover
        address = Address(endpoint=config.endpoint, project=PROJECT, credentials_dir=str(credentials_dir))
        names = {"logstore": LOGSTORE, "group": GROUP, "name": "w-0"}
        terms = MembershipTimings(interval_s=0.3, timeout_s=config.timeout_s, margin_s=0.5)
        session = SharedState(Membership(terms), handover, clock)
        with session.use():
            pass
        self.membership = HeartbeatThread(session, connect(address), **names)
        self.keeper = ShardManager(session, connect(address), sink, handover, clock, initial="begin", **names)
        self.job = Job(
            config,
            spark,
            session=session,
            keeper=self.keeper,
            transform=SqlTransform(SQL),
            sink=sink,
            handover=handover,
            clock=clock,
            credentials_dir=str(credentials_dir),
            scratch=folder / "query",
            name="w-0",
        )

    def start(self) -> None:
        for part in (self.job, self.keeper, self.membership):
            part.start()

    def stop(self) -> None:
        for part in (self.membership, self.keeper, self.job):
            part.stop()
            assert part.failure is None
