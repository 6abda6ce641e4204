"""Real worker processes with a function that cannot be cancelled: it sleeps in C, in the driver."""

from collections import Counter
from pathlib import Path

import pytest

from loghub.backoff import without_jitter
from loghub.client.http import HttpLogHub
from loghub.clock import SystemClock
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import OnFailure, PythonPipeline, WorkerConfig
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.handler import AttemptJournal, FailureHandler
from loghub_consumer.failure.policy import failure_settings
from tests.loghub_worker.query.poison import ids, put, put_around_a_poison
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    WorkerProcess,
    all_saved,
    delivered,
    prepare,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SLEEPS = """
import ctypes

def run(logs):
    rows = logs.select(logs.contents["id"].alias("id"), logs.contents["status"].alias("status"))
    if rows.where("status = '-'").count():
        ctypes.CDLL(None).sleep(1_000_000)
    return rows
"""
# Whatever the speed of the machine: every batch hangs at once, before it has a job that could be cancelled.
HANGS = """
import ctypes, os

def run(logs):
    if os.path.exists("{FLAG}"):
        ctypes.CDLL(None).sleep(1_000_000)
    return logs.select(logs.contents["id"].alias("id"))
"""


def config_of(
    service: ServiceProcess, sink: Path, text: str, on_failure: OnFailure, *, batch_timeout_s: float
) -> WorkerConfig:
    """The group's timeout is far longer than the hang guard: only a worker that leaves frees its shards."""
    return worker_config(
        service.endpoint,
        ParquetSink(path=str(sink)),
        timeout_s=3600,
        pipeline=PythonPipeline(function="sleeps:run", files={"sleeps.py": text}),
        batch_timeout_s=batch_timeout_s,
        on_failure=on_failure,
    )


def ends(worker: WorkerProcess, sink: Path, expected: Counter[str]) -> bool:
    """Wait until the process ends, or everything is in the sink. Returns whether it ended."""
    wait_until(
        lambda: worker.process.poll() is not None or delivered(sink) == expected,
        "the process to end, or everything to be delivered",
        guard_s=GUARD_S,
    )
    return worker.process.poll() is not None


def check_given_up(worker: WorkerProcess, client: HttpLogHub) -> None:
    """The process ended with a clear reason, and its shards are free."""
    assert worker.wait() == 1
    message = (worker.folder / "termination").read_text()
    assert message.startswith("BatchTimedOut: a batch of shard 0 from cursor ")
    assert message.endswith("and cannot be cancelled")
    assert worker.status is not None
    assert (worker.status.phase, worker.status.reason) == ("failed", "BatchTimedOut")
    assert client.group_status(LOGSTORE, GROUP).consumers == (), "it has left the group"


def test_a_worker_whose_batch_hangs_gives_up_its_shard_and_its_next_process_would_read_a_smaller_range(
    tmp_path: Path,
) -> None:
    sink = tmp_path / "sink"
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=2, timeout_s=3600)
        text = HANGS.replace("{FLAG}", str(tmp_path / "hangs"))
        worker = workers.start("w-0", config_of(service, sink, text, OnFailure(), batch_timeout_s=5.0))
        wait_until(lambda: bool(worker.phase) and worker.shards == {0, 1}, "the shards", guard_s=GUARD_S)
        (tmp_path / "hangs").touch()
        cursor = decode_cursor(client.get_cursor(LOGSTORE, 0, "end"))
        for name in ids("after"):
            put(client, name)
        check_given_up(worker, client)
    assert not delivered(sink)
    journal, exchange = worker.folder / "state" / "attempts.json", ExchangeFiles(tmp_path)
    (left,) = AttemptJournal(journal).read().failing
    assert cursor == left.begin < left.until
    FailureHandler(
        failure_settings(OnFailure(), batch_timeout_s=5.0),
        exchange=exchange,
        clock=SystemClock(),
        journal=journal,
        dead_letters=None,
        random=without_jitter,
    )
    retry = exchange.retries().shards[0]
    assert (retry.begin, retry.log_groups) == (cursor, 1)


@pytest.mark.deep(minutes=6)
def test_the_log_group_that_hangs_each_process_is_found_and_skipped_after_a_few_of_them(
    tmp_path: Path,
) -> None:
    sink = tmp_path / "sink"
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=2, timeout_s=3600)
        cursor = put_around_a_poison(client)
        config = config_of(
            service, sink, SLEEPS, OnFailure(policy="Skip", max_attempts=1), batch_timeout_s=20.0
        )
        expected, ended = ids("before", "after", "other"), 0
        while ends(worker := workers.start("w-0", config), sink, expected):
            check_given_up(worker, client)
            ended += 1
        assert ended == 2, "of the whole batch, and of the log group alone"
        assert skips(worker) == [(0, encode_cursor(cursor))]
        assert worker.drain() == 0
        assert all_saved(client)
    assert delivered(sink) == expected


def skips(worker: WorkerProcess) -> list[tuple[int, str]]:
    wait_until(lambda: worker.status is not None and bool(worker.status.skipped), "the status")
    status = worker.status
    assert status is not None
    return [(one.shard, one.last_cursor) for one in status.skipped]
