"""The Spark session of a worker.

Spark runs as `local[cores]`, or its tasks run in a cluster, with everything off that a single pod does not
need (docs/spark.md 5). If it cannot start, the error has a reason and a message for the user.

With a cluster, `spark.master` is the URL of a standalone master, or of the API server
(`loghub_worker.query.executor_pods`). The driver stays in the worker's process, and with it planning, the
membership and the commit of a batch. Tasks run in executors on other machines, which have neither the
driver's memory nor its disk: their code and data come from the image, from folders that are mounted there
under the same paths, or through Spark.
"""

import os
import pkgutil
import pwd
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from loghub.contract.worker import (
    KUBERNETES,
    LOCAL_MASTER,
    SPARK_MASTER,
    SPARK_MEMORY,
    Pipeline,
    PythonPipeline,
    WorkerConfig,
    is_workers_own,
)
from loghub_consumer.errors import FatalError, first_lines
from loghub_worker.cluster_error import NO_EXECUTORS, UNAVAILABLE, ClusterError
from loghub_worker.query import executor_pods
from loghub_worker.query.executor_pods import ExecutorPods
from loghub_worker.query.spark_jvm import BRIEF, JAVA_OPTIONS, java_options
from loghub_worker.sink.files.executor_files import FilesDataSource
from loghub_worker.source import GroupDataSource
from loghub_worker.spark_errors import SPARK_ERRORS, java_causes

log = structlog.get_logger()


SCHEME = "spark://"
LOOPBACK = "127.0.0.1"
CONNECT_S = 5.0  # for one of the masters to accept a connection: a firewall that drops it gives no error
EXECUTORS_S = 60.0  # for the first executor to run: its JVM starts in seconds, its image is there
PODS_S = 240.0  # for the first executor if its image may have to be pulled, or its node be started
LOOK_S = 0.1  # the first executor takes seconds, and a look is a call into the JVM
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
    for candidate in _addresses(config):
        parsed = _HOST_PORT.fullmatch(candidate)
        if parsed is None:
            raise ClusterError(
                UNAVAILABLE, f"{config.spark_master} is no address of a master, spark://host:port"
            )
        try:
            with socket.create_connection((parsed[1], int(parsed[2])), CONNECT_S) as connection:
                address = str(connection.getsockname()[0])
                return f"[{address}]" if ":" in address else address
        except (OSError, OverflowError) as error:
            refusals.append(f"{candidate}: {error}")
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
    # Without this, the first worker takes all cores of the cluster, and the others wait forever.
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


MODULES_OF_SOURCES = "pyspark_"  # Spark registers their data sources by itself
USER = "loghub"  # the owner of files, if the system has no name for the process's user
# What Spark writes to its checkpoint directory. Each file is written under another name and renamed.
CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def start_spark(
    config: WorkerConfig,
    state_dir: Path,
    *,
    class_archive: Path | None = None,
    code: Path | None = None,
    pod: str = "",
    only_plans: bool = False,
) -> SparkSession:
    """Start the session and register the data sources. `code` is a folder with the user's modules, and `pod`
    the worker's, for executors in pods. `only_plans`: Spark computes no rows. Raises `FatalError`
    ``JavaMissing``, ``SparkNotStarted``, or for a cluster ``SparkMasterUnavailable`` or ``NoExecutors``."""
    _require_java()
    if code is not None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    with _cluster_failures():
        host = driver_address(config)
        pods = _executor_pods(config, pod)
    # Spark's other processes must use this same Python (docs/spark.md 8), in a pod on loopback only.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if sys.flags.safe_path:  # nor may they import modules from the current folder
        os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["SPARK_LOCAL_IP"] = host
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)
    conf = SparkConf().setAppName(f"loghub-{config.consumer_group}")
    (state_dir / "tmp").mkdir(parents=True, exist_ok=True)
    settings = spark_settings(
        config, state_dir, host=host, class_archive=class_archive, only_plans=only_plans
    )
    if pods is not None:
        settings |= pods.spark_settings(state_dir / "executor.json", cores=config.cores)
    conf.setAll(list(settings.items()))
    # Spark installs a handler of its own for SIGINT, which would end a drain on Ctrl-C.
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        if not _has_a_name(os.getuid()):
            _name_user(conf)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except SPARK_ERRORS as error:
        with _cluster_failures():
            if is_remote(config):
                raise refused(config, first_lines(error)) from error
        raise FatalError("SparkNotStarted", first_lines(error)) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)
    with _cluster_failures():
        join_cluster(session, config, code, pods=pods)
    register_sources(session)
    return session


def register_sources(session: SparkSession) -> None:
    """Register the data sources. That is the first use of the session, which reads the settings of SQL.
    Raises `FatalError` ``SparkNotStarted`` if one of them has no valid value."""
    try:
        _find_no_sources(session)
        session.dataSource.register(GroupDataSource)
        session.dataSource.register(FilesDataSource)
    except SPARK_ERRORS as error:
        texts = [text for _, text in java_causes(error) if text]
        raise FatalError("SparkNotStarted", texts[-1] if texts else first_lines(error)) from error


def _find_no_sources(session: SparkSession) -> None:
    """Spare Spark its search for data sources in modules named ``pyspark_*``, by a Python process of its own,
    if there is no such module here or among the user's."""
    folders = [*sys.path, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if any(module.name.startswith(MODULES_OF_SOURCES) for module in pkgutil.iter_modules(folders)):
        return
    jvm = session.sparkContext._jvm
    assert jvm is not None  # of a session that has started
    manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
    none = getattr(jvm.scala.collection.immutable, "Map$EmptyMap$")
    found = jvm.scala.Some(getattr(none, "MODULE$"))
    getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(found)


def write_checksums(session: SparkSession, *, wanted: bool) -> None:
    """Whether Spark writes a second file, with checksums, for each file that it writes on this machine. Only
    the check of a state after a loss of power reads them (`loghub_worker.state.checkpoint_folder`), and Spark
    starts `chmod` for each."""
    jvm = session.sparkContext._jvm
    assert jvm is not None  # of a session that has started
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(session.sparkContext._jsc.hadoopConfiguration())
    files.setWriteChecksum(wanted)


def compute_nothing(session: SparkSession) -> None:
    """Let Spark interpret its own part of a query whose rows it does not compute: there is one row for each
    task, and to generate code for that takes longer than to run it."""
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")


def _executor_pods(config: WorkerConfig, pod: str) -> ExecutorPods | None:
    """Raises `ClusterError` if the API server cannot be used."""
    if config.executors is None:
        return None
    pods = ExecutorPods(config.executors, worker=pod)
    pods.delete_earlier()
    return pods


@contextmanager
def _cluster_failures() -> Iterator[None]:
    try:
        yield
    except ClusterError as error:
        raise FatalError(error.reason, str(error)) from error


def _has_a_name(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return False


def _name_user(conf: SparkConf) -> None:
    """Start the JVM and log a user in there. Spark's file systems request the name of the user from the
    system and fail without one, and a platform such as OpenShift runs a pod under a uid that the image does
    not know (docs/spark.md 8)."""
    SparkContext._ensure_initialized(conf=conf)
    jvm = SparkContext._jvm
    assert jvm is not None  # it was started
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(USER))


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        raise FatalError(
            "JavaMissing", "Spark needs Java 17 or newer: install openjdk-17-jre-headless or set JAVA_HOME"
        )


def spark_settings(
    config: WorkerConfig,
    state_dir: Path,
    *,
    host: str = LOOPBACK,
    class_archive: Path | None = None,
    only_plans: bool = False,
) -> dict[str, str]:
    """The worker's settings, with the driver at the address `host`. The user's settings override them, except
    the ones that only the worker may set; Java options are joined. `only_plans`: Spark computes no rows."""
    defaults = {
        SPARK_MASTER: config.spark_master if is_remote(config) else f"local[{config.cores}]",
        "spark.ui.enabled": "false",
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        SPARK_MEMORY: config.spark_memory or "512m",
        JAVA_OPTIONS: java_options(state_dir, class_archive, only_plans=only_plans),
        "spark.jars.ivy": str(state_dir / "ivy"),
        "spark.local.dir": str(state_dir / "local"),
        "spark.sql.warehouse.dir": (state_dir / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # In place of INT96, which is deprecated, has no time zone and no bounds in the statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": str(config.cores),
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        # With Spark's other one, each micro-batch starts `chmod` and `readlink` 20 times, which takes 0.1 s.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        # It needs pandas, and warns if that is missing; a user whose image has it may enable it.
        "spark.sql.execution.pythonUDF.arrow.enabled": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # A sink that reads the rows in this process reads them task by task, however large a batch is.
        "spark.driver.maxResultSize": "0",
        "spark.log.level": "ERROR",  # Spark warns of every batch that takes longer than the trigger
        "spark.ui.showConsoleProgress": "false",
    } | cluster_settings(config, os.environ)
    allowed = {name: value for name, value in config.spark_conf.items() if not is_workers_own(name)}
    ignored = sorted(config.spark_conf.keys() - allowed.keys())
    if ignored:
        log.warning("settings of Spark that only the worker sets are ignored", ignored=ignored)
    joined = f"{defaults[JAVA_OPTIONS]} {allowed.get(JAVA_OPTIONS, '')}".strip()
    return defaults | allowed | {JAVA_OPTIONS: joined}


def invalid(error: Exception) -> FatalError:
    """`InvalidPipeline` with the first lines of Spark's own message."""
    return FatalError("InvalidPipeline", first_lines(error))
