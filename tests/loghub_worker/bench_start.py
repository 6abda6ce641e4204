"""What the start of a worker costs, from the process's start to the first batch in the sink.

``python -m tests.loghub_worker.bench_start [RUNS]`` starts workers one after the other on a logstore that has
logs already, and prints the medians: seconds, and CPU seconds of all their processes. It uses the class-data
archive that ``LOGHUB_CLASS_ARCHIVE`` names, if any. The seconds are those of a quiet machine only."""

import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median

from loghub.sink_settings import ParquetSink
from tests.loghub_worker.cpu_time import CpuTime, cpu_time
from tests.loghub_worker.support import GUARD_S, Producer, prepare, worker_config, worker_processes
from tests.support import ServiceProcess, running_service, wait_until


def start(service: ServiceProcess, folder: Path) -> tuple[float, CpuTime]:
    """Seconds, and CPU seconds, until the first file is in the sink."""
    sink = folder / "sink"
    began_s = time.perf_counter()
    with redirect_stdout(sys.stderr), worker_processes(folder, service) as workers:
        worker = workers.start(
            "w-0", worker_config(service.endpoint, ParquetSink(path=str(sink)), spark_conf={}, cores=2)
        )

        def has_written() -> bool:
            assert worker.process.poll() is None, worker.log_tail()
            return any(sink.glob("*.parquet"))

        wait_until(has_written, "the first file", guard_s=GUARD_S)
        return time.perf_counter() - began_s, cpu_time(worker.process.pid)


def main(runs: int) -> None:
    seconds, cpu = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
            Producer(prepare(service)).put(groups=40)
            took_s, spent = start(service, Path(name))
        seconds.append(took_s)
        cpu.append(spent)
    print(f"start to the first batch written, medians of {runs}")
    print(f"seconds:              {median(seconds):6.1f}")
    print(f"CPU seconds:          {median(one.total_s for one in cpu):6.1f}")
    print(f"  of Spark's JVM:     {median(one.jvm_s for one in cpu):6.1f}")
    print(f"  of Python:          {median(one.python_s for one in cpu):6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
