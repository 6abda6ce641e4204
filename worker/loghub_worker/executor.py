"""``python -m loghub_worker executor``: become an executor of Spark in a pod of its own.

Spark starts the container of an executor with the image's entry point and the argument ``executor``, and says
in the environment what to run. Spark's own images have a shell script for that; this is the same for the
image of the workers.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from loghub.worker_contract import ENV_CLASS_ARCHIVE

ARGUMENT = "executor"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class NotAnExecutorError(Exception):
    """The environment is not one that Spark gives to the container of an executor."""


def command(environment: Mapping[str, str], spark: Path) -> list[str]:
    """The command line of the executor's JVM; `spark` is the folder of pyspark. Raises
    `NotAnExecutorError`."""
    try:
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        arguments = [part for name, key in _ARGUMENTS.items() for part in (name, environment[key])]
    except KeyError as error:
        raise NotAnExecutorError(f"{error.args[0]} is not set: only Spark starts executors") from error
    options = [environment[name] for name in sorted(filter(_is_option, environment), key=_number)]
    java = Path(environment.get("JAVA_HOME", ""), "bin", "java")
    return [
        str(java) if environment.get("JAVA_HOME") else "java",
        *_archive(environment),
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _class_path(environment, spark),
        BACKEND,
        *arguments,
    ]


def _is_option(name: str) -> bool:
    return name.startswith(_JAVA_OPTION) and name[len(_JAVA_OPTION) :].isdecimal()


def _number(name: str) -> int:
    return int(name[len(_JAVA_OPTION) :])


def _archive(environment: Mapping[str, str]) -> list[str]:
    archive = environment.get(ENV_CLASS_ARCHIVE)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive else []


def _class_path(environment: Mapping[str, str], spark: Path) -> str:
    """In the order of Spark's own launcher: the archive of classes is only used with the class path of the
    JVM that made it."""
    jars = spark / "jars"
    first = (spark / "conf", *sorted(jars.glob("slf4j-api-*.jar")), jars / "*")
    given = environment.get("SPARK_CLASSPATH")
    return os.pathsep.join([*map(str, first), *([given] if given else [])])


def become_executor(environment: Mapping[str, str]) -> NoReturn:
    """Replace this process with the executor. Raises `NotAnExecutorError`."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotAnExecutorError("pyspark is not installed")
    line = command(environment, Path(found.origin).parent)
    if shutil.which(line[0]) is None:
        raise NotAnExecutorError(f"there is no {line[0]}: Spark needs Java 17 or newer")
    os.execvp(line[0], line)  # noqa: S606 - Spark's own program, without a shell
