"""Helpers of the worker's tests: log lines, a logstore with logs, and worker processes.

`tests.support` starts the service process that they use.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.contract.sinks import Sink
from loghub.contract.worker import CONTRACT_VERSION, SqlPipeline, WorkerConfig, WorkerStatus
from loghub.wire.loggroup import Log, LogGroup, decode, encode, split
from loghub_consumer.log_service import LogServiceAddress
from tests.support import PYTHON_PATH, ROOT, ServiceProcess, wait_until

LOGS = Path(os.environ.get("LOGHUB_TEST_LOGS") or ROOT / ".." / "shared" / "data" / "logs")
PROJECT, LOGSTORE, GROUP = "demo", "access", "readers"
# The id is the producer's own: file, pass and line; equal lines are different lines.
SQL = """
SELECT contents['id'] AS id, contents['line'] AS line, __time__, __shard__, __cursor__, __index__ FROM logs
"""
GUARD_S = 900.0  # a hang guard; a busy machine may need minutes to start a JVM


def real_lines(max_per_file: int = 500) -> list[str]:
    """Lines of the log files, or generated lines if the folder does not exist."""
    files = sorted(LOGS.glob("*.log")) if LOGS.is_dir() else []
    generated = [
        f'10.0.{n % 9}.{n % 250} - - "GET /p/{n}?q=ü%20{n} HTTP/1.1" 200 {n * 7}' for n in range(2000)
    ]
    lines = [line for file in files for line in islice(_lines(file), max_per_file)]
    return lines or generated


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as text:
        for line in text:
            yield line.rstrip("\n")


# Of sinks that read nothing from the log service, or whose test has none.
SOURCE = LogServiceAddress(endpoint="http://x", project=PROJECT, credentials_dir="/k")
NO_VARIABLES: Mapping[str, str] = {}


class Producer:
    """Writes lines with ids into a logstore and remembers every id."""

    def __init__(self, client: HttpLogHub, logstore: str = LOGSTORE) -> None:
        self._client = client
        self._logstore = logstore
        self._lines = real_lines()
        self._ids = count()
        self.sent: Counter[str] = Counter()

    def use(self, client: HttpLogHub) -> None:
        """Write with this client from now on."""
        self._client = client

    def put(self, *, groups: int, logs: int = 10, hash_key: str | None = None) -> None:
        for _ in range(groups):
            self._put([next(self._ids) for _ in range(logs)], hash_key)

    def _put(self, ids: Iterable[int], hash_key: str | None) -> None:
        lines = [(f"id-{n}", self._lines[n % len(self._lines)]) for n in ids]
        logs = tuple(
            Log(time=int(time.time()), contents=(("id", name), ("line", line))) for name, line in lines
        )
        self._client.put_logs(
            self._logstore, encode(LogGroup(logs=logs, topic="t", source="s")), hash_key=hash_key
        )
        self.sent.update(name for name, _ in lines)


def prepare(service: ServiceProcess, *, shards: int = 4, timeout_s: int = 30) -> HttpLogHub:
    """Create a project, a logstore and a consumer group; return a client of the project."""
    client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
    client.create_project("tests")
    client.create_logstore(LOGSTORE, shards=shards)
    client.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=timeout_s, order=False))
    return client


def all_saved(client: HttpLogHub) -> bool:
    """Whether the checkpoint of each shard is at its end."""
    return all(s.checkpoint == s.end_cursor for s in client.group_status(LOGSTORE, GROUP).shards)


def worker_config(endpoint: str, sink: Sink, **changes: Any) -> WorkerConfig:
    """Settings with short intervals, except for the group's timeout."""
    settings: dict[str, Any] = {
        "contract_version": CONTRACT_VERSION,
        "endpoint": endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "consumer_group": GROUP,
        "heartbeat_interval_s": 0.5,
        "timeout_s": 30,
        "start_position": "begin",
        "fetch_interval_s": 0.2,
        "max_log_groups": 100,
        "max_bytes": 64 << 20,
        "checkpoint_interval_s": 0.0,
        "trigger_interval_s": 0.2,
        "pipeline": SqlPipeline(text=SQL),
        "sink": sink,
        "cores": 1,
        "spark_memory": None,
        # A JVM of a minute is not worth the second compiler's time.
        "spark_conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
        "drain_timeout_s": 60.0,
    }
    return WorkerConfig(**(settings | changes))


def worker_environment(folder: Path, *, name: str, credentials_dir: Path) -> dict[str, str]:
    """The variables of a worker whose files are all in `folder`."""
    return {
        "LOGHUB_WORKER_CONFIG": str(folder / "config.json"),
        "LOGHUB_CONSUMER": name,
        "LOGHUB_CREDENTIALS_DIR": str(credentials_dir),
        "LOGHUB_DRAIN_FILE": str(folder / "drain"),
        "LOGHUB_STATE_DIR": str(folder / "state"),
        "LOGHUB_STATUS_FILE": str(folder / "status.json"),
        "LOGHUB_TERMINATION_LOG": str(folder / "termination"),
    }


class WorkerProcess:
    """A real ``python -m loghub_worker``."""

    def __init__(
        self,
        folder: Path,
        config: WorkerConfig,
        *,
        name: str,
        credentials_dir: Path,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        """`environment` has further variables."""
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_bytes(msgspec.json.encode(config))
        self.drain_file = self.folder / "drain"
        self._status = self.folder / "status.json"
        self._log = (self.folder / "log").open("ab")
        self._status.unlink(missing_ok=True)
        variables = worker_environment(self.folder, name=name, credentials_dir=credentials_dir)
        self._environment = {"PYTHONPATH": PYTHON_PATH} | variables | environment
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loghub_worker"],
            cwd=ROOT,
            env=os.environ | self._environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def status(self) -> WorkerStatus | None:
        if not self._status.exists():
            return None
        return msgspec.json.decode(self._status.read_bytes(), type=WorkerStatus)

    @property
    def phase(self) -> str:
        """The phase in its status file. Fails if the process has ended with an error."""
        assert self.process.poll() in (None, 0), f"{self.name} died:\n{self.log_tail()}"
        status = self.status
        return "" if status is None else status.phase

    @property
    def shards(self) -> set[int]:
        status = self.status
        return set() if status is None else {shard.shard for shard in status.shards}

    def log_tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def end(self, how: signal.Signals) -> int:
        """Send the signal, wait for the process to end, and return its exit status."""
        self.process.send_signal(how)
        return self.wait()

    def drain(self) -> int:
        """Run the preStop hook, as when a pod ends; return the exit status of the worker."""
        command, environment = (
            [sys.executable, "-m", "loghub_worker.pre_stop"],
            os.environ | self._environment,
        )
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=GUARD_S)
        return self.wait()

    def signal_all(self, how: signal.Signals) -> None:
        """Send the signal to this process, which alone commits and saves checkpoints, then to every process
        that was started for it, until no further one appears: one that still runs may start others. Spark's
        Python processes have a process group of their own, so no single call reaches all of them."""
        self.process.send_signal(how)
        signalled = {self.process.pid}
        while found := processes_of(self).keys() - signalled:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            signalled |= found

    def kill_all(self) -> None:
        """Kill every process of this worker, as the end of its node would, and wait until none is left."""
        self.signal_all(signal.SIGKILL)
        self.wait()
        wait_until(lambda: not processes_of(self), "Spark's processes to end")

    def wait(self) -> int:
        try:
            return self.process.wait(GUARD_S)
        finally:
            self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal_all(signal.SIGKILL)
            self.process.kill()  # where there is no /proc
            self.process.wait()
        if not self._log.closed:
            self._log.close()
            print(f"--- {self.name}\n{self.log_tail()}")  # pytest shows it where a test failed


def processes_of(worker: WorkerProcess) -> dict[int, tuple[str, str]]:
    """Command line and environment of every running process that was started for this worker, by process
    id."""
    variable = f"LOGHUB_STATE_DIR={worker.folder}/".encode()
    processes = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            texts = [(process / name).read_bytes() for name in ("cmdline", "environ")]
            if variable in texts[1]:
                command, environment = (text.decode(errors="replace") for text in texts)
                processes[int(process.name)] = (command, environment)
    return processes


class Workers:
    """Worker processes that end with the test."""

    def __init__(
        self, folder: Path, credentials_dir: Path, environment: Mapping[str, str] = NO_VARIABLES
    ) -> None:
        self._folder = folder
        self._credentials_dir = credentials_dir
        self._environment = environment
        self._started: list[WorkerProcess] = []

    def start(self, name: str, config: WorkerConfig) -> WorkerProcess:
        worker = WorkerProcess(
            self._folder,
            config,
            name=name,
            credentials_dir=self._credentials_dir,
            environment=self._environment,
        )
        self._started.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._started:
            worker.close()


@contextmanager
def worker_processes(
    folder: Path, service: ServiceProcess, environment: Mapping[str, str] = NO_VARIABLES
) -> Iterator[Workers]:
    workers = Workers(folder, service.credentials_dir, environment)
    try:
        yield workers
    finally:
        workers.close()


class LogstoreReader:
    """Reads what is new in a logstore with one shard."""

    def __init__(self, client: HttpLogHub, logstore: str) -> None:
        self._client = client
        self._logstore = logstore
        self._cursor = client.get_cursor(logstore, 0, "begin")

    def logs(self) -> Iterator[Log]:
        """The logs that were written since the last call."""
        while True:
            pulled = self._client.pull_logs(self._logstore, 0, cursor=self._cursor, count=1000)
            if not pulled.count:
                return
            self._cursor = pulled.next_cursor
            for group in split(pulled.body):
                yield from decode(group).logs


def row_of(log: Log) -> dict[str, str]:
    """The contents of a log as texts."""
    return {str(key): value if isinstance(value, str) else value.decode() for key, value in log.contents}


def delivered(sink: Path) -> Counter[str]:
    """The ids in a Parquet folder, read file by file by pyarrow."""
    ids: Counter[str] = Counter()
    for file in sink.glob("*.parquet"):
        ids.update(_ids_in(file))
    return ids


@cache
def _ids_in(file: Path) -> tuple[str, ...]:
    """A file of the sink never changes; reading all of them at every poll would take a core from Spark."""
    return tuple(pq.read_table(file, columns=["id"]).column("id").to_pylist())


def wait_delivered(sink: Path, sent: Counter[str], workers: Iterable[WorkerProcess] = ()) -> None:
    """Wait until the sink has at least as many rows as were sent."""

    def is_delivered() -> bool:
        for worker in workers:
            assert worker.process.poll() is None, f"{worker.name} died:\n{worker.log_tail()}"
        return delivered(sink).total() >= sent.total()

    try:
        wait_until(is_delivered, f"{sent.total()} rows in the sink", guard_s=GUARD_S)
    except AssertionError as error:
        statuses = {w.name: json.loads(msgspec.json.encode(w.status)) for w in workers}
        raise AssertionError(f"{error}; the sink has {delivered(sink).total()}; {statuses}") from None


def source_of(service: ServiceProcess) -> LogServiceAddress:
    """The project of the tests at this service."""
    return LogServiceAddress(
        endpoint=service.endpoint, project=PROJECT, credentials_dir=str(service.credentials_dir)
    )
