"""The JVM of a worker really maps the class archive; one of another JVM would be passed over in silence."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loghub.worker_contract import ENV_CLASS_ARCHIVE
from tests.loghub_worker.conftest import CLASSES

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("spark")
def test_most_classes_come_from_the_archive(spark: SparkSession, spark_state: Path) -> None:
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    if not archive or not Path(archive).exists():
        pytest.skip(f"{ENV_CLASS_ARCHIVE} names no archive: make test makes one and sets it")
    assert spark.range(3).count() == 3
    loaded = (spark_state / CLASSES).read_text().splitlines()
    mapped = [line for line in loaded if "source: shared objects file (top)" in line]
    assert len(mapped) > len(loaded) / 2, f"{len(mapped)} of {len(loaded)} classes"
