"""What the start of a worker costs, from the process's start to the first batch in the sink.

``python -m tests.loghub_worker.bench_start [ROUNDS [LOGS]]`` starts workers on a logstore that has logs
already, in turn with the start-up settings of the image, and without them: the class-data archive that
``LOGHUB_CLASS_ARCHIVE`` names, and a JVM with one compiler for a query that Arrow computes. It prints the
seconds, and the CPU seconds of all their processes. The seconds are those of a quiet machine only.

A cheap start must not make logs expensive, so it runs both once more on LOGS, unless they are 0, and prints
the CPU seconds for a million once they are warm."""

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import ENV_CLASS_ARCHIVE
from tests.loghub_worker.bench_pipeline import ROWS, filled
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn, ratios, spread
from tests.loghub_worker.cpu_time import CpuTime, cpu_time
from tests.loghub_worker.support import GUARD_S, Producer, prepare, worker_config, worker_processes
from tests.support import running_service, wait_until

SETTINGS, NO_SETTINGS = "start-up settings", "without them"
# The JVM's own compilers and thresholds; of two values of an option, the last one counts.
OWN_COMPILERS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=5000"
    " -XX:Tier4MinInvocationThreshold=600 -XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
}
KINDS: dict[str, tuple[Mapping[str, str], str]] = {  # spark_conf, and the archive
    SETTINGS: ({}, os.environ.get(ENV_CLASS_ARCHIVE, "")),
    NO_SETTINGS: (OWN_COMPILERS, ""),
}


def start(spark_conf: Mapping[str, str], archive: str) -> tuple[float, CpuTime]:
    """Seconds, and CPU seconds, until the first file is in the sink."""
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        folder = Path(name)
        Producer(prepare(service)).put(groups=40)
        sink = folder / "sink"
        began_s = time.perf_counter()
        with (
            redirect_stdout(sys.stderr),
            worker_processes(folder, service, {ENV_CLASS_ARCHIVE: archive}) as workers,
        ):
            config = worker_config(
                service.endpoint, ParquetSink(path=str(sink)), spark_conf=dict(spark_conf), cores=2
            )
            worker = workers.start("w-0", config)

            def has_written() -> bool:
                assert worker.process.poll() is None, worker.log_tail()
                return any(sink.glob("*.parquet"))

            wait_until(has_written, "the first file", guard_s=GUARD_S)
            return time.perf_counter() - began_s, cpu_time(worker.process.pid)


def warm(logs: int, rounds: int) -> dict[str, list[CpuTime]]:
    """CPU seconds for a million logs."""
    with filled(logs, ROWS["fields"].logs_per_group) as site:
        programs = {
            label: partial(
                site.measure,
                ROWS["fields"],
                environment={ENV_CLASS_ARCHIVE: archive},
                spark_conf=dict(spark_conf),
            )
            for label, (spark_conf, archive) in KINDS.items()
        }
        return in_turn(programs, rounds)


def main(rounds: int, logs: int) -> None:
    if not Path(KINDS[SETTINGS][1]).is_file():
        print(f"there is no class archive: {ENV_CLASS_ARCHIVE} does not name one, so both start without")
    starts = in_turn({label: partial(start, *kind) for label, kind in KINDS.items()}, rounds)
    costs = warm(logs, rounds) if logs else {}
    print(f"start to the first batch written; {rounds} rounds: median (least to greatest)")
    print(f"{'':20}{'seconds':>22}{'CPU s':>22}{'of the JVM':>22}{'of Python':>22}")
    for label, found in starts.items():
        spent = [one for _, one in found]
        parts = [
            [seconds for seconds, _ in found],
            [one.total_s for one in spent],
            [one.jvm_s for one in spent],
            [one.python_s for one in spent],
        ]
        print(f"{label:20}" + "".join(f"{spread(values, 1):>22}" for values in parts))
    totals = {label: [one.total_s for one in cost] for label, cost in costs.items()}
    for label, values in totals.items():
        print(f"{label}: {spread(values)} CPU s per million logs once warm")
    if totals:
        print(f"with / without them: {spread(ratios(totals[SETTINGS], totals[NO_SETTINGS]))}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else ROUNDS, given[1] if len(given) > 1 else 1_500_000)
