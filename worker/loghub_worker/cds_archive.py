"""Write a class-data archive of Spark's JVM, from which a worker's JVM starts at half the cost.

What for: ``python cds_archive.py FILE``, run once while the worker's image is built, and by
`make test`. What it must not know: the rest of the worker (it is run in a layer below it). Read
next: `loghub_worker.query.spark_session`.

A short life like a worker's is played: a Python stream source, SQL over a map of texts, Parquet
files. The classes that the JVM loaded meanwhile are written at its end (JEP 350). A JVM of another
version than the one that wrote it does without.
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

BATCHES = 3
GUARD_S = 600.0
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
    """0 once the file is there. Raises FileNotFoundError if the JVM wrote none."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else Spark takes whatever python3 it finds
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # while an image is built its host may have no address
    fresh = f"{archive}.new"
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[1]")
            .config(
                "spark.driver.extraJavaOptions",
                f"-XX:+UseSerialGC -Xlog:cds=error -XX:ArchiveClassesAtExit={fresh}",
            )
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.catalogImplementation", "in-memory")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None  # there is one while the session lives
        rehearse(spark, Path(folder))
        spark.stop()
        gateway.proc.stdin.close()  # by this the JVM knows that it is to end
        gateway.proc.wait(GUARD_S)
    os.replace(fresh, archive)
    return 0


def rehearse(spark: SparkSession, folder: Path) -> None:
    """A few batches from source to sink."""
    spark.dataSource.register(_Source)
    # The empty view stands for the first check of a query.
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
