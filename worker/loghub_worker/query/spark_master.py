"""A Spark cluster outside the pod: `spark.master` is the URL of a standalone master, or of the API server
(`loghub_worker.query.executor_pods`).

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

from loghub.worker_contract import KUBERNETES, LOCAL_MASTER, Pipeline, PythonPipeline, WorkerConfig
from loghub_worker.query import executor_pods
from loghub_worker.query.cluster_error import NO_EXECUTORS, UNAVAILABLE, ClusterError
from loghub_worker.query.executor_pods import ExecutorPods

SCHEME = "spark://"
LOOPBACK = "127.0.0.1"
CONNECT_S = 5.0  # for one of the masters to accept a connection
EXECUTORS_S = 60.0  # for the first executor to run
PODS_S = 240.0  # the same if its image may have to be pulled, or its node be started
LOOK_S = 0.1
MUST_BE = "; it must be a standalone master of the worker's release of Spark"
STANDALONE = (
    "its workers need a free core and the memory of spark.executor.memory, and network policies must let"
    " executors connect to the worker's pod"
)
IN_PODS = "{why}. Network policies must let executors connect to the worker's pod"
_HOST_PORT = re.compile(r"\[?([^\[\]]+)\]?:(\d+)")


def is_remote(config: WorkerConfig) -> bool:
    """Whether tasks run outside the worker's pod."""
    return config.spark_master != LOCAL_MASTER


def driver_address(config: WorkerConfig) -> str:
    """The address of this machine at which executors reach the driver: the one from which it reaches the
    master. Raises `ClusterError` ``SparkMasterUnavailable`` if no master accepts a connection."""
    if not is_remote(config):
        return LOOPBACK
    refusals = []
    for one in _addresses(config):
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


def _addresses(config: WorkerConfig) -> list[str]:
    if config.spark_master == KUBERNETES:
        return [":".join(map(str, executor_pods.ADDRESS))]
    return config.spark_master.removeprefix(SCHEME).split(",")


def cluster_settings(config: WorkerConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark for executors, which the user may override."""
    if not is_remote(config):
        return {}
    # The same image, or at least the same paths: modules are found where the driver finds them.
    paths = {"spark.executorEnv.PYTHONPATH": environment.get("PYTHONPATH", "")}
    if config.spark_master == KUBERNETES:
        return paths | executor_pods.DEFAULTS
    # Otherwise the first worker takes all cores of the cluster, and the others wait forever.
    return paths | {"spark.cores.max": str(config.cores)}


def refused(config: WorkerConfig, message: str) -> ClusterError:
    """The error of a session that did not start, or that has ended."""
    must_be = "" if config.spark_master == KUBERNETES else MUST_BE
    return ClusterError(UNAVAILABLE, f"{config.spark_master} did not accept the worker{must_be}: {message}")


def join_cluster(
    session: SparkSession, config: WorkerConfig, code: Path | None, *, pods: ExecutorPods | None = None
) -> None:
    """Wait for the first executor, one of `pods` if they are given, and send the user's modules. Raises
    `ClusterError`."""
    if not is_remote(config):
        return
    patience_s = EXECUTORS_S if pods is None else PODS_S
    give_up_s = time.monotonic() + patience_s
    while not _has_executors(session):
        require_application(session, config)
        if time.monotonic() > give_up_s:
            why = IN_PODS.format(why=pods.why_missing()) if pods is not None else STANDALONE
            raise ClusterError(
                NO_EXECUTORS,
                f"{config.spark_master} has started no executor that reaches this worker within"
                f" {patience_s:.0f} s: {why}",
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
