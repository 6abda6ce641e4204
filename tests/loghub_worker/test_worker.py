"""Whole workers in this process, on the Spark that all tests share: a process of its own would only
add the start of one more JVM."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
from pyspark.sql import SparkSession

from loghub.clock import SystemClock
from loghub.worker_contract import ParquetSink, SqlPipeline, WorkerConfig, WorkerStatus
from loghub_worker import __main__ as program
from loghub_worker.settings import read_settings
from loghub_worker.worker import Worker
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    Producer,
    delivered,
    prepared,
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
    """The program's signal handlers and its log go with it."""
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
def test_wrong_sql_ends_the_worker_before_it_takes_a_shard(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = prepared(service)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    config = worker_config(service.endpoint, sink, pipeline=SqlPipeline(text="SELECT nope FROM logs"))
    folder = tmp_path / "w-0"
    for name, value in environment(folder, service, config).items():
        monkeypatch.setenv(name, value)
    assert program.main() == program.FATAL
    words = (folder / "termination").read_text()
    assert words.startswith("InvalidPipeline: [UNRESOLVED_COLUMN")
    assert "nope" in words
    status = status_in(folder)
    assert (status.phase, status.reason) == ("failed", "InvalidPipeline")
    assert hub.group_status(LOGSTORE, GROUP).consumers == ()


def test_unreachable_service_is_waited_for(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The worker starts before the service can be reached, says so, and works when it can."""
    sink, folder = tmp_path / "sink", tmp_path / "w-0"
    hub = prepared(service)
    producer = Producer(hub)
    producer.put(groups=5)
    service.kill9()
    config = worker_config(service.endpoint, ParquetSink(path=str(sink)))
    worker = Worker(read_settings(environment(folder, service, config)), SystemClock())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        wait_until(
            lambda: worker.status().reason == "EndpointUnreachable", "the worker to say so", guard_s=GUARD_S
        )
        assert worker.status().phase == "starting"
        service.start()
        wait_until(lambda: delivered(sink) == producer.sent, "the rows", guard_s=GUARD_S)
        wait_until(lambda: worker.status().reason == "", "the reason to go", guard_s=GUARD_S)
    finally:
        worker.request_stop()
        thread.join(GUARD_S)
    assert not thread.is_alive()
    assert delivered(sink) == producer.sent
    assert [c.name for c in hub.group_status(LOGSTORE, GROUP).consumers] == ["w-0"], "it stays a member"
    assert all(s.checkpoint == s.end_cursor for s in hub.group_status(LOGSTORE, GROUP).shards)
    assert status_in(folder).phase == "draining"
