"""A state that outgrows the heap of a real Spark: the worker ends, and says so with the size of the state."""

import random
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.loghub_worker.stateful_pipelines import DEDUPLICATE
from tests.loghub_worker.support import (
    GUARD_S,
    LOGSTORE,
    WorkerProcess,
    prepare,
    worker_config,
    worker_processes,
)
from tests.support import running_service

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

# Spark takes no less than 450 MiB. Its files keep the whole state in the heap, in two versions.
HEAP = "512m"
ID_BYTES, LOGS = 20_000, 100  # so that some hundred log groups fill it
MAX_GROUPS = 1000  # forty times the heap


def put_until_it_ends(client: HttpLogHub, worker: WorkerProcess) -> int:
    """Write logs, each with an id of its own, until the worker has ended; its status."""
    dice = random.Random(1)
    for number in range(MAX_GROUPS):
        if worker.process.poll() is not None:
            break
        ids = (dice.randbytes(ID_BYTES // 2).hex() for _ in range(LOGS))
        logs = tuple(Log(time=1_767_225_600 + number, contents=(("id", one),)) for one in ids)
        client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)))
    return worker.process.wait(GUARD_S)


@pytest.mark.deep(minutes=10)
def test_a_state_that_outgrows_the_heap_names_its_size_and_stays(tmp_path: Path) -> None:
    with running_service(tmp_path / "service") as service, worker_processes(tmp_path, service) as workers:
        client = prepare(service, shards=1)
        config = worker_config(
            service.endpoint,
            ParquetSink(path=str(tmp_path / "out")),
            pipeline=DEDUPLICATE,
            stateful=True,
            spark_memory=HEAP,
            max_log_groups=2,
        )
        worker = workers.start("w-0", config)
        assert put_until_it_ends(client, worker) == 1, worker.log_tail()
        status = worker.status
        assert status is not None
        assert status.reason == "SparkDriverExited"
        assert "the state has " in status.message
        rows, size = (int(status.message.split(word)[0].split()[-1]) for word in (" rows", " MiB"))
        assert rows > 1000
        assert size > 20, "most of what the heap had"
        assert "raise spark.memory" in status.message
        assert list((worker.folder / "state" / "stateful" / "checkpoint" / "state").rglob("*.delta"))
