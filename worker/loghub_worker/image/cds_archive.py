"""``python cds_archive.py FILE``: write a class-data archive for Spark's JVM.

With the archive, the JVM of a worker starts at half the cost. The program runs once while the worker's image
is built, and in `make test`. It imports nothing of the worker, because the image has a layer for the archive
below the layer with the worker's code.

It imitates a short run of a worker: a Python stream source, SQL over a map of strings, and Parquet files.
When the JVM exits, it writes the classes that it has loaded to the archive (JEP 350). A JVM of another
version ignores the archive.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

BATCHES = 3  # later batches load classes that the first one does not
GUARD_S = 600.0  # a guard: a build on a machine with too much to do takes minutes
SCHEMA = "`__time__` TIMESTAMP, contents MAP<STRING, STRING>, `__shard__` INT"
SQL = """
    SELECT `__time__` AS time, TRY_CAST(contents['number'] AS BIGINT) AS number,
        regexp_extract(contents['line'], r'"([A-Z]+) ', 1) AS method, `__shard__` AS shard
    FROM logs WHERE contents['line'] IS NOT NULL
"""


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rehearsal"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        raise NotImplementedError(schema)

    def streamReader(self, schema: object) -> "_Reader":  # noqa: N802, ARG002
        return _Reader()


class _Reader(DataSourceStreamReader):
    def __init__(self) -> None:
        self._number = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        self._number += 1
        return {"number": self._number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        times = pa.array([partition.value], pa.timestamp("us", tz="UTC"))
        contents = pa.array([[("line", '"GET / 200')]], pa.map_(pa.string(), pa.string()))
        shards = pa.array([0], pa.int32())
        yield pa.RecordBatch.from_arrays([times, contents, shards], ["__time__", "contents", "__shard__"])


def main(archive: str) -> int:
    """Write the archive and return 0. Raises FileNotFoundError if the JVM wrote none."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise Spark uses the first python3 on the PATH
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # during an image build the host may have no address
    fresh = f"{archive}.new"
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[1]")
            .config(
                "spark.driver.extraJavaOptions",
                # One compiler is enough for a short run, and compiled code is not in the archive.
                f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:cds=error -XX:ArchiveClassesAtExit={fresh}",
            )
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.catalogImplementation", "in-memory")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None  # it exists as long as the session
        rehearse(spark, Path(folder))
        spark.stop()
        gateway.proc.stdin.close()  # the JVM exits once its input is closed
        gateway.proc.wait(GUARD_S)
    os.replace(fresh, archive)
    return 0


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Run a few batches from source to sink."""
    spark.dataSource.register(_Source)
    # The empty view imitates the check of a query before the first batch.
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("logs")
    assert spark.sql(SQL).columns
    enough = threading.Event()

    def on_batch(rows: DataFrame, number: int) -> None:
        rows.createOrReplaceTempView("logs")
        rows.sparkSession.sql(SQL).write.parquet(str(folder / f"batch-{number}"))
        if number + 1 >= BATCHES:
            enough.set()

    stream = spark.readStream.format("rehearsal").load().writeStream.foreachBatch(on_batch)
    query = stream.option("checkpointLocation", str(folder / "query")).start()
    while query.isActive and not enough.wait(0.2):
        pass
    query.stop()
    if (failure := query.exception()) is not None:
        raise failure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
