"""Pipelines that use Spark's functions over pandas and Arrow, run by a process that has pandas.

``python -m tests.loghub_worker.pandas_pipelines FOLDER`` prints the result of each for one log, as JSON.
The environment of the tests has no pandas, so `test_pandas` puts it on this process's path.
"""

import json
import os
import sys
from pathlib import Path

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import ENV_CLASS_ARCHIVE, PythonPipeline
from loghub_worker.query.spark_session import start_spark
from loghub_worker.query.transform import empty_logs, make_transform
from tests.loghub_worker.plan_operations import per_batch_operations
from tests.loghub_worker.support import worker_config
from tests.spark_settings import INTERPRETED

LOGS = "SELECT map('line', 'a line') AS contents, 3 AS __shard__"
SHARDS = [4]  # the result of each pipeline for `LOGS`

# Each adds one to the number of the shard.
NEED_PANDAS = {
    "mapInArrow": """
import pyarrow as pa
import pyarrow.compute as pc

def run(logs):
    def add(batches):
        for batch in batches:
            column = pc.add(batch["__shard__"], pa.scalar(1, pa.int32()))
            yield pa.RecordBatch.from_arrays([column], ["__shard__"])
    return logs.select("__shard__").mapInArrow(add, "__shard__ int")
""",
    "applyInArrow": """
import pyarrow as pa
import pyarrow.compute as pc

def run(logs):
    def add(table):
        return pa.table({"__shard__": pc.add(table["__shard__"], pa.scalar(1, pa.int32()))})
    return logs.select("__shard__").groupBy("__shard__").applyInArrow(add, "__shard__ int")
""",
    "pandas_udf": """
import pandas as pd
from pyspark.sql.functions import pandas_udf

@pandas_udf("int")
def add(numbers: pd.Series) -> pd.Series:
    return numbers + 1

def run(logs):
    return logs.select(add("__shard__").alias("__shard__"))
""",
    "toPandas": """
def run(logs):
    frame = logs.select("__shard__").toPandas() + 1
    return logs.sparkSession.createDataFrame(frame, "__shard__ int")
""",
}
WITHOUT = {
    "arrow_udf": """
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.functions import arrow_udf

@arrow_udf("int")
def add(numbers: pa.Array) -> pa.Array:
    return pc.add(numbers, pa.scalar(1, pa.int32()))

def run(logs):
    return logs.select(add("__shard__").alias("__shard__"))
""",
}


def main() -> int:
    folder = Path(sys.argv[1])
    for name, text in (NEED_PANDAS | WITHOUT).items():
        (folder / f"users_{name}.py").write_text(text)
    config = worker_config("http://unused", ParquetSink(path="/unused"))
    config.spark_conf.update(INTERPRETED)
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    spark = start_spark(config, folder, class_archive=Path(archive) if archive else None, code=folder)
    rows, per_batch = {}, {}
    for name in NEED_PANDAS | WITHOUT:
        transform = make_transform(PythonPipeline(function=f"users_{name}:run"), folder)
        per_batch[name] = per_batch_operations(transform.check(empty_logs(spark)))
        rows[name] = [row["__shard__"] for row in transform(spark.sql(LOGS)).collect()]
    spark.stop()
    print(
        json.dumps({"rows": rows, "per_batch": {name: found for name, found in per_batch.items() if found}})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
