"""The worker's CPU time for a log on the way to a Parquet file, and that of others for the same logs.

``python -m tests.loghub_worker.bench_peers [LOGS [ROUNDS]]`` runs in turn, on one service with the same logs:

- a worker, whose query makes a column of each of the ten fields;
- Spark with the worker's settings, copying the worker's Parquet files, the least that Spark needs for rows;
- a loop over the vendor's SDK that puts the same columns into Parquet files through pyarrow, without Spark;
- the same loop with Spark's ``createDataFrame`` in place of pyarrow. It takes a minute for a million logs, so
  it reads only the first ones of one shard.

Each program is started again in each round, and only the logs after its warm-up count: for the worker two of
three batches, for Spark's copy two copies, for ``createDataFrame`` 60,000 logs. It prints the medians of all
rounds with the least and the greatest, and the medians of the ratios of each round. It compares CPU seconds,
which are meaningful on a busy machine too."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from loghub.client.http import HttpLogHub
from tests.loghub_worker.bench_logs import FIELDS, fill
from tests.loghub_worker.bench_pipeline import ROWS, SHARDS, begin_again, run_worker, warm_cost
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn, ratios, spread
from tests.loghub_worker.support import LOGSTORE, PROJECT, prepare
from tests.support import ServiceProcess, running_service

ROW = ROWS["fields"]
COPIES = 3  # the last one counts
SPARK_WARM_LOGS, SPARK_LOGS = 60_000, 100_000  # of the loop with Spark
OURS, COPY, LOOP, FRAMES = (
    "worker, shard to Parquet",
    "Spark, Parquet to Parquet",
    "SDK loop, shard to Parquet",
    "SDK loop with createDataFrame",
)

SDK_LOOP = """
import sys, time
import pyarrow as pa, pyarrow.parquet as pq
from aliyun.log import LogClient
endpoint, key, secret, project, logstore, shards, folder, *fields = sys.argv[1:]
client = LogClient(endpoint, key, secret)
logs, spent = 0, 0.0
for shard in range(int(shards)):
    cursor, part = client.get_cursor(project, logstore, shard, "begin").get_cursor(), 0
    while True:
        since = time.process_time()
        pulled = client.pull_logs(project, logstore, shard, cursor, count=1000)
        if not pulled.get_loggroup_count():
            break
        rows = pulled.get_flatten_logs_json_auto()
        columns = {name: [row.get(name) for row in rows] for name in ("__time__", *fields)}
        pq.write_table(pa.table(columns), f"{folder}/{shard}-{part}.parquet")
        spent += time.process_time() - since
        logs, part, cursor = logs + len(rows), part + 1, pulled.get_next_cursor()
print(logs, spent)
"""

SDK_SPARK = """
import os, sys
from pathlib import Path
from aliyun.log import LogClient
from loghub.contract.sinks import ParquetSink
from loghub_worker.__main__ import end_children
from loghub_worker.query.spark_session import start_spark
from tests.loghub_worker.cpu_time import cpu_time
from tests.loghub_worker.support import worker_config
endpoint, key, secret, project, logstore, state, warm, most, *fields = sys.argv[1:]
archive = os.environ.get("LOGHUB_CLASS_ARCHIVE")
config = worker_config("http://unused", ParquetSink(path="/unused"), spark_conf={})
spark = start_spark(config, Path(state), class_archive=Path(archive) if archive else None)
client = LogClient(endpoint, key, secret)
cursor = client.get_cursor(project, logstore, 0, "begin").get_cursor()
logs, before = -int(warm), cpu_time(os.getpid())
while logs < int(most):
    pulled = client.pull_logs(project, logstore, 0, cursor, count=100)
    rows = pulled.get_flatten_logs_json_auto()
    frame = spark.createDataFrame(rows).select("__time__", *fields)
    frame.write.mode("append").parquet(state + "/copy")
    cursor = pulled.get_next_cursor()
    if logs < 0 <= logs + len(rows):
        logs, before = 0, cpu_time(os.getpid())
    else:
        logs += len(rows)
print(logs, (cpu_time(os.getpid()) - before).total_s)
end_children()
"""

SPARK_COPY = """
import os, sys
from pathlib import Path
from loghub.contract.sinks import ParquetSink
from loghub_worker.__main__ import end_children
from loghub_worker.query.spark_session import start_spark
from tests.loghub_worker.cpu_time import cpu_time
from tests.loghub_worker.support import worker_config
source, state, copies = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
archive = os.environ.get("LOGHUB_CLASS_ARCHIVE")
config = worker_config("http://unused", ParquetSink(path="/unused"), spark_conf={})
spark = start_spark(config, state, class_archive=Path(archive) if archive else None)
for _ in range(copies):
    before = cpu_time(os.getpid())
    spark.read.parquet(source).write.mode("overwrite").parquet(str(state / "copy"))
    spent = cpu_time(os.getpid()) - before
print(spark.read.parquet(str(state / "copy")).count(), spent.total_s)
end_children()
"""


def sdk_loop(service: ServiceProcess, folder: Path) -> tuple[int, float]:
    """Logs and CPU seconds. It reaches loopback through the service's forward-proxy mode
    (docs/sls-protocol.md 1.1)."""
    keys = (service.credentials.access_key_id, service.credentials.access_key_secret)
    arguments = ("http://sls.invalid", *keys, PROJECT, LOGSTORE, str(SHARDS), str(folder), *FIELDS)
    return _measured(SDK_LOOP, arguments, {"http_proxy": service.endpoint, "no_proxy": ""})


def sdk_spark(service: ServiceProcess, state: Path) -> tuple[int, float]:
    """As `sdk_loop`, with Spark, once that is warm."""
    keys = (service.credentials.access_key_id, service.credentials.access_key_secret)
    sizes = (str(SPARK_WARM_LOGS), str(SPARK_LOGS))
    arguments = ("http://sls.invalid", *keys, PROJECT, LOGSTORE, str(state), *sizes, *FIELDS)
    return _measured(SDK_SPARK, arguments, {"http_proxy": service.endpoint, "no_proxy": ""})


def spark_copy(source: Path, state: Path) -> tuple[int, float]:
    """Rows and CPU seconds of the last copy."""
    return _measured(SPARK_COPY, (str(source), str(state), str(COPIES)), {})


def _measured(script: str, arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, float]:
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    count, seconds = run.stdout.split()[-2:]
    return int(count), float(seconds)


class Bench:
    """One service with logs, and the folder of the present round."""

    def __init__(self, service: ServiceProcess, client: HttpLogHub, folder: Path, logs: int) -> None:
        self._service = service
        self._client = client
        self._folder = folder
        self._logs = logs
        self._round = folder

    def worker(self) -> float:
        """Begins a round: its files are what Spark copies."""
        shutil.rmtree(self._round / "sink", ignore_errors=True)
        self._round = Path(tempfile.mkdtemp(dir=self._folder))
        begin_again(self._client)
        samples = run_worker(self._service, self._round, ROW, self._logs)
        count, spent = warm_cost(samples, self._logs)
        return spent.per_million(count).total_s

    def peer(self, run: Callable[[ServiceProcess, Path], tuple[int, float]], expected: int) -> float:
        with tempfile.TemporaryDirectory(dir=self._round) as folder:
            rows, seconds = run(self._service, Path(folder))
        assert rows == expected, f"{rows} of {expected}"
        return seconds * 1e6 / rows

    def copy(self) -> float:
        return self.peer(lambda _, state: spark_copy(self._round / "sink", state), self._logs)


def main(logs: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=SHARDS)
        fill(service, logs=logs, per_group=ROW.logs_per_group)
        bench = Bench(service, client, Path(name), logs)
        programs: dict[str, Callable[[], float]] = {
            OURS: bench.worker,
            COPY: bench.copy,
            LOOP: partial(bench.peer, sdk_loop, logs),
            FRAMES: partial(bench.peer, sdk_spark, SPARK_LOGS),
        }
        costs = in_turn(programs, rounds)
        client.close()
    print(f"CPU s per million logs, of {logs} logs ({FRAMES}: of {SPARK_LOGS}); {rounds} rounds")
    heads = ("median (least to greatest)", "its cost / the worker's")
    print(f"{'':32}{heads[0]:>28}{heads[1]:>28}")
    for label, found in costs.items():
        ratio = "" if label == OURS else spread(ratios(found, costs[OURS]))
        print(f"{label:32}{spread(found):>28}{ratio:>28}")
    print(f"speed of the worker / of Spark's copy: {spread(ratios(costs[COPY], costs[OURS]))}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 1_500_000, given[1] if len(given) > 1 else ROUNDS)
