"""Spark with Delta's own jars reads what the sink has written: all types, partitions, several commits, on a
volume and in a bucket."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import DeltaSink, S3Settings
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.spark_reader import WHERE, by_spark, missing, texts_of
from tests.loghub_worker.sink.test_delta_on_spark import COLUMNS, publish
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONDITION = "long > repeat('é', 38)"  # of one row: a reader skips files by their statistics
SPECIAL = ["a/b=c %3A d", "ü", None, "__x", "2024:01", ""]


def written(sink: DeltaSink, folder: Path, *batches: DataFrame, keys: Path | None = None) -> None:
    """Let the sink of a worker write these batches, each in a commit of its own."""
    made: Any = make_sink(
        worker_config("http://x", sink),
        consumer="w-0",
        source=SOURCE,
        scratch=folder,
        sink_credentials=CredentialFiles(keys),
    )
    made.check(batches[0].limit(0))
    for number, rows in enumerate(batches):
        assert publish(made, rows, begin=10 * (number + 1)) == rows.count()


@pytest.mark.deep
def test_spark_finds_the_rows_of_the_query(spark: SparkSession, tmp_path: Path, s3: S3Server) -> None:
    if reason := missing():
        pytest.skip(reason)
    rows = spark.range(90).selectExpr(*COLUMNS).repartition(3)
    more = spark.range(90, 100).selectExpr(*COLUMNS)
    special = spark.createDataFrame(list(enumerate(SPECIAL)), "id INT, p STRING")
    volume, partitions, objects = (
        tmp_path / "volume",
        tmp_path / "partitions",
        s3.bucket("read-by-spark") / "table",
    )
    written(DeltaSink(path=str(volume)), tmp_path, rows, more)
    written(DeltaSink(path=str(partitions), partition_by=("p",)), tmp_path, special)
    bucket = DeltaSink(
        path="s3://read-by-spark/table",
        s3=S3Settings(endpoint=s3.endpoint, allow_http=True),
        partition_by=("text", "day", "even"),
    )
    written(bucket, tmp_path, rows, more, keys=s3.credentials(tmp_path / "keys"))
    # The server keeps each object as a file, so that Spark needs no client of S3.
    found = by_spark(str(volume), f"{volume}{WHERE}{CONDITION}", str(partitions), str(objects))
    everything = texts_of(rows.union(more).collect())
    assert everything.total() == 100
    # Null and the empty text have the same folder.
    nulls = special.selectExpr("id", "nullif(p, '') AS p")
    assert found[0] == everything
    assert found[1] == texts_of(rows.union(more).where(CONDITION).collect())
    assert found[2] == texts_of(nulls.collect())
    assert found[3] == everything
