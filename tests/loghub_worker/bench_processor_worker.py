"""What a worker with a processor costs: the start, the memory of each of its processes, and CPU time.

``python -m tests.loghub_worker.bench_processor_worker [LOGS [ROUNDS]]`` starts real workers on a real
service. The handlers read nothing, or every row in Arrow. `tests.loghub_worker.bench_processor` has the same
figures for a program that consumes in its own process.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from loghub.client.port import GroupInfo
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import NoSink
from loghub_consumer import LogBatch, Processor, Tracker
from tests.loghub_consumer.support import Site
from tests.loghub_worker.bench_logs import fill
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn
from tests.loghub_worker.support import (
    GROUP,
    LOGSTORE,
    WorkerProcess,
    prepare,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

SHARDS, LOGS_PER_GROUP = 4, 200
MODULE = "tests.loghub_worker.bench_processor_worker"
FIRST_LOG = "FIRST_LOG"  # the variable with the path of the file that gets the time of the first log


class Nothing(Processor):
    """Notes when the worker had its first log, and reads nothing."""

    has_noted = False  # of the process

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if not Nothing.has_noted:
            Nothing.has_noted = True
            first = Path(os.environ[FIRST_LOG])
            if not first.exists():
                first.write_text(str(_age_s(os.getppid())))
        self.read(logs)
        tracker.save(persist=False)

    def read(self, logs: LogBatch) -> None:
        """The difference between the runs."""


class Arrow(Nothing):
    def read(self, logs: LogBatch) -> None:
        assert logs.arrow.num_rows


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _age_s(pid: int) -> float:
    """Seconds since a process was started, its interpreter included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _mib(pid: int, name: str) -> float:
    """A line of the kernel's account of a process: VmHWM is the peak of resident memory, Pss its share of
    what several processes have in common."""
    file = "smaps_rollup" if name == "Pss" else "status"
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def run(site: Site, folder: Path, factory: str, processes: int, **settings: Any) -> dict[str, float]:
    """One worker that processes everything; with further settings of its processor."""
    client = site.client
    if client.list_groups(site.logstore):
        client.delete_group(site.logstore, GROUP)
    client.create_group(site.logstore, GroupInfo(name=GROUP, timeout_s=30, order=False))
    first = folder / "first"
    first.unlink(missing_ok=True)
    config = worker_config(
        site.service.endpoint,
        NoSink(),
        logstore=site.logstore,
        pipeline=ProcessorPipeline(factory=f"{MODULE}:{factory}", processes=processes, **settings),
        checkpoint_interval_s=0.5,
    )
    with worker_processes(folder, site.service, {FIRST_LOG: str(first)}) as workers:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - the worker's log, shown by its end
        worker = workers.start(f"w-{time.monotonic_ns()}", config)
        wait_until(first.exists, "the first log")
        wait_until(lambda: site.checkpoints(GROUP) == site.ends(), "everything to be processed")
        children = _children(worker)
        figures = {
            "first_s": float(first.read_text()),
            "cpu_s": sum(map(_cpu_s, (worker.process.pid, *children))),
            "worker_peak": _mib(worker.process.pid, "VmHWM"),
            "process_peak": max(_mib(pid, "VmHWM") for pid in children),
            "pss": sum(_mib(pid, "Pss") for pid in (worker.process.pid, *children)),
        }
        worker.end(signal.SIGTERM)
    sys.stdout = sys.__stdout__
    return figures


def _children(worker: WorkerProcess) -> list[int]:
    tasks = Path(f"/proc/{worker.process.pid}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def main(logs: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        bench(service, Path(name), logs, rounds)


def bench(service: ServiceProcess, folder: Path, logs: int, rounds: int) -> None:
    client = prepare(service, shards=SHARDS)
    site = Site(service, client)
    site.logstore = LOGSTORE
    fill(service, logs=logs, per_group=LOGS_PER_GROUP)
    kinds = {
        f"{factory:8} {processes} process{'es' if processes > 1 else '  '}": (factory, processes)
        for factory, processes in (("Nothing", 1), ("Arrow", 1), ("Arrow", 2))
    }
    runs = in_turn({label: partial(run, site, folder, *kind) for label, kind in kinds.items()}, rounds)
    for label, figures in runs.items():
        middle = {name: statistics.median(one[name] for one in figures) for name in figures[0]}
        print(
            f"{label}: first log after {middle['first_s']:.2f} s,"
            f" CPU {middle['cpu_s']:.2f} s, {logs / middle['cpu_s']:,.0f} logs per CPU second,"
            f" peak memory {middle['worker_peak']:.0f} MB in the worker, {middle['process_peak']:.0f} MB in a"
            f" process, together {middle['pss']:.0f} MB in the end (PSS)"
        )
    client.close()


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 400_000, given[1] if len(given) > 1 else ROUNDS)
