"""Queries that go the short way, and the same ones on the long way, on a real Spark and a real service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from loghub.contract.sinks import DeltaSink, JsonSink, LogstoreSink, ParquetSink
from loghub.contract.worker import CopyPipeline, PythonPipeline, SqlPipeline
from loghub_worker.query.engine import way_of
from loghub_worker.query.transform import SqlTransform, empty_logs
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.query.worker_threads import WorkerThreads
from tests.loghub_worker.sink.delta_tables import by_protocol
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    SOURCE,
    SQL,
    Producer,
    all_saved,
    prepare,
    source_of,
    worker_config,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


EVERYTHING = "SELECT * FROM logs"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"engine": "Spark"}, "pipeline.engine is Spark"),
        ({"pipeline": PythonPipeline(function="a:b")}, "the pipeline is no SQL query"),
        ({"pipeline": CopyPipeline()}, "the pipeline is no SQL query"),
        ({"stateful": True}, "the pipeline is stateful"),
        ({"sink": LogstoreSink(project="p", logstore="l", keep_order=False)}, "the sink writes no files"),
        ({"spark_conf": {"spark.sql.ansi.enabled": "false"}}, "spark.conf has spark.sql.ansi.enabled"),
        ({"spark_conf": {"spark.hadoop.x": "1"}}, "spark.conf has spark.hadoop.x"),
        ({"spark_conf": {"spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "3"}}, ""),
        ({"sink": ParquetSink(path="/OUT", partition_by=("nope",))}, "partitionBy names 'nope'"),
    ],
)  # fmt: skip
def test_a_query_that_does_not_go_the_short_way_says_why(
    changes: dict[str, Any], why: str, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {"pipeline": SqlPipeline(text=SQL), "sink": ParquetSink(path="/OUT")} | changes
    sink = settings.pop("sink")
    if isinstance(sink, ParquetSink):
        sink = ParquetSink(path=str(tmp_path / "out"), partition_by=sink.partition_by)
    config = worker_config("http://x", sink, **settings)
    made = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path)
    result = SqlTransform(SQL).check(empty_logs(spark))
    way = way_of(config, spark, result, made, consumer="w-0")
    assert way.why.startswith(why) if why else not way.why
    assert way.engine == ("Spark" if why else "Arrow")


@pytest.mark.parametrize(
    ("kind", "sql", "by"),
    [
        (ParquetSink, SQL, ("__shard__",)),
        pytest.param(JsonSink, EVERYTHING, (), marks=pytest.mark.deep),
        (DeltaSink, "SELECT __topic__, contents['id'] AS id, contents['none'] AS none FROM logs", ()),
    ],
    ids=["parquet", "json", "delta"],
)
def test_both_ways_deliver_the_same_rows_once(
    kind: Any, sql: str, by: tuple[str, ...], spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=3)
    Producer(client).put(groups=20)
    found = []
    for engine in ("Auto", "Spark"):
        out = tmp_path / engine
        sink = kind(path=str(out), partition_by=by)
        config = worker_config(
            service.endpoint, sink, engine=engine, cores=2, pipeline=SqlPipeline(text=sql), max_log_groups=7
        )
        made = make_sink(config, consumer="w-0", source=source_of(service), scratch=tmp_path)
        threads = WorkerThreads(spark, config, made, service.credentials_dir, tmp_path / f"of-{engine}")
        assert threads.way.engine == {"Auto": "Arrow", "Spark": "Spark"}[engine]
        threads.start()
        try:
            wait_until(lambda: all_saved(client), "the end of the logs", guard_s=GUARD_S)
            assert threads.query_runner.totals.rows == 200
        finally:
            threads.stop()
        assert not any(path.is_file() for path in out.glob("_loghub/*/*/*/stage/*/*"))
        found.append(rows_in(out, kind, spark))
        for shard in (0, 1):
            begin = client.get_cursor(LOGSTORE, shard, "begin")
            client.update_checkpoint(LOGSTORE, GROUP, shard=shard, cursor=begin, consumer="", force=True)
    assert found[0] == found[1]
    assert len(found[0]) == 200


def rows_in(out: Path, kind: Any, spark: SparkSession) -> list[str]:
    if kind is DeltaSink:
        return sorted(map(repr, by_protocol(out)))
    if kind is JsonSink:
        return sorted(line for path in out.glob("*.json") for line in path.read_text().splitlines())
    return sorted(map(repr, spark.read.parquet(str(out)).collect()))
