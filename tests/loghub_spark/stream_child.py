"""A program of a user that copies a logstore to Parquet, in a process of its own that a test can kill:

``python -m tests.loghub_spark.stream_child FOLDER OPTIONS HOLD_AT``

Once a row with the id HOLD_AT passes, it creates ``FOLDER/held`` and stays in that batch.
"""

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from loghub.contract.worker import ENV_CLASS_ARCHIVE
from loghub_spark import LogHubDataSource
from tests.loghub_spark.support import IDS, start_copy


def main(folder: Path, options: dict[str, str], hold_at: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    archive = os.environ.get(ENV_CLASS_ARCHIVE, "")
    java = ["-XX:TieredStopAtLevel=1", f'"-Djava.io.tmpdir={folder}"']
    if archive and Path(archive).exists():
        java += [f'"-XX:SharedArchiveFile={archive}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.extraJavaOptions", " ".join(java)).getOrCreate()
    spark.dataSource.register(LogHubDataSource)
    held = str(folder / "held")

    @udf("string")
    def hold(one: str) -> str:
        if one == hold_at:
            Path(held).touch()
            threading.Event().wait()
        return one

    rows = spark.readStream.format("loghub").options(**options).schema(IDS).load()
    start_copy(rows.withColumn("id", hold("id")), folder).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
