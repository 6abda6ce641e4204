"""What a client of Spark Connect does with the data source, in an environment that has no other Spark.

``python -m tests.loghub_spark.connect_client`` gets on its input, as JSON, the `remote` URL of a server, the
`source` and the `copy` options of two logstores, and a `folder`. It prints what it has read and written. The
server has the folder, and runs the data source.
"""

import importlib.util
import json
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_spark import LogHubDataSource

COLUMNS = "id STRING, n INT, `__time__` TIMESTAMP, `__shard__` INT, `__cursor__` BIGINT, `__index__` INT"
CONTENT = ("id", "n", "__time__")
GUARD_S = 420


def plain(rows: DataFrame) -> list[list[Any]]:
    """Rows as JSON has them, with unix seconds as their time, in an order of their own."""
    seconds = rows.withColumn("__time__", F.unix_timestamp("__time__"))
    return sorted(list(row) for row in seconds.collect())


def loaded(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("loghub").options(**options).schema(COLUMNS).load()


def run(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    source, copy, folder = given["source"], given["copy"], Path(given["folder"])
    batch = loaded(spark, source)
    result = {"batch": plain(batch), "filtered": plain(batch.where("n % 2 = 1"))}
    view = spark.read.format("loghub").options(**source).load()
    result["view"] = [list(row) for row in view.select("__topic__", F.col("contents")["id"]).collect()]

    stream = spark.readStream.format("loghub").options(**source, maxOffsetsPerTrigger="5")
    rows = stream.option("startingOffsets", "earliest").schema(COLUMNS).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "to-files"))
    query = writer.trigger(availableNow=True).start(str(folder / "files"))
    assert query.awaitTermination(GUARD_S)
    result["stream"] = plain(spark.read.parquet(str(folder / "files")).select(*rows.columns))

    batch.select(*CONTENT).write.format("loghub").options(**copy).mode("append").save()
    copied = loaded(spark, copy).select(*CONTENT)
    result["written"] = plain(copied)
    writer = rows.select(*CONTENT).writeStream.format("loghub").options(**copy)
    query = writer.option("checkpointLocation", str(folder / "to-copy")).trigger(availableNow=True).start()
    assert query.awaitTermination(GUARD_S)
    result["written_twice"] = plain(loaded(spark, copy).select(*CONTENT))
    result["read_again"] = plain(copied)

    try:
        spark.read.format("loghub").options(**source, startOffset="earliest").load().collect()
    except PySparkException as error:
        result["refused"] = str(error)
    return result


def main() -> None:
    given = json.load(sys.stdin)
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    spark.dataSource.register(LogHubDataSource)
    result = run(spark, given)
    spark.stop()
    result["has_vendor_sdk"] = importlib.util.find_spec("aliyun") is not None
    result["packages"] = {one.metadata["Name"].lower(): one.version for one in distributions()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
