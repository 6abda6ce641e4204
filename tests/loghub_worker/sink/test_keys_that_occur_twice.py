"""A log with a key twice, as some loggers write it: the last value counts, in files and in queries."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from loghub.contract.sinks import JsonSink, ParquetSink
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.decoding import Body, Selection, decode
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = pytest.mark.spark

LOG = Log(time=5, contents=(("a", "1"), ("a", "2"), ("b", "3")))
BODY = wrap([encode(LogGroup(logs=(LOG,), tags=(("t", "4"), ("t", "5"))))])
CONTENTS, TAGS = {"a": "2", "b": "3"}, {"t": "5"}


@pytest.mark.parametrize("kind", [ParquetSink, JsonSink])
def test_files_of_all_columns_are_read_by_spark_and_by_duckdb(
    kind: Any, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame(pa.Table.from_batches([decode([Body(1, BODY)], shard=0).rows]))
    out = tmp_path / "out"
    config = worker_config("http://x", kind(path=str(out)))
    sink = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path)
    sink.open_shard(ShardIncarnation(shard=0, created=1))
    sink.resume(ShardIncarnation(shard=0, created=1), 1, confirm=lambda: None)
    sink.write(rows, "w-0-0")
    sink.publish("w-0-0", (Range(0, 1, 2),), lambda: True)
    (file,) = (path for path in out.iterdir() if path.is_file())
    if kind is JsonSink:
        maps = "{contents: 'MAP(VARCHAR, VARCHAR)', __tags__: 'MAP(VARCHAR, VARCHAR)'}"
        source = f"read_json('{file}', columns={maps})"
    else:
        source = f"read_parquet('{file}')"
    found = duckdb.sql(f"SELECT contents, __tags__ FROM {source}").fetchall()
    assert found == [(CONTENTS, TAGS)]
    read = spark.read.schema(rows.schema).format("json" if kind is JsonSink else "parquet").load(str(file))
    assert [(row.contents, row["__tags__"]) for row in read.collect()] == [(CONTENTS, TAGS)]


def test_functions_on_maps_take_the_contents(spark: SparkSession) -> None:
    """Those that make a map refuse a key twice, and the log would stop its shard."""
    rows = spark.createDataFrame(pa.Table.from_batches([decode([Body(1, BODY)], shard=0).rows]))
    for made in ("map_concat(contents, map('env', 'prod'))", "map_from_entries(map_entries(contents))"):
        (row,) = rows.selectExpr(f"{made} AS m", "contents['a'] AS a", "to_json(contents) AS j").collect()
        assert CONTENTS.items() <= row.m.items()
        assert (row.a, json.loads(row.j)) == ("2", CONTENTS)
    keyed = decode([Body(1, BODY)], shard=0, selection=Selection(view=(), keys=("a",))).rows
    assert keyed.to_pylist() == [{"a": "2"}], "as a column of its own it has the same value"
