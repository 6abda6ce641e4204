"""The memory of a worker: idle, under a steady load, and whether it grows.

``python -m tests.loghub_worker.bench_memory [SECONDS [LOGS_A_SECOND]]`` runs a worker with one core, a heap
of the default size and the settings of a group without any, whose query writes ten fields to Parquet files.
It is idle for a minute, then gets logs at this rate for so long, and is idle once more. Every five seconds
the proportional set sizes (PSS) of its processes are added up, by kind: the worker, Spark's JVM, Spark's
Python processes; the embedded service's is apart. The slope is a least-squares line through the second half
of the load, since the first half has the growth of heap and code caches to their size. Files are deleted once
they are counted and two minutes old; the service's data stay, about 100 bytes for each log.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import linear_regression, median

import pyarrow.parquet as pq

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import SqlPipeline
from tests.loghub_worker.bench_logs import encoded_groups
from tests.loghub_worker.bench_pipeline import FIELDS
from tests.loghub_worker.support import (
    GUARD_S,
    LOGSTORE,
    PROJECT,
    WorkerProcess,
    prepare,
    processes_of,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

SHARDS, LOGS_PER_GROUP, PRODUCERS = 4, 200, 4
IDLE_S, SAMPLE_S, PRINT_S, KEEP_S, CATCH_UP_S = 60.0, 5.0, 300.0, 120.0, 5.0
WORKER, JVM, SPARKS_PYTHON, SERVICE = "worker", "JVM", "Spark's Python", "service"
OF_THE_WORKER = (WORKER, JVM, SPARKS_PYTHON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """MiB by kind of process, at one time."""

    after_s: float
    mib: dict[str, float]

    @property
    def total_mib(self) -> float:
        return sum(self.mib[kind] for kind in OF_THE_WORKER)


class Sampler:
    """Takes samples of a worker and of the service."""

    def __init__(self, worker: WorkerProcess, service: ServiceProcess) -> None:
        self._worker = worker
        self._service = service
        self._began_s = time.monotonic()

    def take(self) -> Sample:
        assert self._worker.process.poll() is None, self._worker.log_tail()
        mib = dict.fromkeys(OF_THE_WORKER, 0.0) | {SERVICE: _pss_mib(self._service.pid)}
        kinds = {pid: _kind(command) for pid, (command, _) in processes_of(self._worker).items()}
        for pid, kind in kinds.items():
            with suppress(OSError):  # it has ended
                if not (kind == JVM and kinds.get(_parent(pid)) == JVM):
                    mib[kind] += _pss_mib(pid)
        return Sample(after_s=time.monotonic() - self._began_s, mib=mib)

    def during(self, seconds: float) -> list[Sample]:
        samples, began_s = [self.take()], time.monotonic()
        printed_s = began_s
        while (now_s := time.monotonic()) < began_s + seconds:
            time.sleep(min(SAMPLE_S, max(0.0, began_s + seconds - now_s)))
            samples.append(self.take())
            if now_s - printed_s >= PRINT_S:
                printed_s = now_s
                print(f"after {now_s - began_s:5.0f} s: {_texts(samples[-1])}", flush=True)
        return samples


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _parent(pid: int) -> int:
    """A process that the JVM has just started still has the JVM's memory, which would count twice."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _kind(command: str) -> str:
    arguments = command.split("\0")
    if arguments[0].endswith("java"):
        return JVM
    return WORKER if "loghub_worker" in arguments else SPARKS_PYTHON


class Load:
    """Producers with a steady rate. One that was held up catches up with a few seconds, not with more."""

    def __init__(self, service: ServiceProcess, logs_per_s: float) -> None:
        self._groups = encoded_groups(LOGS_PER_GROUP)
        self._pause_s = LOGS_PER_GROUP * PRODUCERS / logs_per_s
        self._ended = threading.Event()
        self._numbers = count()
        self._sent = [0] * PRODUCERS
        self._clients = [
            HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials) for _ in self._sent
        ]
        self._threads = [threading.Thread(target=partial(self._run, n)) for n in range(PRODUCERS)]

    @property
    def logs(self) -> int:
        """Those that the service has acknowledged."""
        return sum(self._sent)

    def _run(self, number: int) -> None:
        client = self._clients[number]
        keys = [one.begin_key for one in client.list_shards(LOGSTORE)]
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            n = next(self._numbers)
            client.put_logs(LOGSTORE, self._groups[n % len(self._groups)], hash_key=keys[n % len(keys)])
            self._sent[number] += LOGS_PER_GROUP
            due_s = max(due_s + self._pause_s, time.monotonic() - CATCH_UP_S)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for client in self._clients:
            client.close()


class Sink:
    """Counts the rows of the files, and deletes those that nobody needs any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counted: dict[Path, float] = {}  # the time at which a file was counted
        self.rows = 0

    def look(self) -> int:
        """The rows so far."""
        now_s = time.monotonic()
        for file in set(self._folder.glob("*.parquet")) - self._counted.keys():
            self.rows += pq.read_metadata(file).num_rows
            self._counted[file] = now_s
        for file, counted_s in list(self._counted.items()):
            if now_s - counted_s > KEEP_S:
                file.unlink()
                del self._counted[file]
        return self.rows


@contextmanager
def looking(sink: Sink) -> Iterator[None]:
    """Look at the sink once a second meanwhile."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(1.0):
            sink.look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def slope_mib_per_h(samples: list[Sample], of: Callable[[Sample], float]) -> float:
    """Of the second half."""
    half = samples[len(samples) // 2 :]
    return linear_regression([one.after_s / 3600 for one in half], [of(one) for one in half]).slope


def measure(service: ServiceProcess, folder: Path, seconds: float, logs_per_s: float) -> None:
    client = prepare(service, shards=SHARDS)
    sink = ParquetSink(path=str(folder / "sink"))
    config = worker_config(
        service.endpoint,
        sink,
        pipeline=SqlPipeline(text=FIELDS),
        heartbeat_interval_s=5.0,
        fetch_interval_s=1.0,
        trigger_interval_s=1.0,
        max_log_groups=1_000_000,
        checkpoint_interval_s=5.0,
        spark_conf={},
    )
    load, files = Load(service, logs_per_s), Sink(Path(sink.path))
    with redirect_stdout(sys.stderr), worker_processes(folder, service) as workers:
        worker = workers.start("w-0", config)
        client.put_logs(LOGSTORE, encoded_groups(LOGS_PER_GROUP)[0])
        wait_until(lambda: files.look() > 0, "the first file", guard_s=GUARD_S)
        sampler = Sampler(worker, service)
        idle = sampler.during(IDLE_S)
        print(f"idle: {_texts(idle[-1])}", flush=True)
        with looking(files):
            load.start()
            try:
                loaded = sampler.during(seconds)
            finally:
                load.end()
        behind = load.logs + LOGS_PER_GROUP - files.look()
        expected = load.logs + LOGS_PER_GROUP
        wait_until(lambda: files.look() >= expected, f"{expected} rows", guard_s=GUARD_S)
        after = sampler.during(IDLE_S)
    assert files.rows == expected, f"{files.rows} rows of {expected} logs"
    _print_phases({"idle": idle, "loaded": loaded, "idle again": after}, loaded)
    print(
        f"{load.logs} logs, {load.logs / seconds:,.0f} a second; {behind} of them were on their way at the"
        " end, and all came through once"
    )
    client.close()


def _texts(sample: Sample) -> str:
    parts = ", ".join(f"{kind} {mib:.0f}" for kind, mib in sample.mib.items())
    return f"{parts}; all of the worker {sample.total_mib:.0f} MiB"


def _print_phases(phases: dict[str, list[Sample]], loaded: list[Sample]) -> None:
    kinds: dict[str, Callable[[Sample], float]] = {"all of the worker": lambda one: one.total_mib}
    kinds |= {kind: partial(_mib_of, kind) for kind in (*OF_THE_WORKER, SERVICE)}
    heads = "".join(f"{name:>12}{'max':>8}" for name in phases)
    print(f"{'PSS in MiB, medians':20}{heads}{'slope, MiB/h':>14}")
    for label, of in kinds.items():
        figures = "".join(
            f"{median(map(of, samples)):12.0f}{max(map(of, samples)):8.0f}" for samples in phases.values()
        )
        print(f"{label:20}{figures}{slope_mib_per_h(loaded, of):14.1f}")


def _mib_of(kind: str, sample: Sample) -> float:
    return sample.mib[kind]


def main(seconds: float, logs_per_s: float) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        measure(service, Path(name), seconds, logs_per_s)


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 180.0, given[1] if len(given) > 1 else 20_000.0)
