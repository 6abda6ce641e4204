"""Whole processes of workers whose tasks run in a Spark standalone cluster that has neither their disk nor
their code, and what they say if the cluster lacks what they need.

What holds for every master is in `test_spark_masters.py`.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loghub.contract.sinks import DeltaSink, JsonSink, ParquetSink, S3Settings, Sink
from loghub.contract.worker import ENV_SINK_CREDENTIALS_DIR, OnFailure, PythonPipeline, WorkerConfig
from tests.cluster.s3_server import S3Server, running_s3_server
from tests.loghub_worker.query.poison import LOWER, UPPER, ids, put, put_around_a_poison
from tests.loghub_worker.sink.delta_tables import DeltaView
from tests.loghub_worker.sink_views import FilesView, LinesView
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    WorkerProcess,
    all_saved,
    delivered,
    prepare,
    wait_delivered,
    worker_config,
    worker_processes,
)
from tests.spark_cluster import SMALL, Cluster
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(1800)]

HELD = "held"
# A user's module. Its function holds a task until a file exists, so that the task can be killed.
MODULE = """
import os, signal, time
from pyspark.sql import functions as F

def hold(name):
    if name == "held":
        open(f"{FOLDER}/holding-{os.getpid()}", "w").close()
        while not os.path.exists(f"{FOLDER}/go"):
            time.sleep(0.02)
    if name == "deadly":
        daemon = open(f"/proc/{os.getppid()}/stat").read().split()
        os.kill(int(daemon[3]), signal.SIGKILL)  # the executor
        time.sleep(60)
    return name

def run(logs):
    named = logs.select(F.udf(hold)("contents.id").alias("id"), "contents.status")
    return named.selectExpr("id", "CAST(status AS INT) AS status")
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@pytest.fixture
def server(versitygw: Path, tmp_path: Path) -> Iterator[S3Server]:
    """One that a test may stop."""
    with running_s3_server(versitygw, tmp_path / "s3") as running:
        running.bucket("rows")
        yield running


def config_of(service: ServiceProcess, sink: Path | Sink, **changes: Any) -> WorkerConfig:
    settings = ParquetSink(path=str(sink)) if isinstance(sink, Path) else sink
    return worker_config(service.endpoint, settings, cores=2, spark_conf=SMALL, **changes)


def in_bucket(kind: Any, server: S3Server) -> Any:
    return kind(path="s3://rows/a", s3=S3Settings(endpoint=server.endpoint, allow_http=True))


def logs_of(worker: WorkerProcess) -> dict[int, int]:
    status = worker.status
    return {} if status is None else {one.shard: one.logs for one in status.shards}


def opened_by(worker: WorkerProcess) -> set[int]:
    status = worker.status
    return {one.shard for one in (status.shards if status is not None else ()) if one.cursor is not None}


def skips_of(worker: WorkerProcess) -> dict[int, int]:
    status = worker.status
    return {} if status is None else {one.shard: one.log_groups for one in status.skipped}


def test_code_arrives_killed_tasks_count_once_and_a_bad_log_stops_only_its_shard(
    cluster: Cluster, service: ServiceProcess, driver_disk: Path, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=10)
    sink = tmp_path / "sink"
    sent: Counter[str] = Counter()
    for name, key in ((HELD, LOWER), *((f"first-{n}", key) for n in range(20) for key in (LOWER, UPPER))):
        put(client, f"{name}-{key[0]}" if name != HELD else name, hash_key=key)
        sent[f"{name}-{key[0]}" if name != HELD else name] += 1
    config = config_of(
        service,
        sink,
        spark_master=cluster.url,
        pipeline=PythonPipeline(
            function="enrich:run", files={"enrich.py": MODULE.replace("{FOLDER}", str(tmp_path))}
        ),
        on_failure=OnFailure(policy="Skip", max_attempts=2),
    )
    with worker_processes(driver_disk / tmp_path.name, service) as workers:
        worker = workers.start("w-0", config)

        def is_held() -> bool:
            assert worker.phase != "failed", worker.log_tail()
            return any(tmp_path.glob("holding-*"))

        wait_until(is_held, "the task to be held", guard_s=GUARD_S)
        (held,) = (int(path.name.partition("-")[2]) for path in tmp_path.glob("holding-*"))
        os.kill(cluster.executor_of(held), signal.SIGKILL)
        wait_until(lambda: len([*tmp_path.glob("holding-*")]) > 1, "the next attempt", guard_s=GUARD_S)
        (tmp_path / "go").touch()
        wait_delivered(sink, sent, [worker])
        wait_until(lambda: all_saved(client), "the checkpoints", guard_s=GUARD_S)
        assert delivered(sink) == sent
        wait_until(lambda: logs_of(worker) == {0: 21, 1: 20}, "the logs to be counted", guard_s=GUARD_S)

        put_around_a_poison(client)
        sent += ids("before", "after", "other")
        wait_delivered(sink, sent, [worker])
        wait_until(lambda: all_saved(client), "the last checkpoints", guard_s=GUARD_S)
        wait_until(lambda: skips_of(worker) == {0: 1}, "the skip to be reported", guard_s=GUARD_S)
        wait_until(lambda: logs_of(worker) == {0: 31, 1: 30}, "all to be counted", guard_s=GUARD_S)
        assert worker.status is not None
        assert worker.status.rows_written == sent.total()
        assert worker.end(signal.SIGTERM) == 0, worker.log_tail()
    assert delivered(sink) == sent


def test_a_volume_that_executors_do_not_have_is_reported_and_nothing_counts_as_delivered(
    cluster: Cluster, service: ServiceProcess, driver_disk: Path, tmp_path: Path
) -> None:
    """They write on their own disk, where the worker finds nothing: each batch would be an empty one."""
    client = prepare(service, shards=2, timeout_s=10)
    begins = [client.get_cursor(LOGSTORE, shard, "begin") for shard in (0, 1)]
    for key in (LOWER, UPPER):
        put(client, key, hash_key=key)
    sink = driver_disk / "sink"
    with worker_processes(driver_disk / tmp_path.name, service) as workers:
        worker = workers.start("w-0", config_of(service, sink, spark_master=cluster.url))

        def is_reported() -> bool:
            assert worker.phase != "failed", worker.log_tail()
            return worker.status is not None and worker.status.reason == "SinkUnavailable"

        wait_until(is_reported, "the reason", guard_s=GUARD_S)
        status = worker.status
        assert status is not None
        assert "spec.spark.master" in status.message
        assert status.rows_written == 0
        worker.kill_all()
    shards = client.group_status(LOGSTORE, GROUP).shards
    assert [one.checkpoint for one in shards] == begins
    assert delivered(sink) == Counter()


def test_a_log_that_ends_each_executor_is_found_and_skipped(
    cluster: Cluster, service: ServiceProcess, driver_disk: Path, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=10)
    sink = tmp_path / "sink"
    for name in ("first", "deadly", "last"):
        put(client, name)
    put(client, "other", hash_key=UPPER)
    config = config_of(
        service,
        sink,
        spark_master=cluster.url,
        pipeline=PythonPipeline(
            function="enrich:run", files={"enrich.py": MODULE.replace("{FOLDER}", str(tmp_path))}
        ),
        on_failure=OnFailure(policy="Skip", max_attempts=1),
    )
    with worker_processes(driver_disk / tmp_path.name, service) as workers:
        worker = workers.start("w-0", config)
        reasons = set()

        def is_skipped() -> bool:
            assert worker.phase != "failed", worker.log_tail()
            status = worker.status
            reasons.update(one.reason for one in (status.failing if status is not None else ()))
            return all_saved(client)

        wait_until(is_skipped, "the checkpoints", guard_s=GUARD_S)
        assert worker.end(signal.SIGTERM) == 0, worker.log_tail()
    assert delivered(sink) == Counter(["first", "last", "other"])
    assert reasons == {"ExecutorLost"}


def test_a_worker_that_gets_no_executor_ends_with_the_reason(
    cluster: Cluster, service: ServiceProcess, driver_disk: Path, tmp_path: Path
) -> None:
    prepare(service)
    config = config_of(service, tmp_path / "sink", spark_master=cluster.url)
    large = msgspec.structs.replace(config, spark_conf=SMALL | {"spark.executor.memory": "64g"})
    with worker_processes(driver_disk / tmp_path.name, service) as workers:
        worker = workers.start("w-0", large)
        assert worker.wait() != 0
        message = (worker.folder / "termination").read_text()
    assert message.startswith("NoExecutors: ")
    assert "spark.executor.memory" in message


@pytest.mark.tools
@pytest.mark.parametrize("kind", [JsonSink, DeltaSink])
def test_an_executor_that_is_killed_while_it_uploads_leaves_each_log_once(
    kind: Any, cluster: Cluster, service: ServiceProcess, server: S3Server, driver_disk: Path, tmp_path: Path
) -> None:
    """The storage answers nothing meanwhile. What it has got of the attempt then is in no batch, and gone."""
    client = prepare(service, shards=2, timeout_s=60)
    variables = {ENV_SINK_CREDENTIALS_DIR: str(server.credentials(tmp_path / "keys"))}
    objects = server.bucket("rows") / "a"
    sent: Counter[str] = Counter()
    with worker_processes(driver_disk / tmp_path.name, service, variables) as workers:
        worker = workers.start("w-0", config_of(service, in_bucket(kind, server), spark_master=cluster.url))
        wait_until(lambda: opened_by(worker) == {0, 1}, "the shards", guard_s=GUARD_S)
        server.signal(signal.SIGSTOP)
        for number in range(20):
            for key in (LOWER, UPPER):
                put(client, f"{number}-{key[0]}", hash_key=key)
                sent[f"{number}-{key[0]}"] += 1
        uploads: list[int] = []

        def is_uploading() -> bool:
            assert worker.phase != "failed", worker.log_tail()
            uploads[:] = processes_with("/loghub-*/rows")
            return bool(uploads)

        wait_until(is_uploading, "an upload", guard_s=GUARD_S)
        os.kill(cluster.executor_of(uploads[0]), signal.SIGKILL)
        server.signal(signal.SIGCONT)
        wait_until(lambda: all_saved(client), "the checkpoints", guard_s=GUARD_S)
        wait_until(lambda: logs_of(worker) == {0: 20, 1: 20}, "the logs to be counted", guard_s=GUARD_S)
        assert worker.status is not None
        assert worker.status.rows_written == sent.total()
        assert worker.end(signal.SIGTERM) == 0, worker.log_tail()
    if kind is DeltaSink:
        assert DeltaView(objects).rows() == sent
    else:
        assert Counter(row["id"] for row in LinesView(objects).rows()) == sent
        left = FilesView(objects).records.glob("stage/**/*")
        assert [path for path in left if path.is_file()] == []


def processes_with(pattern: str) -> list[int]:
    """The processes that have a file open whose path ends so."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if fnmatch(os.readlink(link), f"*{pattern}"):
                found.append(int(link.parts[2]))
    return found


@pytest.mark.tools
def test_executors_without_the_keys_of_a_bucket_are_the_reason_why_a_worker_does_not_join(
    cluster: Cluster, service: ServiceProcess, server: S3Server, driver_disk: Path, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=10)
    put(client, "first")
    keys = server.credentials(driver_disk / f"keys-{tmp_path.name}")
    with worker_processes(
        driver_disk / tmp_path.name, service, {ENV_SINK_CREDENTIALS_DIR: str(keys)}
    ) as workers:
        config = config_of(service, in_bucket(ParquetSink, server), spark_master=cluster.url)
        worker = workers.start("w-0", config)

        def is_reported() -> bool:
            assert worker.phase != "failed", worker.log_tail()
            return worker.status is not None and worker.status.reason == "SinkUnavailable"

        wait_until(is_reported, "the reason", guard_s=GUARD_S)
        status = worker.status
        assert status is not None
        assert f"no folder {keys} " in status.message
        assert "credentialsSecret" in status.message
        said = worker.log_tail() + status.message
        assert not any(word in said for word in (server.access_key_id, server.secret_access_key))
        worker.kill_all()
    assert delivered(server.bucket("rows") / "a") == Counter()
