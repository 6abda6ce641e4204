"""A Spark standalone master and a worker on loopback, as processes of their own, for tests of `spark.master`.

Executors do not see the folders of the driver: the worker runs in a mount namespace in which these are empty.
That needs root, or a system that lets a user create such a namespace.
"""

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from loghub_worker.query.spark_jvm import BRIEF
from tests import java
from tests.spark_settings import jvm_options
from tests.support import wait_until

GUARD_S = 300.0
SPARK = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
EXECUTOR_MIB = 512
LOG_SETTINGS = "log4j2.properties"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_HIDE = 'for folder in $HIDDEN; do mount -t tmpfs none "$folder" || exit 1; done; exec "$@"'
# `warn` is the default of Spark's shell; both lines above are at `info`.
LOGGING = """rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


@functools.cache
def missing() -> str:
    """Why a cluster cannot run here; empty if it can."""
    tried = subprocess.run(
        [*_namespace(), "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"no mount namespace to hide the driver's disk from executors, root has one: {tried.stderr}"
    return java.missing()


def _namespace() -> list[str]:
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster and its URL for `spark.master`."""

    url: str

    def executor_of(self, process: int) -> int:
        """The executor that has started this process of Python, by process ids."""
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        return process


# Settings of Spark for a worker whose JVMs live for a minute, wherever its tasks run.
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": jvm_options(),
    "spark.executor.memory": f"{EXECUTOR_MIB}m",
    "spark.executor.cores": "1",  # so that a worker of two cores has two executors
    "spark.task.maxFailures": "2",
}


@contextmanager
def running_cluster(folder: Path, *, hidden: Sequence[Path], cores: int = 2) -> Iterator[Cluster]:
    """A master and a worker with so many cores, for which the folders `hidden` are empty."""
    folder.mkdir()
    (folder / LOG_SETTINGS).write_text(LOGGING)
    with ExitStack() as ends:
        _start(ends, folder, "master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], prefix=[])
        log = folder / "master.log"
        wait_until(lambda: _MASTER.search(log.read_text()) is not None, "the master", guard_s=GUARD_S)
        match = _MASTER.search(log.read_text())
        assert match is not None
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        options += ["--cores", str(cores), "--memory", f"{2 * cores * EXECUTOR_MIB}m"]
        options += ["--work-dir", str(folder / "worker"), match[1]]
        prefix = [*_namespace(), "sh", "-c", _HIDE, "sh"]
        _start(ends, folder, "worker", options, prefix=prefix, hidden=hidden)
        joined = folder / "worker.log"
        wait_until(lambda: _REGISTERED in joined.read_text(), "the worker", guard_s=GUARD_S)
        yield Cluster(url=match[1])


def _start(
    ends: ExitStack,
    folder: Path,
    name: str,
    options: Sequence[str],
    *,
    prefix: Sequence[str],
    hidden: Sequence[Path] = (),
) -> None:
    kind = "worker.Worker" if prefix else "master.Master"
    # With a folder of settings in place of this, no JVM of the cluster could use the archive of classes.
    log_option = f"-Dlog4j2.configurationFile={(folder / LOG_SETTINGS).as_uri()}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_DIRS": str(folder / f"{name}-local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{jvm_options()} {log_option}",
        "SPARK_LAUNCHER_OPTS": BRIEF,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "HIDDEN": " ".join(map(str, hidden)),
    }
    (folder / f"{name}-local").mkdir()
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, str(SPARK / "bin" / "spark-class"), f"{CLASSES}.{kind}", *options],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    ends.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The process, and the executors, which are in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
