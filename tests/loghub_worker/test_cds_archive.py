"""What makes a worker's start cheap is really used: Spark would silently do without."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import ENV_CLASS_ARCHIVE
from tests.loghub_worker.support import worker_config

pytestmark = pytest.mark.spark

GUARD_S = 300.0


def test_most_classes_come_from_the_archive(tmp_path: Path) -> None:
    """In a process of its own, because a process with a JVM does not start another."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    if not archive or not Path(archive).exists():
        pytest.skip(f"{ENV_CLASS_ARCHIVE} names no archive; `make test` creates one and sets the variable")
    command = [sys.executable, "-m", "tests.loghub_worker.test_cds_archive", str(tmp_path), archive]
    subprocess.run(command, check=True, timeout=GUARD_S)
    loaded = (tmp_path / "classes").read_text().splitlines()
    mapped = [line for line in loaded if "source: shared objects file (top)" in line]
    assert len(mapped) > len(loaded) / 2, f"{len(mapped)} of {len(loaded)} classes"


def test_sparks_python_processes_import_the_compiled_pyspark(spark: SparkSession) -> None:
    """`make setup` and the image remove the archives of pyspark, which Spark would put first."""

    @udf("string")
    def path_of_pyspark() -> str:
        import pyspark

        return pyspark.__file__

    assert [row[0] for row in spark.range(1).select(path_of_pyspark()).collect()] == [pyspark.__file__]


def test_no_python_process_looks_for_data_sources(spark: SparkSession) -> None:
    assert spark.dataSource
    jvm = spark.sparkContext._gateway.proc.pid
    commands = [command.read_text().split("\0") for command in commands_of_children(jvm)]
    modules = [command[-2] for command in commands if "pyspark.daemon" in command]
    assert "pyspark.sql.worker.lookup_data_sources" not in modules


def commands_of_children(parent: int) -> list[Path]:
    """The files with the command lines of the processes that this one has started and that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(stat.with_name("cmdline"))
    return found


def start_and_count(folder: Path, archive: Path) -> None:
    """Start a worker's Spark whose JVM writes the source of each class to a file."""
    from loghub_worker.query.spark_session import start_spark

    java = f"-XX:TieredStopAtLevel=1 -Xlog:class+load=info:file={folder / 'classes'}"
    conf = {"spark.driver.extraJavaOptions": java}
    config = worker_config("http://unused", ParquetSink(path="/unused"), spark_conf=conf)
    session = start_spark(config, folder, class_archive=archive)
    assert session.range(3).count() == 3
    session.stop()


if __name__ == "__main__":
    start_and_count(Path(sys.argv[1]), Path(sys.argv[2]))
