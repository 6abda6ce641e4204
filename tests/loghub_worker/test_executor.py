"""What the container of an executor runs, as Spark says in its environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loghub_worker.query.executor_pods import NotAnExecutorError, command

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "w-0-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "slf4j-api-2.0.jar").touch()
    return tmp_path


def test_the_executor_is_started_as_spark_asks(spark: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in (0, 2, 10)}
    line = command({**GIVEN, **options, "LOGHUB_CLASS_ARCHIVE": "/a.jsa"}, spark)
    assert line == [
        "java", "-XX:SharedArchiveFile=/a.jsa", "-Xlog:cds=off", "-Xlog:cds+dynamic=off",
        "-D0", "-D2", "-D10", "-Xms512m", "-Xmx512m",
        "-cp", f"{spark}/conf:{spark}/jars/slf4j-api-2.0.jar:{spark}/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.1:7078", "--executor-id", "3", "--cores", "2",
        "--app-id", "spark-1", "--hostname", "10.0.0.2", "--resourceProfileId", "0",
        "--podName", "w-0-exec-3",
    ]  # fmt: skip


def test_java_and_further_classes_are_those_of_the_environment(spark: Path) -> None:
    line = command({**GIVEN, "JAVA_HOME": "/jdk", "SPARK_CLASSPATH": "/more/*"}, spark)
    assert line[0] == "/jdk/bin/java"
    assert line[line.index("-cp") + 1].endswith(":/more/*")


@pytest.mark.parametrize("name", GIVEN)
def test_without_what_spark_sets_it_is_no_executor(spark: Path, name: str) -> None:
    given = {key: value for key, value in GIVEN.items() if key != name}
    with pytest.raises(NotAnExecutorError, match=f"{name} is not set"):
        command(given, spark)


def test_the_entry_point_of_the_image_with_sparks_argument_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loghub_worker", "executor"],
        env={key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "SPARK_EXECUTOR_MEMORY is not set" in done.stdout + done.stderr
