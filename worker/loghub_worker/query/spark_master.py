"""A Spark cluster outside the pod: `spark.master` is the URL of a standalone master.

The driver stays in the worker's process, and with it planning, the membership and the commit of a batch.
Tasks run in executors on other machines, which have neither the driver's memory nor its disk: what they need
comes from the image, from folders that are mounted there under the same paths, or through Spark.
"""

import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from loghub.worker_contract import LOCAL_MASTER, Pipeline, PythonPipeline, WorkerConfig

UNAVAILABLE, NO_EXECUTORS = "SparkMasterUnavailable", "NoExecutors"
SCHEME = "spark://"
LOOPBACK = "127.0.0.1"
CONNECT_S = 5.0  # for one of the masters to accept a connection
EXECUTORS_S = 60.0  # for the first executor to run
LOOK_S = 0.1
_HOST_PORT = re.compile(r"\[?([^\[\]]+)\]?:(\d+)")


class ClusterError(Exception):
    """The cluster cannot be used: a reason of `loghub.worker_contract.WorkerReason`, and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def is_remote(config: WorkerConfig) -> bool:
    """Whether tasks run outside the worker's pod."""
    return config.spark_master != LOCAL_MASTER


def driver_address(config: WorkerConfig) -> str:
    """The address of this machine at which executors reach the driver: the one from which it reaches the
    master. Raises `ClusterError` ``SparkMasterUnavailable`` if no master accepts a connection."""
    if not is_remote(config):
        return LOOPBACK
    refusals = []
    for one in config.spark_master.removeprefix(SCHEME).split(","):
        parsed = _HOST_PORT.fullmatch(one)
        if parsed is None:
            raise ClusterError(
                UNAVAILABLE, f"{config.spark_master} is no address of a master, spark://host:port"
            )
        try:
            with socket.create_connection((parsed[1], int(parsed[2])), CONNECT_S) as connection:
                address = str(connection.getsockname()[0])
                return f"[{address}]" if ":" in address else address
        except (OSError, OverflowError) as error:
            refusals.append(f"{one}: {error}")
    raise ClusterError(
        UNAVAILABLE,
        f"no Spark master answers at spec.spark.master ({'; '.join(refusals)}): check the address, and that"
        " network policies let the workers connect",
    )


def cluster_settings(config: WorkerConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark for executors, which the user may override."""
    if not is_remote(config):
        return {}
    return {
        # Otherwise the first worker takes all cores of the cluster, and the others wait forever.
        "spark.cores.max": str(config.cores),
        # The same image, or at least the same paths: modules are found where the driver finds them.
        "spark.executorEnv.PYTHONPATH": environment.get("PYTHONPATH", ""),
    }


def refused(config: WorkerConfig, message: str) -> ClusterError:
    """The error of a session that did not start, or that has ended."""
    return ClusterError(
        UNAVAILABLE,
        f"{config.spark_master} did not accept the worker; it must be a standalone master of the worker's"
        f" release of Spark: {message}",
    )


def join_cluster(session: SparkSession, config: WorkerConfig, code: Path | None) -> None:
    """Wait for the first executor, and send the user's modules. Raises `ClusterError`."""
    if not is_remote(config):
        return
    give_up_s = time.monotonic() + EXECUTORS_S
    while not _has_executors(session):
        require_application(session, config)
        if time.monotonic() > give_up_s:
            raise ClusterError(
                NO_EXECUTORS,
                f"{config.spark_master} has started no executor that reaches this worker within"
                f" {EXECUTORS_S:.0f} s: its workers need a free core and the memory of spark.executor.memory,"
                " and network policies must let executors connect to the worker's pod",
            )
        time.sleep(LOOK_S)
    send_code(session, config.pipeline, code)


def send_code(session: SparkSession, pipeline: Pipeline, code: Path | None) -> None:
    """Send the files of the settings to the executors. A folder of a volume is mounted there."""
    if isinstance(pipeline, PythonPipeline) and pipeline.files and code is not None:
        for file in sorted(code.iterdir()):
            session.sparkContext.addPyFile(str(file))


def _has_executors(session: SparkSession) -> bool:
    # The driver is one of them.
    return bool(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 1)


def require_application(session: SparkSession, config: WorkerConfig) -> None:
    """Raise `ClusterError` if the master has ended the application, for example because its executors kept
    exiting: this process cannot start another one."""
    if is_remote(config) and session.sparkContext._jsc.sc().isStopped():
        raise refused(config, "the application has ended, see the logs of the master and of the executors")
