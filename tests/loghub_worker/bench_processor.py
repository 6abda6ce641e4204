"""What a consumer of `loghub_consumer` costs, next to the vendor's consumer libraries on the same logs.

``python -m tests.loghub_worker.bench_processor [LOGS [ROUNDS [NAME ..]]]`` prints the CPU seconds for a
million logs, the seconds from the start of a process to its first log, and its peak memory. There are three
kinds of handlers: those that read nothing, those that read every field of every log, and those that read
every row in Arrow. The start of a program, its idle requests and its end are in no figure: each one runs on a
few logs too, and what that costs is subtracted. The CPU time is that of whole processes, as the kernel counts
it, without the service's. The programs run in turn; medians count, with the least and the greatest, and the
ratios are the medians of those of each round. With names, only the programs run whose names contain one of
them.
"""

import resource
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster import compiling
from tests.loghub_consumer.support import Site, programs, wait_for
from tests.loghub_worker.bench_logs import fill
from tests.loghub_worker.bench_processor_worker import run as run_worker
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn, ratios, spread
from tests.loghub_worker.support import LOGSTORE, prepare
from tests.loghub_worker.vendor_consumers import GO, run_go, run_python
from tests.support import running_service

SHARDS, LOGS_PER_GROUP, FEW = 4, 200, 8_000
VENDOR_BYTES = 10 << 20  # as much as an answer has at most, which the vendor's libraries hand over as it is
Figures = dict[str, Any]


def run_ours(site: Site, _: int, read: str, **settings: Any) -> Figures:
    """One process that reads everything; its first log and its memory."""
    with programs() as start:
        program = start(site, "ours", quiet=True, read=read, checkpoint_interval_s=0.5, **settings)
        wait_for(lambda: site.saved() == site.ends(), "everything to be read")
        assert program.end(signal.SIGTERM) == 0
        (ended,) = program.of("ended")
        assert ended["modules"] == [], "no Spark"
        first = min(program.of("process"), key=lambda one: one["after_s"])
        return {"first_s": first["after_s"], "first_mb": first["peak_mb"], "peak_mb": ended["peak_mb"]}


def run_pool(site: Site, _: int, factory: str, **settings: Any) -> Figures:
    """A worker with one process for its processor."""
    with tempfile.TemporaryDirectory() as folder:
        return run_worker(site, Path(folder), factory, 1, **settings)


PROGRAMS: dict[str, Callable[[Site, int], Figures | None]] = {
    "consumer, nothing": partial(run_ours, read="nothing"),
    "consumer, nothing, large batches": partial(
        run_ours, read="nothing", max_bytes=VENDOR_BYTES, max_buffered_bytes=2 * SHARDS * VENDOR_BYTES
    ),
    "worker's process pool, nothing": partial(run_pool, factory="Nothing"),
    "pool, nothing, large batches": partial(run_pool, factory="Nothing", max_bytes=VENDOR_BYTES),
    "vendor's Go, nothing": partial(run_go, read="nothing"),
    "vendor's Python, nothing": partial(run_python, read="nothing"),
    "consumer, every row in Arrow": partial(run_ours, read="arrow"),
    "worker's process pool, Arrow": partial(run_pool, factory="Arrow"),
    "consumer, every field": partial(run_ours, read="groups"),
    "vendor's Go, every field": partial(run_go, read="logs"),
    "vendor's Python, every field": partial(run_python, read="logs"),
}
RATIOS = (
    ("vendor's Python, nothing", "consumer, nothing"),
    ("vendor's Go, nothing", "consumer, nothing"),
    ("vendor's Python, nothing", "consumer, nothing, large batches"),
    ("vendor's Python, nothing", "worker's process pool, nothing"),
    ("vendor's Python, nothing", "pool, nothing, large batches"),
    ("vendor's Go, nothing", "worker's process pool, nothing"),
    ("vendor's Python, every field", "consumer, every field"),
    ("vendor's Python, every field", "consumer, every row in Arrow"),
    ("vendor's Go, every field", "consumer, every row in Arrow"),
)


@contextmanager
def filled(logs: int) -> Iterator[Site]:
    """A service of its own with so many logs."""
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=SHARDS)
        fill(service, logs=logs, per_group=LOGS_PER_GROUP)
        site = Site(service, client)
        site.logstore = LOGSTORE
        yield site
        client.close()


def measured(program: Callable[[Site, int], Figures | None], site: Site, logs: int) -> Figures:
    """The figures of one run, with its CPU seconds."""
    site.client.delete_group(site.logstore, "readers")
    site.create_group()
    before = _cpu_of_ended_s()
    figures = program(site, logs // LOGS_PER_GROUP) or {}
    return figures | {"cpu_s": _cpu_of_ended_s() - before}


def _cpu_of_ended_s() -> float:
    """Of the processes that this one has started and that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


Pair = tuple[Figures, Figures]  # of a run on few logs, and of one on all


def measured_twice(program: Callable[[Site, int], Figures | None], few: Site, many: Site, logs: int) -> Pair:
    return measured(program, few, FEW), measured(program, many, logs)


def main(logs: int, rounds: int, wanted: list[str]) -> None:
    compiling.ensure(GO)  # its CPU time must not count
    names = [name for name in PROGRAMS if not wanted or any(part in name for part in wanted)]
    with ExitStack() as stack:
        few, many = stack.enter_context(filled(FEW)), stack.enter_context(filled(logs))
        programs = {name: partial(measured_twice, PROGRAMS[name], few, many, logs) for name in names}
        runs = in_turn(programs, rounds)
    costs = {
        name: [(more["cpu_s"] - less["cpu_s"]) * 1e6 / (logs - FEW) for less, more in found]
        for name, found in runs.items()
    }
    print(f"CPU s per million logs, of {logs} logs; {rounds} rounds: median (least to greatest)")
    for name, found in runs.items():
        start_s = statistics.median(less["cpu_s"] for less, _ in found)
        print(f"{name:32} {spread(costs[name]):>22}; on {FEW} logs {start_s:5.2f} CPU s")
    for theirs, ours in RATIOS:
        if theirs in costs and ours in costs:
            print(f"{theirs} / {ours}: {spread(ratios(costs[theirs], costs[ours]), 1)}")
    _print_starts(runs)


def _print_starts(runs: dict[str, list[Pair]]) -> None:
    ours = [
        figures for name in runs if name.startswith("consumer") for pair in runs[name] for figures in pair
    ]
    if ours:
        starts = [one["first_s"] for one in ours]
        print(f"process start to first log: {statistics.median(starts):.2f} s, longest {max(starts):.2f} s")
        print(f"peak memory at the first log: {max(one['first_mb'] for one in ours):.0f} MB")
    for name, found in runs.items():
        peaks = [more["peak_mb"] for _, more in found if "peak_mb" in more]
        if peaks:
            print(f"peak memory, {name}: {max(peaks):.0f} MB")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 3_000_000,
        int(given[1]) if len(given) > 1 else ROUNDS,
        given[2:],
    )
