"""A worker that copies a logstore: every log group arrives unchanged and in the order of its shard, also
after the target rejected some for a while."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from loghub.client.http import HttpLogHub
from loghub.clock import SystemClock
from loghub.contract.sinks import LogstoreSink
from loghub.contract.worker import CopyPipeline, WorkerConfig
from loghub.domain.shards import even_ranges
from loghub.wire.loggroup import Log, LogGroup, encode, split
from loghub_worker.settings import read_settings
from loghub_worker.worker import WorkerRuntime
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    prepare,
    worker_config,
    worker_environment,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

TARGET = "copied"
KEYS = [keys.begin_key for keys in even_ranges(2)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


def group(shard: int, number: int) -> bytes:
    logs = tuple(
        Log(time=1_700_000_000, time_ns=n, contents=(("n", f"{shard}.{number}.{n}"), ("raw", b"\xff")))
        for n in range(3)
    )
    tags = (("number", str(number)),)
    return encode(LogGroup(logs=logs, topic=f"t{number}", source="s", tags=tags, machine_uuid="m"))


@contextmanager
def running(folder: Path, service: ServiceProcess, config: WorkerConfig) -> Iterator[WorkerRuntime]:
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    environment = os.environ | worker_environment(folder, name="w-0", credentials_dir=service.credentials_dir)
    worker = WorkerRuntime(read_settings(environment), SystemClock())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.request_stop()
        thread.join(GUARD_S)
    assert not thread.is_alive()


def stored(client: HttpLogHub, shard: int) -> list[bytes]:
    begin = client.get_cursor(TARGET, shard, "begin")
    pulled = client.pull_logs(TARGET, shard, cursor=begin, count=1000)
    return [bytes(one) for one in split(pulled.body)]


@pytest.mark.usefixtures("spark")
def test_every_log_group_arrives_unchanged_and_in_order(service: ServiceProcess, tmp_path: Path) -> None:
    client = prepare(service, shards=2)
    sent = [[group(shard, number) for number in range(15)] for shard in range(2)]
    for shard, groups in enumerate(sent):
        for one in groups:
            client.put_logs(LOGSTORE, one, hash_key=KEYS[shard])
    config = worker_config(
        service.endpoint,
        LogstoreSink(project=PROJECT, logstore=TARGET),
        pipeline=CopyPipeline(),
        max_log_groups=7,
    )
    with running(tmp_path / "w-0", service, config) as worker:
        wait_until(
            lambda: worker.status().reason == "LogstoreNotFound", "the missing target", guard_s=GUARD_S
        )
        client.create_logstore(TARGET, shards=4)
        wait_until(
            lambda: all(s.checkpoint == s.end_cursor for s in client.group_status(LOGSTORE, GROUP).shards),
            "the checkpoints",
            guard_s=GUARD_S,
        )
        wait_until(lambda: worker.status().reason == "", "the reason to be cleared", guard_s=GUARD_S)
        status = worker.status()
    assert [stored(client, shard) for shard in range(4)] == [sent[0], [], sent[1], []]
    assert status.rows_written == 90
    assert sum(shard.logs for shard in status.shards) == 90
