"""The data source on a real Spark and a real service: what is written is read, once, whatever happens."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.loghub_spark.support import (
    COPY,
    IDS,
    LOGSTORE,
    LOWER,
    UPPER,
    Writes,
    kill_all,
    options_of,
    start_copy,
)
from tests.support import ROOT, ServiceProcess, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

GUARD_S = 420.0
RECENT = "spark.sql.streaming.numRecentProgressUpdates"


@pytest.fixture
def queries() -> Iterator[list[StreamingQuery]]:
    """Queries that end with the test."""
    started: list[StreamingQuery] = []
    yield started
    for query in started:
        query.stop()


def stream(session: SparkSession, service: ServiceProcess, **more: Any) -> DataFrame:
    given = {"startingOffsets": "earliest", "fetchIntervalSeconds": "0.1"} | more
    return session.readStream.format("loghub").options(**options_of(service, **given)).schema(IDS).load()


def batch(session: SparkSession, service: ServiceProcess, **more: Any) -> DataFrame:
    return session.read.format("loghub").options(**options_of(service, **more)).load()


def ids_of(rows: DataFrame) -> Counter[str]:
    return Counter(row["id"] for row in rows.select("id").collect())


def copied(session: SparkSession, folder: Path) -> Counter[str]:
    """What the files have of which Spark's sink says that they are complete."""
    return ids_of(session.read.parquet((folder / "rows").as_uri()))


def wait_copied(session: SparkSession, folder: Path, query: StreamingQuery, sent: Counter[str]) -> None:
    def is_copied() -> bool:
        assert query.isActive, query.exception()
        return (folder / "rows" / "_spark_metadata" / "0").exists() and (
            copied(session, folder).total() >= sent.total()
        )

    wait_until(is_copied, f"{sent.total()} rows", guard_s=GUARD_S)
    assert copied(session, folder) == sent


def test_a_batch_has_each_log_once_on_all_cores(
    session: SparkSession, service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(15, hash_key=LOWER)
    writes.put(5, hash_key=UPPER)
    rows = batch(session, service, minPartitions=5)
    assert rows.rdd.getNumPartitions() >= 5
    assert ids_of(rows.select(F.col("contents")["id"].alias("id"))) == writes.sent
    typed = session.read.format("loghub").options(**options_of(service)).schema("id INT, odd INT").load()
    (sums,) = typed.agg(F.sum("id"), F.count("odd"), F.count("*")).collect()
    assert tuple(sums) == (sum(range(40)), 0, 40)
    (row,) = batch(session, service).where("contents.id = '0'").collect()
    assert isinstance(row, Row)
    assert row["contents"] == {"id": "0", "pad": "", "odd": "a"}
    assert (row["__shard__"], row["__index__"], row["__time_ns__"]) == (0, 0, None)


@pytest.mark.deep
def test_a_stream_goes_on_from_its_checkpoint_over_splits_and_merges(
    session: SparkSession,
    service: ServiceProcess,
    client: HttpLogHub,
    queries: list[StreamingQuery],
    tmp_path: Path,
) -> None:
    writes = Writes(client)
    writes.put(20)
    queries.append(start_copy(stream(session, service, maxOffsetsPerTrigger=7, inOrder=True), tmp_path))
    wait_copied(session, tmp_path, queries[-1], writes.sent)
    client.split_shard(LOGSTORE, 0)
    writes.put(20, hash_key=LOWER)
    wait_copied(session, tmp_path, queries[-1], writes.sent)
    queries[-1].stop()
    first = min((s for s in client.list_shards(LOGSTORE) if not s.read_only), key=lambda s: s.begin_key)
    client.merge_shards(LOGSTORE, first.shard)
    writes.put(20, hash_key=LOWER)
    rest = start_copy(stream(session, service, maxOffsetsPerTrigger=7), tmp_path, available_now=True)
    queries.append(rest)
    assert rest.awaitTermination(int(GUARD_S))
    assert copied(session, tmp_path) == writes.sent


def test_available_now_copies_keeps_the_limits_ends_and_reports_the_latest_offset(
    session: SparkSession,
    service: ServiceProcess,
    client: HttpLogHub,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    name, before = RECENT, session.conf.get(RECENT)
    request.addfinalizer(lambda: session.conf.set(name, before))
    session.conf.set(name, 100)
    writes = Writes(client)
    writes.put(30)
    writer = stream(session, service, maxLogsPerTrigger=40).writeStream.format("loghub")
    writer = writer.options(**options_of(service, logstore=COPY)).trigger(availableNow=True)
    query = writer.option("checkpointLocation", (tmp_path / "checkpoint").as_uri()).start()
    assert query.awaitTermination(int(GUARD_S))
    result = batch(session, service, logstore=COPY).select(F.col("contents")["id"].alias("id"))
    assert ids_of(result) == writes.sent
    first, *_, last = query.recentProgress
    # A limited batch ends at one time of receipt in all shards, so slow writes leave some of its room.
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(rows) <= 40
    assert sum(rows) == 60
    latest = [json.loads(one["sources"][0]["latestOffset"])["shards"] for one in (first, last)]
    end = json.loads(last["sources"][0]["endOffset"])["shards"]
    assert latest == [end, end]


@pytest.mark.deep
def test_a_driver_that_is_killed_in_a_batch_loses_and_repeats_nothing(
    session: SparkSession,
    service: ServiceProcess,
    client: HttpLogHub,
    queries: list[StreamingQuery],
    tmp_path: Path,
) -> None:
    writes = Writes(client)
    writes.put(60)
    options = options_of(service, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    command = [
        sys.executable,
        "-m",
        "tests.loghub_spark.stream_child",
        str(tmp_path),
        json.dumps(options),
        "71",
    ]
    mark = f"LOGHUB_TEST_KILLED={tmp_path}"
    name, _, value = mark.partition("=")
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {name: value}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_until(
                lambda: (tmp_path / "held").exists() or child.poll() is not None,
                "the batch to be held",
                guard_s=GUARD_S,
            )
            assert child.poll() is None, (tmp_path / "log").read_text(errors="replace")[-4000:]
        finally:
            kill_all(mark)
            child.wait()
    before = copied(session, tmp_path)
    assert 0 < before.total() < writes.sent.total()
    writes.put(5)
    queries.append(start_copy(stream(session, service), tmp_path))
    wait_copied(session, tmp_path, queries[-1], writes.sent)
    assert before <= copied(session, tmp_path)


def test_every_field_of_a_log_is_written_as_it_was_read(
    session: SparkSession, service: ServiceProcess, client: HttpLogHub
) -> None:
    logs = tuple(
        Log(time=1_700_000_000 + n, time_ns=ns, contents=(("n", str(n)), ("e", ""), ("ü", "ö")))
        for n, ns in enumerate((None, 0, 1, 999_999_999, 123_456_000))
    )
    for number in range(3):
        tags = (("__hostname__", "h"), ("n", str(number)))
        group = LogGroup(logs=logs, topic=f"t{number}", source="10.0.0.1", tags=tags)
        client.put_logs(LOGSTORE, encode(group))
    rows = batch(session, service)
    rows.write.format("loghub").options(**options_of(service, logstore=COPY)).mode("append").save()
    position = ("__shard__", "__cursor__", "__index__")
    result = batch(session, service, logstore=COPY)
    assert plain(result.drop(*position)) == plain(rows.drop(*position))
    assert result.count() == 15


def plain(rows: DataFrame) -> list[str]:
    """Rows as texts, in an order of their own."""
    return sorted(json.dumps(row.asDict(), default=str) for row in rows.collect())


def test_rows_of_any_form_are_written_by_their_key(
    session: SparkSession, service: ServiceProcess, client: HttpLogHub
) -> None:
    rows = session.range(200).select(
        "id",
        F.md5(F.col("id").cast("string")).alias("__hash_key__"),
        (F.col("id") / 2).alias("half"),
        F.struct("id").alias("s"),
    )
    rows.write.format("loghub").options(**options_of(service)).mode("append").save()
    schema = "id INT, half DOUBLE, s STRING, `__shard__` INT"
    found = session.read.format("loghub").options(**options_of(service)).schema(schema).load().collect()
    assert sorted(row["id"] for row in found) == list(range(200))
    assert all(row["half"] == row["id"] / 2 and row["s"] == f'{{"id":{row["id"]}}}' for row in found)
    keys = {row["id"]: row["__hash_key__"] for row in rows.collect()}
    assert all((keys[row["id"]] < "8") == (row["__shard__"] == 0) for row in found)
    with pytest.raises(PySparkException, match=r'can only be appended to: use mode."append"'):
        rows.write.format("loghub").options(**options_of(service)).mode("overwrite").save()


@pytest.mark.deep
def test_lost_logs_end_the_query_with_what_to_do(
    session: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    writes = Writes(client)
    writes.put(10, hash_key=LOWER)
    assert start_copy(stream(session, service), tmp_path, available_now=True).awaitTermination(int(GUARD_S))
    read = writes.sent.copy()
    writes.put(10, hash_key=LOWER)
    client.delete_logstore(LOGSTORE)
    client.create_logstore(LOGSTORE, shards=2)
    left = Counter(writes.put(5, hash_key=LOWER))
    query = start_copy(stream(session, service), tmp_path, available_now=True)
    with pytest.raises(
        PySparkException, match=r"DataLossError: .*no longer exist.* Set failOnDataLoss to false"
    ):
        query.awaitTermination(int(GUARD_S))
    rest = start_copy(stream(session, service, failOnDataLoss=False), tmp_path, available_now=True)
    assert rest.awaitTermination(int(GUARD_S))
    assert copied(session, tmp_path) == read + left


def test_a_wrong_option_is_reported_by_name_and_no_plan_has_the_key(
    session: SparkSession, service: ServiceProcess, client: HttpLogHub, capsys: pytest.CaptureFixture[str]
) -> None:
    key = service.credentials
    options = options_of(service, accessKeyId=key.access_key_id, accessKeySecret=key.access_key_secret)
    del options["credentialsDir"]
    with pytest.raises(PySparkException, match="no option 'projct'; did you mean project") as raised:
        session.read.format("loghub").options(**options, projct="x").load()
    for rows in (
        session.read.format("loghub").options(**options).load(),
        session.readStream.format("loghub").options(**options).load(),
    ):
        rows.explain(True)
    rows = session.read.format("loghub").options(**options | {"logstore": "nope"}).load()
    with pytest.raises(PySparkException, match=r"demo/nope at .* Check the option logstore") as missing:
        rows.collect()
    texts = capsys.readouterr().out + str(raised.value) + str(missing.value)
    assert "StreamingRelationV2" in texts
    for part in (key.access_key_id, key.access_key_secret):
        assert part not in texts


def test_an_option_of_a_stream_is_reported_by_name(
    session: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """Spark hides what a stream reader's constructor raises."""
    query = start_copy(stream(session, service, minPartitions="many"), tmp_path)
    with pytest.raises(PySparkException, match="option minPartitions: must be a whole number above 0"):
        query.awaitTermination(int(GUARD_S))
