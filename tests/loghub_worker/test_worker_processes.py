"""Real worker processes on a real service: no log is lost and none is delivered twice.

In `make test`, workers are killed and fenced in `test_worker_kills`, and one leaves in `test_key_rotation`.
"""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import LogstoreSink, ParquetSink
from loghub.contract.worker import DRAIN_REQUESTED, SqlPipeline
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    LogstoreReader,
    Producer,
    WorkerProcess,
    all_saved,
    delivered,
    prepare,
    processes_of,
    row_of,
    wait_delivered,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ALL = {0, 1, 2, 3}


def holders(client: HttpLogHub) -> dict[int, str]:
    """The holder of each shard according to the service."""
    shards = client.group_status(LOGSTORE, GROUP).shards
    return {s.shard: s.holder for s in shards if s.state == "already_alloc"}


def wait_shared(workers: list[WorkerProcess], client: HttpLogHub) -> None:
    """Wait until each of the workers reads half of the shards."""

    def shared() -> bool:
        running = all(worker.phase == "running" for worker in workers)
        halves = [worker.shards for worker in workers]
        return running and set().union(*halves) == ALL and all(len(half) == 2 for half in halves)

    wait_until(shared, "the shards to be shared", guard_s=GUARD_S)
    assert holders(client) == {shard: w.name for w in workers for shard in w.shards}


@pytest.mark.deep(minutes=5)
def test_every_line_is_delivered_once_after_a_kill_a_fence_and_a_stop(tmp_path: Path) -> None:
    """Two workers share the shards. One is killed while it works. The other takes over, does not reach the
    service for longer than its timeout, recovers, and is finally stopped without leaving the group."""
    sink = tmp_path / "sink"
    timeout_s = 8
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, timeout_s=timeout_s)
        producer = Producer(client)
        config = worker_config(
            service.endpoint, ParquetSink(path=str(sink)), timeout_s=timeout_s, max_log_groups=7
        )
        first, second = workers.start("w-0", config), workers.start("w-1", config)
        producer.put(groups=40)
        wait_shared([first, second], client)
        producer.put(groups=120)
        rows = delivered(sink).total()
        wait_until(lambda: delivered(sink).total() > rows, "the workers to deliver", guard_s=GUARD_S)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        producer.put(groups=40)
        wait_delivered(sink, producer.sent, [second])
        assert delivered(sink) == producer.sent
        assert holders(client) == dict.fromkeys(ALL, "w-1")

        fence(service, second, producer, sink)
        assert delivered(sink) == producer.sent

        producer.put(groups=40)
        assert second.end(signal.SIGTERM) == 0, second.log_tail()
        assert holders(client) == dict.fromkeys(ALL, "w-1"), "it stays a member"
        third = workers.start("w-1", config)
        wait_delivered(sink, producer.sent, [third])
        wait_until(lambda: all_saved(client), "the last checkpoints")
    assert delivered(sink) == producer.sent


def fence(service: ServiceProcess, worker: WorkerProcess, producer: Producer, sink: Path) -> None:
    """Stop the service for longer than the timeout, while the worker has logs to deliver."""
    producer.put(groups=200)
    os.kill(service.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: worker.phase == "fenced", "the worker to fence itself", guard_s=GUARD_S)
        assert worker.shards == set()
    finally:
        os.kill(service.pid, signal.SIGCONT)
    wait_until(lambda: worker.phase == "running", "the worker to recover", guard_s=GUARD_S)
    wait_delivered(sink, producer.sent, [worker])


@pytest.mark.deep(minutes=3)
def test_a_worker_that_leaves_releases_its_shards_immediately(tmp_path: Path) -> None:
    """The group's timeout is far longer than the hang guard, so only the leave can move the shards. The sink
    is another logstore."""
    copy = LogstoreSink(project=PROJECT, logstore="copy")
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, timeout_s=3600)
        client.create_logstore("copy", shards=1)
        producer = Producer(client)
        sql = "SELECT __time__, contents, contents AS as_json, CAST(NULL AS STRING) AS nothing FROM logs"
        config = worker_config(service.endpoint, copy, timeout_s=3600, pipeline=SqlPipeline(text=sql))
        remaining, leaving = workers.start("w-0", config), workers.start("w-1", config)
        producer.put(groups=40)
        wait_shared([remaining, leaving], client)
        producer.put(groups=40)
        leaving.drain_file.write_text(DRAIN_REQUESTED)
        wait_until(lambda: leaving.phase == "left", "the worker to leave", guard_s=GUARD_S)
        wait_until(lambda: remaining.shards == ALL, "the other worker to get all shards", guard_s=GUARD_S)
        assert [consumer.name for consumer in client.group_status(LOGSTORE, GROUP).consumers] == ["w-0"]
        assert leaving.end(signal.SIGTERM) == 0
        producer.put(groups=40)
        wait_until(lambda: all_saved(client), "all to be copied", guard_s=GUARD_S)
        assert copied(client) == producer.sent
        assert remaining.drain() == 0


def copied(client: HttpLogHub) -> Counter[str]:
    """The ids in the logstore `copy`; every log must have exactly the columns that were not null."""
    ids: Counter[str] = Counter()
    for log in LogstoreReader(client, "copy").logs():
        row = row_of(log)
        assert row.keys() == {"id", "line", "as_json"}
        assert json.loads(row["as_json"]) == {"id": row["id"], "line": row["line"]}
        assert abs(log.time - time.time()) < GUARD_S * 4
        ids[row["id"]] += 1
    return ids


def test_a_worker_that_is_stopped_while_spark_starts_ends_immediately(tmp_path: Path) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service)
        worker = workers.start(
            "w-0", worker_config(service.endpoint, ParquetSink(path=str(tmp_path / "sink")))
        )
        wait_until(lambda: worker.phase == "starting", "the first status", guard_s=GUARD_S)
        assert worker.end(signal.SIGTERM) == 0
        assert "membership changed" not in worker.log_tail(), "it never joined"
        wait_until(lambda: not processes_of(worker), "Spark's processes to end with it")
        assert client.group_status(LOGSTORE, GROUP).consumers == ()
