"""One Spark session for all tests of the worker that need one in this process, and one cluster for all whose
workers have a master."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loghub.sink_settings import ParquetSink
from loghub.worker_contract import ENV_CLASS_ARCHIVE
from tests.loghub_worker.support import worker_config

if TYPE_CHECKING:  # so that tests without Spark do not wait for its import
    from pyspark.sql import SparkSession

    from tests.spark_cluster import Cluster

CODE = "code"  # folder for the user modules of the tests


@pytest.fixture(scope="package")
def spark_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="package")
def spark(spark_state: Path) -> "Iterator[SparkSession]":
    from loghub_worker.query.spark_session import start_spark

    (spark_state / CODE).mkdir()
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    session = start_spark(
        worker_config("http://unused", ParquetSink(path="/unused"), cores=2),
        spark_state,
        class_archive=Path(archive) if archive else None,
        code=spark_state / CODE,
    )
    yield session
    session.stop()


@pytest.fixture(scope="package")
def driver_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that executors do not see, for those of the workers."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="package")
def cluster(driver_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """A master of Spark and two workers with a core each."""
    from tests import spark_cluster

    if missing := spark_cluster.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("spark-cluster") / "cluster"
    with spark_cluster.running_cluster(folder, hidden=[driver_disk]) as running:
        yield running
