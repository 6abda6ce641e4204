"""One Spark session for all tests of a process that need one: a JVM's start costs more than most of them.

Spark interprets the queries. Workers that are processes run generated code.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_settings import INTERPRETED
from tests.support import PYTHON_PATH

if TYPE_CHECKING:  # so that tests without Spark do not wait for its import
    from pyspark.sql import SparkSession

CODE = "code"  # folder for the user modules of the tests
# A JVM with one compiler has 48 MiB for compiled code. Half of the tests need 42 of them, and what the JVM
# drops then is interpreted and compiled again.
CODE_OF_ALL_TESTS = "-XX:ReservedCodeCacheSize=256m"


@pytest.fixture(scope="session")
def spark_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_state: Path) -> "Iterator[SparkSession]":
    """The session of a worker. A test that makes another one in its own thread would leave that as the active
    one, in which Spark looks for data sources."""
    from loghub.contract.sinks import ParquetSink
    from loghub.contract.worker import ENV_CLASS_ARCHIVE
    from loghub_worker.query.spark_session import start_spark
    from tests.loghub_worker.support import worker_config

    (spark_state / CODE).mkdir()
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    config = worker_config("http://unused", ParquetSink(path="/unused"), cores=2)
    config.spark_conf.update(INTERPRETED)
    config.spark_conf["spark.driver.extraJavaOptions"] += f" {CODE_OF_ALL_TESTS}"
    with pytest.MonkeyPatch.context() as patch:
        # Of Spark's processes; this one may still start a command line, which has rich.
        patch.setenv("PYTHONPATH", PYTHON_PATH)
        session = start_spark(
            config,
            spark_state,
            class_archive=Path(archive) if archive else None,
            code=spark_state / CODE,
        )
    yield session
    session.stop()
