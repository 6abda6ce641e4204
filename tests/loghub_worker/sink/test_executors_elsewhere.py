"""Executors whose bucket is not the worker's: the same name, but another storage answers where they are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from loghub.contract.sinks import DeltaSink, JsonSink, S3Settings
from loghub_worker.sink.files.bucket import ObjectStorageError
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from tests.cluster.s3_server import S3Server, running_s3_server
from tests.loghub_worker.support import SOURCE, worker_config

pytestmark = [pytest.mark.spark, pytest.mark.tools, pytest.mark.deep]


@pytest.fixture
def other(versitygw: Path, tmp_path: Path) -> Iterator[S3Server]:
    with running_s3_server(versitygw, tmp_path / "other") as running:
        running.bucket("elsewhere")
        yield running


@pytest.mark.parametrize("kind", [JsonSink, DeltaSink])
def test_files_that_the_worker_does_not_find_are_not_committed(
    kind: Any, spark: SparkSession, s3: S3Server, other: S3Server, tmp_path: Path
) -> None:
    """Otherwise their rows count as delivered, and a Delta table has files that do not exist."""
    s3.bucket("elsewhere")
    config = worker_config(
        "http://x",
        kind(path=f"s3://elsewhere/{kind.__name__}", s3=S3Settings(endpoint=s3.endpoint, allow_http=True)),
        spark_master="spark://elsewhere:7077",  # the tasks run here all the same
    )
    sink: Any = make_sink(
        config,
        consumer="w-0",
        source=SOURCE,
        scratch=tmp_path,
        sink_credentials=CredentialFiles(s3.credentials(tmp_path / "keys")),
    )
    sink.check(spark.range(0))
    assert sink.write(spark.range(5), "w-0-1") == 5
    sink.abort("w-0-1")
    there = S3Settings(endpoint=other.endpoint, allow_http=True)
    if kind is DeltaSink:
        sink._executors = replace(sink._executors, s3=there)
    else:
        sink._executors._files = replace(sink._executors._files, s3=there)
    for attempt in (lambda: sink.write(spark.range(5), "w-0-2"), lambda: sink.check(spark.range(0))):
        with pytest.raises(ObjectStorageError, match=r"such as s3://elsewhere/.*part-.*the same storage"):
            attempt()
