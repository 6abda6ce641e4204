"""Pipelines over pandas and Arrow, in a worker with pandas and in one without."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loghub.contract.worker import PythonPipeline
from loghub_consumer.errors import FatalError
from loghub_worker.query.batch_errors import query_error
from loghub_worker.query.transform import empty_logs, make_transform
from tests import locked
from tests.loghub_worker.pandas_pipelines import LOGS, NEED_PANDAS, SHARDS, WITHOUT
from tests.spark_session import CODE
from tests.support import PYTHON_PATH, ROOT

pytestmark = pytest.mark.spark

IMPORTED_BY_A_FUNCTION = """
from pyspark.sql.functions import udf

@udf("int")
def add(number):
    import pandas
    return int(pandas.Series([number])[0]) + 1

def run(logs):
    return logs.select(add("__shard__").alias("__shard__"))
"""


@pytest.fixture
def code(spark_state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that Spark's processes import the user's modules from."""
    assert importlib.util.find_spec("pandas") is None, "without pandas in the tests' own environment"
    monkeypatch.setattr(sys, "path", list(sys.path))
    return spark_state / CODE


@pytest.mark.parametrize("name", NEED_PANDAS)
def test_without_pandas_the_message_names_the_image_that_has_it(
    name: str, code: Path, spark: SparkSession
) -> None:
    (code / f"lacking_{name}.py").write_text(NEED_PANDAS[name])
    with pytest.raises(FatalError) as raised:
        make_transform(PythonPipeline(function=f"lacking_{name}:run"), code).check(empty_logs(spark))
    message = raised.value.message
    # Spark's refusal, or that of the user's own import.
    refusal = "ModuleNotFoundError" if name == "pandas_udf" else "PySparkImportError: [PACKAGE_NOT_INSTALLED]"
    assert message.startswith(f"lacking_{name}:run: {refusal}")
    assert_names_the_image(message)


def test_an_import_of_pandas_in_sparks_processes_gets_the_same_message(
    code: Path, spark: SparkSession
) -> None:
    (code / "lacking_later.py").write_text(IMPORTED_BY_A_FUNCTION)
    transform = make_transform(PythonPipeline(function="lacking_later:run"), code)
    with pytest.raises(Exception, match="No module named 'pandas'") as raised:
        transform(spark.sql(LOGS)).collect()
    assert_names_the_image(query_error(raised.value).message)


@pytest.mark.parametrize("name", WITHOUT)
def test_arrow_udf_needs_no_pandas(name: str, code: Path, spark: SparkSession) -> None:
    (code / f"without_{name}.py").write_text(WITHOUT[name])
    transform = make_transform(PythonPipeline(function=f"without_{name}:run"), code)
    transform.check(empty_logs(spark))
    assert [row["__shard__"] for row in transform(spark.sql(LOGS)).collect()] == SHARDS


@pytest.mark.timeout(1200)
def test_with_pandas_every_pipeline_works(tmp_path: Path) -> None:
    pandas = locked.folder("worker-pandas", without="dev")
    environment = {**os.environ, "PYTHONPATH": f"{pandas}{os.pathsep}{PYTHON_PATH}"}
    command = [sys.executable, "-m", "tests.loghub_worker.pandas_pipelines", str(tmp_path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.strip().splitlines()[-1])
    assert made["rows"] == dict.fromkeys(NEED_PANDAS | WITHOUT, SHARDS)
    assert made["per_batch"] == {"applyInArrow": ["a function over groups"]}


def assert_names_the_image(message: str) -> None:
    assert "worker-pandas" in message
    assert "FROM worker AS worker-pandas\n" in (ROOT / "Dockerfile").read_text()
