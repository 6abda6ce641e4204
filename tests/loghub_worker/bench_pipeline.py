"""What a log costs on the way from a shard to a Parquet file, and how that compares.

``python -m tests.loghub_worker.bench_pipeline [LOGS [ROUNDS [ROW ...]]]`` runs real workers against the
embedded service, the rows in turn, and prints CPU seconds for a million logs once the JVM is warm: all of a
worker's processes together, and the shares of the JVM and of Python. Without names it runs every row."""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pyarrow.parquet as pq

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import SqlPipeline
from tests.loghub_worker.bench_logs import columns_of_fields, fill
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn, spread
from tests.loghub_worker.cpu_time import CpuTime, cpu_time
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    NO_VARIABLES,
    WorkerProcess,
    prepare,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service

SHARDS = 2
WARM = 0.4  # of the logs are delivered before the measurement begins, so the third of three batches counts
MAX_LOGS = 500_000  # of a batch, as by default
EVERYTHING = "SELECT * FROM logs"
FIELDS = f"SELECT __time__, __shard__, __cursor__, __index__, {', '.join(columns_of_fields())} FROM logs"
THREE = (
    "SELECT __time__, contents['path'] AS path, contents['status'] AS status, contents['bytes'] AS bytes FROM"
    " logs"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: a query over log groups of this size."""

    label: str
    sql: str
    logs_per_group: int = 200
    engine: Literal["Auto", "Spark"] = "Auto"


ROWS = {
    "fields": Row("ten fields as columns", FIELDS),
    "fields-spark": Row("ten fields, by Spark", FIELDS, engine="Spark"),
    "all": Row("all columns, with maps", EVERYTHING),
    "all-spark": Row("all columns, by Spark", EVERYTHING, engine="Spark"),
    "three": Row("three of ten fields", THREE),
    "three-spark": Row("three of ten, by Spark", THREE, engine="Spark"),
    "ten": Row("three fields, 10 logs a group", THREE, 10),
    "one": Row("three fields, 1 log a group", THREE, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How far a worker was at one time."""

    rows: int
    cpu: CpuTime


def run_worker(
    service: ServiceProcess,
    folder: Path,
    row: Row,
    logs: int,
    *,
    environment: Mapping[str, str] = NO_VARIABLES,
    **changes: Any,
) -> list[Sample]:
    """Deliver all logs; the samples are those at which the number of rows had changed. `environment` and
    `changes` are further variables and settings of the worker."""
    sink = ParquetSink(path=str(folder / "sink"))
    settings: dict[str, Any] = {
        "max_log_groups": 1_000_000,
        "max_logs": min(MAX_LOGS, logs // 3),
        "checkpoint_interval_s": 5.0,
        "spark_conf": {},
        "engine": row.engine,
    }
    config = worker_config(service.endpoint, sink, pipeline=SqlPipeline(text=row.sql), **(settings | changes))
    with redirect_stdout(sys.stderr), worker_processes(folder, service, environment) as workers:
        return _samples(workers.start("w-0", config), Path(sink.path), logs)


def _samples(worker: WorkerProcess, sink: Path, logs: int) -> list[Sample]:
    """One sample for each file, taken as soon as it is in the sink: a batch is one file."""
    rows: dict[Path, int] = {}
    samples = [Sample(rows=0, cpu=cpu_time(worker.process.pid))]
    give_up = time.monotonic() + GUARD_S
    while samples[-1].rows < logs:
        assert time.monotonic() < give_up, f"{samples[-1].rows} of {logs} rows:\n{worker.log_tail()}"
        assert worker.process.poll() is None, worker.log_tail()
        time.sleep(0.01)
        new = set(sink.glob("*.parquet")) - rows.keys()
        if new:
            cpu = cpu_time(worker.process.pid)
            rows |= {file: pq.read_metadata(file).num_rows for file in new}
            samples.append(Sample(rows=sum(rows.values()), cpu=cpu))
    return samples


def warm_cost(samples: list[Sample], logs: int) -> tuple[int, CpuTime]:
    """The rows and the CPU time after the worker had warmed up."""
    first = next(one for one in samples if one.rows >= logs * WARM)
    return samples[-1].rows - first.rows, samples[-1].cpu - first.cpu


def begin_again(client: HttpLogHub) -> None:
    """The group has no checkpoints."""
    client.delete_group(LOGSTORE, GROUP)
    client.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=30, order=False))


@dataclass(frozen=True, slots=True)
class Site:
    """A service with logs in groups of one size."""

    service: ServiceProcess
    client: HttpLogHub
    logs: int

    def measure(self, row: Row, **changes: Any) -> CpuTime:
        """CPU seconds for a million logs, of a worker changed as `run_worker` says."""
        begin_again(self.client)
        with tempfile.TemporaryDirectory() as folder:
            count, spent = warm_cost(
                run_worker(self.service, Path(folder), row, self.logs, **changes), self.logs
            )
        return spent.per_million(count)


@contextmanager
def filled(logs: int, per_group: int) -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=SHARDS)
        fill(service, logs=logs, per_group=per_group)
        yield Site(service, client, logs)
        client.close()


def main(logs: int, rounds: int, rows: Mapping[str, Row]) -> None:
    with ExitStack() as stack:
        sizes = {row.logs_per_group for row in rows.values()}
        sites = {size: stack.enter_context(filled(logs, size)) for size in sizes}
        measured = in_turn(
            {name: partial(sites[row.logs_per_group].measure, row) for name, row in rows.items()}, rounds
        )
    print(f"CPU s per million logs, of {logs} logs; {rounds} rounds: median (least to greatest)")
    print(f"{'':28}{'all':>22}{'JVM':>22}{'Python':>22}{'groups per CPU s':>18}")
    for name, found in measured.items():
        row, total = rows[name], [cost.total_s for cost in found]
        parts = "".join(
            f"{spread(one):>22}" for one in (total, [c.jvm_s for c in found], [c.python_s for c in found])
        )
        print(f"{row.label:28}{parts}{1e6 / median(total) / row.logs_per_group:18,.0f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    names = given[2:] or list(ROWS)
    main(
        int(given[0]) if given else 1_500_000,
        int(given[1]) if len(given) > 1 else ROUNDS,
        {name: ROWS[name] for name in names},
    )
