"""Spark with Delta's own jars, as a reader of the tables that the sink writes.

The jars must be there when Spark starts, and the Spark of a worker, or of the other tests, has none of them.
So it runs in a process of its own, which reads all tables of a test. The jars are named in
``locks/spark-delta.txt`` and fetched once into the cache folder.

``python -m tests.loghub_worker.sink.spark_reader``         fetch the jars
``python -m tests.loghub_worker.sink.spark_reader TABLE..`` print the rows of each table, which may end in
                                                            `WHERE` and a condition
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loghub.contract.worker import ENV_CLASS_ARCHIVE
from loghub_worker.image import spark_jars
from tests.cluster import paths
from tests.support import ROOT

LOCK = ROOT / "locks" / "spark-delta.txt"
WHERE = " WHERE "
GUARD_S = 300.0
_FAST = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def _jars() -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(LOCK.read_text())


def _folder() -> Path:
    """Where the jars are; the name has the version."""
    return paths.cache_folder() / f"spark-delta-{_jars()[0].version}"


def missing() -> str:
    """Why Spark cannot read Delta tables here; empty if it can."""
    lacking = spark_jars.missing(_jars(), _folder())
    way = f"`make test` fetches them, and so does python -m {__spec__.name}"
    return f"{len(lacking)} jars of Delta are missing: {way}" if lacking else ""


def install() -> None:
    """Fetch what is missing. Raises `RuntimeError`."""
    try:
        spark_jars.install(_jars(), _folder(), os.environ)
    except spark_jars.JarsError as error:
        raise RuntimeError(f"the jars of Delta: {error}") from error


def texts_of(rows: Iterable[Any]) -> Counter[str]:
    """Rows of Spark as texts that are equal if the rows are, so that they can be counted and printed."""
    return Counter(repr(sorted(row.asDict(recursive=True).items())) for row in rows)


def by_spark(*tables: str) -> list[Counter[str]]:
    """The rows of each table, as `texts_of` has them."""
    command = [sys.executable, "-m", __spec__.name, *tables]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [Counter(table) for table in json.loads(done.stdout.splitlines()[-1])]


def _read(tables: Sequence[str]) -> list[dict[str, int]]:
    from pyspark.sql import SparkSession

    archive = os.environ.get(ENV_CLASS_ARCHIVE, "")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(str(_folder() / jar.file) for jar in _jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.extraJavaOptions": f"{_FAST} -XX:SharedArchiveFile={archive}" if archive else _FAST,
    }
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.master("local[1]").getOrCreate()
    found = []
    for table in tables:
        path, _, condition = table.partition(WHERE)
        found.append(
            dict(texts_of(spark.read.format("delta").load(path).where(condition or "true").collect()))
        )
    return found


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(_read(sys.argv[1:])))
    else:
        install()
