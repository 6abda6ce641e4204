"""What a worker delivers and counts is the same whether its tasks run in its own Spark or in the executors of
a standalone cluster, which have neither its disk nor its code.

All workers of one master share a driver, and all standalone ones a cluster with two executors. Workers with a
Spark of their own are in most other tests, so `make test` has only the cluster here.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink, Sink
from loghub.contract.worker import (
    LOCAL_MASTER,
    DeadLetterLogstore,
    OnFailure,
    PythonPipeline,
    SqlPipeline,
    WorkerConfig,
)
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.loggroup import decode, split
from tests.loghub_worker import sink_targets
from tests.loghub_worker.query.poison import LOWER, POISON, UPPER, put
from tests.loghub_worker.sink_targets import MakeTarget, Place
from tests.loghub_worker.spark_driver import HostedWorker, SparkDriver, running_driver
from tests.loghub_worker.support import (
    LOGSTORE,
    NO_VARIABLES,
    PROJECT,
    LogstoreReader,
    Producer,
    all_saved,
    delivered,
    prepare,
    row_of,
    worker_config,
)
from tests.spark_cluster import SMALL, Cluster
from tests.spark_settings import INTERPRETED
from tests.support import ServiceProcess, running_service

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

SHARDS = 2
HASH_KEYS = {0: LOWER, 1: UPPER}
COLUMNS = """
SELECT {hint} contents['id'] AS id, concat('> ', contents['line']) AS line,
  contents['no'] AS missing, __topic__, __source__, __tags__['kind'] AS kind, __shard__, __cursor__, __index__
FROM logs
"""
# Rows move between executors, so each of them is computed by a task that has not read it; or each task writes
# the rows that it has read.
HINTS = {"Spark": "/*+ REPARTITION(3) */", "Arrow": ""}
CAST = """
SELECT contents['id'] AS id, CAST(contents['status'] AS INT) AS status, CAST(__cursor__ % 3 AS INT) AS part
FROM logs
"""
# A user's module. One function holds a task until a file exists, so that the task can be killed, and the
# other ends the process that runs it. Both run after the logs were read and have moved, so that with an
# executor what it has read is lost too, and is read again.
MODULE = """
import os, signal, time
from pyspark.sql import functions as F

def hold(name):
    if name == "held":
        open(f"{FOLDER}/holding-{os.getpid()}", "w").close()
        while not os.path.exists(f"{FOLDER}/go"):
            time.sleep(0.02)
    return name

def die(name):
    if name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return name

def run(logs):
    moved = logs.select("contents.id").repartition(2)
    return moved.select(F.udf({FUNCTION})("id").alias("id"))
"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(LOCAL_MASTER, id="local", marks=pytest.mark.deep),
        pytest.param("spark://", id="standalone"),
    ],
)
def driver(
    request: pytest.FixtureRequest, driver_disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkDriver]:
    master = request.param
    if master != LOCAL_MASTER:
        cluster: Cluster = request.getfixturevalue("cluster")
        master = cluster.url
    name = "local" if master == LOCAL_MASTER else "standalone"
    with running_driver(driver_disk / name, master) as running:
        yield running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@pytest.fixture
def client(service: ServiceProcess) -> HttpLogHub:
    return prepare(service, shards=SHARDS, timeout_s=10)


@pytest.fixture
def name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the worker; pytest's folders have different names."""
    return tmp_path.name


def config_of(service: ServiceProcess, sink: Sink, **changes: Any) -> WorkerConfig:
    """Queries are interpreted, since the driver and both executors would each compile them for a few rows."""
    return worker_config(service.endpoint, sink, cores=2, spark_conf=SMALL | INTERPRETED, **changes)


def worker_of(
    driver: SparkDriver,
    service: ServiceProcess,
    name: str,
    config: WorkerConfig,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> AbstractContextManager[HostedWorker]:
    return driver.worker(name, config, credentials_dir=service.credentials_dir, variables=variables)


def module_of(folder: Path, function: str) -> PythonPipeline:
    """Each has a name of its own, because Python imports a module once."""
    name = f"pipeline_{folder.name.replace('-', '_')}"
    text = MODULE.replace("{FOLDER}", str(folder)).replace("{FUNCTION}", function)
    return PythonPipeline(function=f"{name}:run", files={f"{name}.py": text})


def await_saved(driver: SparkDriver, client: HttpLogHub, worker: HostedWorker) -> None:
    driver.wait(lambda: worker.status is not None and all_saved(client), "the checkpoints")


def await_counts(driver: SparkDriver, worker: HostedWorker, logs: Mapping[int, int], rows: int) -> None:
    """Wait until it reports so many logs of each shard, and so many rows in the sink."""

    def is_counted() -> bool:
        status = worker.status
        return status is not None and worker.logs() == logs and status.rows_written == rows

    driver.wait(is_counted, f"{logs} logs and {rows} rows to be counted")


def letters(client: HttpLogHub, logstore: str) -> list[dict[str, str]]:
    return [row_of(log) for log in LogstoreReader(client, logstore).logs()]


def rows_of(sink: Path) -> list[dict[str, Any]]:
    rows = [row for file in sink.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: (row["__shard__"], row["__cursor__"], row["__index__"]))


def expected_rows(client: HttpLogHub) -> list[dict[str, Any]]:
    """The rows of `COLUMNS` over the whole logstore, in order."""
    rows = []
    for shard in range(SHARDS):
        cursor = client.get_cursor(LOGSTORE, shard, "begin")
        while (pulled := client.pull_logs(LOGSTORE, shard, cursor=cursor, count=1)).count:
            (group,) = map(decode, split(pulled.body))
            for index, log in enumerate(group.logs):
                contents = row_of(log)
                row = {"id": contents["id"], "line": f"> {contents['line']}", "missing": None}
                row |= {"__topic__": group.topic, "__source__": group.source, "kind": None}
                place = {"__shard__": shard, "__cursor__": decode_cursor(cursor), "__index__": index}
                rows.append(row | place)
            cursor = pulled.next_cursor
    return rows


@pytest.mark.parametrize("engine", HINTS)
def test_each_log_has_its_columns_and_is_delivered_and_counted_once(
    driver: SparkDriver, service: ServiceProcess, client: HttpLogHub, name: str, tmp_path: Path, engine: str
) -> None:
    producer, sink = Producer(client), tmp_path / "sink"
    pipeline = SqlPipeline(text=COLUMNS.format(hint=HINTS[engine]))
    config = config_of(service, ParquetSink(path=str(sink)), pipeline=pipeline)
    with worker_of(driver, service, name, config) as worker:
        for groups in (20, 1):  # one batch with much, and later ones
            for hash_key in HASH_KEYS.values():
                producer.put(groups=groups, hash_key=hash_key)
            await_saved(driver, client, worker)
        await_counts(driver, worker, {0: 210, 1: 210}, producer.sent.total())
        assert worker.status is not None
        assert worker.status.engine == engine, worker.status.why_spark
        worker.end()
    assert Counter(row["id"] for row in rows_of(sink)) == producer.sent
    assert rows_of(sink) == expected_rows(client)


def test_logs_of_a_task_that_is_killed_are_delivered_and_counted_once(
    driver: SparkDriver,
    request: pytest.FixtureRequest,
    service: ServiceProcess,
    client: HttpLogHub,
    name: str,
    tmp_path: Path,
) -> None:
    """Its executor is killed where there is one, and otherwise the process of Python."""
    sink = tmp_path / "sink"
    sent = Counter(["held", *(f"{n}-{shard}" for n in range(20) for shard in HASH_KEYS)])
    for one in sent:
        put(client, one, hash_key=UPPER if one.endswith("-1") else LOWER)
    config = config_of(service, ParquetSink(path=str(sink)), pipeline=module_of(tmp_path, "hold"))
    with worker_of(driver, service, name, config) as worker:
        driver.wait(lambda: any(tmp_path.glob("holding-*")), "the task to be held")
        (held,) = (int(path.name.partition("-")[2]) for path in tmp_path.glob("holding-*"))
        if driver.master != LOCAL_MASTER:
            cluster: Cluster = request.getfixturevalue("cluster")
            held = cluster.executor_of(held)
        os.kill(held, signal.SIGKILL)
        driver.wait(lambda: len([*tmp_path.glob("holding-*")]) > 1, "the next attempt")
        (tmp_path / "go").touch()
        await_saved(driver, client, worker)
        await_counts(driver, worker, {0: 21, 1: 20}, sent.total())
        worker.end()
    assert delivered(sink) == sent


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(sink_targets.partitions_of_a_bucket, id="bucket", marks=pytest.mark.tools),
        pytest.param(sink_targets.postgresql, id="postgresql", marks=pytest.mark.deep),
    ],
)
def test_a_log_that_the_query_rejects_is_dead_lettered_and_the_others_are_delivered_once(
    driver: SparkDriver,
    request: pytest.FixtureRequest,
    service: ServiceProcess,
    client: HttpLogHub,
    name: str,
    tmp_path: Path,
    make: MakeTarget,
) -> None:
    """The rows are in a bucket, to which the executors write, or in a table of PostgreSQL, into which the
    driver copies what tasks have computed."""
    client.create_logstore("rejected", shards=1)
    sent = Counter(["before", "after", *(f"other-{n}" for n in range(10))])
    put(client, "before")
    put(client, "poison", POISON)
    put(client, "after")
    for n in range(10):
        put(client, f"other-{n}", hash_key=UPPER)
    place = Place(folder=tmp_path, client=client, fixture=request.getfixturevalue)
    with make(place) as target:
        config = config_of(
            service,
            target.settings,
            pipeline=SqlPipeline(text=CAST),
            on_failure=OnFailure(
                policy="DeadLetter",
                max_attempts=1,
                dead_letter=DeadLetterLogstore(project=PROJECT, logstore="rejected"),
            ),
        )
        with worker_of(driver, service, name, config, target.variables) as worker:
            await_saved(driver, client, worker)
            await_counts(driver, worker, {0: 2, 1: 10}, sent.total())
            worker.end()
        assert target.ids() == sent
    (letter,) = letters(client, "rejected")
    assert letter["id"] == "poison"


@pytest.mark.deep
def test_a_log_that_ends_each_process_is_found_and_skipped(
    driver: SparkDriver, service: ServiceProcess, client: HttpLogHub, name: str, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    for one in ("first", "deadly", "last"):
        put(client, one)
    put(client, "other", hash_key=UPPER)
    config = config_of(
        service,
        ParquetSink(path=str(sink)),
        pipeline=module_of(tmp_path, "die"),
        on_failure=OnFailure(policy="Skip", max_attempts=1),
    )
    with worker_of(driver, service, name, config) as worker:
        await_saved(driver, client, worker)

        def skips() -> dict[int, int]:
            status = worker.status
            return {} if status is None else {one.shard: one.log_groups for one in status.skipped}

        driver.wait(lambda: skips() == {0: 1}, "the skip to be reported")
        worker.end()
    assert delivered(sink) == Counter(["first", "last", "other"])


@pytest.mark.deep
@pytest.mark.parametrize("make", sink_targets.IN_A_CLUSTER)
def test_a_sink_gets_each_log_once(
    driver: SparkDriver,
    request: pytest.FixtureRequest,
    service: ServiceProcess,
    client: HttpLogHub,
    name: str,
    tmp_path: Path,
    make: MakeTarget,
) -> None:
    """Without failures, sinks that are at least once have each log once too."""
    producer = Producer(client)
    place = Place(folder=tmp_path, client=client, fixture=request.getfixturevalue, printed=driver.printed)
    with make(place) as target:
        for hash_key in HASH_KEYS.values():
            producer.put(groups=5, hash_key=hash_key)
        config = config_of(service, target.settings, **target.config)
        with worker_of(driver, service, name, config, target.variables) as worker:
            await_saved(driver, client, worker)
            await_counts(driver, worker, {0: 50, 1: 50}, producer.sent.total())
            worker.end()
        assert target.ids() == producer.sent
