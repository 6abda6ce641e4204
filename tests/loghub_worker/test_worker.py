"""Complete workers in this process, on the Spark session that the tests share."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from pyspark.sql import SparkSession

from loghub.clock import SystemClock
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import SqlPipeline, WorkerConfig, WorkerStatus
from loghub_consumer.errors import FatalError
from loghub_worker import __main__ as program
from loghub_worker import worker
from loghub_worker.settings import read_settings
from loghub_worker.worker import WorkerRuntime
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    Producer,
    all_saved,
    delivered,
    prepare,
    worker_config,
    worker_environment,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@pytest.fixture
def as_before() -> Iterator[None]:
    """Restore the signal handlers and the log configuration that the program replaces."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


def environment(folder: Path, service: ServiceProcess, config: WorkerConfig) -> dict[str, str]:
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    return os.environ | worker_environment(folder, name="w-0", credentials_dir=service.credentials_dir)


def status_in(folder: Path) -> WorkerStatus:
    return msgspec.json.decode((folder / "status.json").read_bytes(), type=WorkerStatus)


@pytest.mark.usefixtures("spark", "as_before")
def test_invalid_sql_ends_the_worker_before_its_first_heartbeat(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = prepare(service)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    config = worker_config(service.endpoint, sink, pipeline=SqlPipeline(text="SELECT nope FROM logs"))
    folder = tmp_path / "w-0"
    for name, value in environment(folder, service, config).items():
        monkeypatch.setenv(name, value)
    assert program.main() == program.FATAL
    message = (folder / "termination").read_text()
    assert message.startswith("InvalidPipeline: [UNRESOLVED_COLUMN")
    assert "nope" in message
    status = status_in(folder)
    assert (status.phase, status.reason) == ("failed", "InvalidPipeline")
    assert client.group_status(LOGSTORE, GROUP).consumers == ()


@pytest.mark.usefixtures("spark", "as_before")
def test_a_query_that_would_aggregate_each_batch_ends_the_worker_unless_it_is_meant(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = prepare(service)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    count = SqlPipeline(text="SELECT contents['id'] AS id, count(*) AS n FROM logs GROUP BY 1")
    folder = tmp_path / "w-0"
    config = worker_config(service.endpoint, sink, pipeline=count)
    for name, value in environment(folder, service, config).items():
        monkeypatch.setenv(name, value)
    assert program.main() == program.FATAL
    message = (folder / "termination").read_text()
    assert message.startswith("InvalidPipeline: the pipeline uses GROUP BY or an aggregate function")
    assert "pipeline.perBatch" in message
    assert client.group_status(LOGSTORE, GROUP).consumers == ()

    producer = Producer(client)
    producer.put(groups=3)
    meant = worker_config(service.endpoint, sink, pipeline=count, per_batch=True)
    (folder / "config.json").write_bytes(msgspec.json.encode(meant))
    worker = WorkerRuntime(read_settings(os.environ), SystemClock())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: delivered(tmp_path / "sink") == producer.sent, "the rows", guard_s=GUARD_S)
    finally:
        worker.request_stop()
        thread.join(GUARD_S)
    assert not thread.is_alive()


@pytest.mark.usefixtures("spark", "as_before")
def test_a_worker_that_took_its_query_for_one_of_arrows_starts_once_more_with_the_other_jvm(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = prepare(service)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    text = "SELECT contents[__topic__] AS a FROM logs"  # a key that is not constant
    config = worker_config(service.endpoint, sink, pipeline=SqlPipeline(text=text), spark_conf={})
    for name, value in environment(tmp_path / "w-0", service, config).items():
        monkeypatch.setenv(name, value)
    started, real = list[bool](), worker.start_spark

    def start(*arguments: Any, only_plans: bool, **options: Any) -> SparkSession:
        started.append(only_plans)
        if len(started) > 1:
            raise FatalError("SparkNotStarted", "enough is known")
        return real(*arguments, **options)

    monkeypatch.setattr(worker, "start_spark", start)
    assert program.main() == program.AGAIN
    assert client.group_status(LOGSTORE, GROUP).consumers == ()
    assert program.main() == program.FATAL
    assert started == [True, False]


@pytest.mark.deep
def test_a_worker_over_the_vendors_sdk_delivers_and_saves(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    sink, folder = tmp_path / "sink", tmp_path / "w-0"
    client = prepare(service)
    producer = Producer(client)
    producer.put(groups=5)
    config = worker_config(service.endpoint, ParquetSink(path=str(sink)))
    variables = environment(folder, service, config) | {"LOGHUB_CLIENT": "sdk"}
    worker = WorkerRuntime(read_settings(variables), SystemClock())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: delivered(sink) == producer.sent, "the rows", guard_s=GUARD_S)
        wait_until(lambda: all_saved(client), "the checkpoints", guard_s=GUARD_S)
    finally:
        worker.request_stop()
        thread.join(GUARD_S)
    assert not thread.is_alive()


def test_a_worker_waits_for_an_unreachable_service(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The worker starts before the service is reachable, reports that, and works once it is."""
    sink, folder = tmp_path / "sink", tmp_path / "w-0"
    client = prepare(service)
    producer = Producer(client)
    producer.put(groups=5)
    service.kill9()
    config = worker_config(service.endpoint, ParquetSink(path=str(sink)))
    worker = WorkerRuntime(read_settings(environment(folder, service, config)), SystemClock())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        wait_until(
            lambda: worker.status().reason == "EndpointUnreachable",
            "the worker to report it",
            guard_s=GUARD_S,
        )
        assert worker.status().phase == "starting"
        service.start()
        wait_until(lambda: delivered(sink) == producer.sent, "the rows", guard_s=GUARD_S)
        wait_until(lambda: worker.status().reason == "", "the reason to be cleared", guard_s=GUARD_S)
    finally:
        worker.request_stop()
        thread.join(GUARD_S)
    assert not thread.is_alive()
    assert delivered(sink) == producer.sent
    assert [c.name for c in client.group_status(LOGSTORE, GROUP).consumers] == ["w-0"], "it stays a member"
    assert all(s.checkpoint == s.end_cursor for s in client.group_status(LOGSTORE, GROUP).shards)
    assert status_in(folder).phase == "draining"
