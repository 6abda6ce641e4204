"""Workers with a stateful pipeline are killed with SIGKILL, with everything that they have started.

Every log is sent more than once, long after its first copy, and the pipeline passes on the first one. A state
that lacks delivered logs would pass on a second one, and a state with logs that were not delivered would pass
on none. So the output must have each id exactly once, whatever the moment of the kill.

`query/test_stateful_query.py` ends a worker at the same moments without a process of its own."""

import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from itertools import count
from pathlib import Path

import msgspec
import pytest

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.state.checkpoint_folder import pending_batch
from tests.loghub_worker.stateful_pipelines import DEDUPLICATE
from tests.loghub_worker.support import (
    GUARD_S,
    LOGSTORE,
    PROJECT,
    WorkerProcess,
    all_saved,
    delivered,
    prepare,
    worker_config,
    worker_processes,
)
from tests.loghub_worker.worker_kills import writing
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

SHARDS, COPIES = 2, 3
LATER = 40  # log groups between a log and its next copy


class Moment(StrEnum):
    """When a worker is killed."""

    PLANNED = "a batch is planned, and the sink does not have it"
    PUBLISHED = "the sink may have the batch, and the worker has not recorded that"
    RECORDED = "the worker has recorded that the sink has the batch, and Spark's query has not ended it"


class Ledger(msgspec.Struct):
    batch: int
    publishing: int = -1


class State:
    """The folder of a worker's state, as it is now."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._folder = worker.folder / "state" / "stateful"

    def is_at(self, moment: Moment, *, after: int) -> bool:
        """Whether the moment of a batch after this one has come."""
        pending = pending_batch(self._folder / "checkpoint")
        if pending is None or pending <= after:
            return False
        ledger = self.ledger
        if moment is Moment.RECORDED:
            return ledger.batch == pending
        return ledger.batch < pending and (ledger.publishing == pending) == (moment is Moment.PUBLISHED)

    @property
    def ledger(self) -> Ledger:
        return msgspec.json.decode((self._folder / "ledger.json").read_bytes(), type=Ledger)


def kill_at(worker: WorkerProcess, moment: Moment) -> None:
    """Kill all processes of the worker at this moment of its third batch, or of a later one. They are stopped
    first, and continue if the moment is over by then."""
    wait_until(lambda: worker.phase == "running", "the worker to run", guard_s=GUARD_S)
    state = State(worker)
    after = state.ledger.batch + 2
    for _ in count():
        assert worker.process.poll() is None, worker.log_tail()
        if not state.is_at(moment, after=after) or random.random() < 0.3:
            continue
        worker.process.send_signal(signal.SIGSTOP)
        if state.is_at(moment, after=after):
            break
        worker.process.send_signal(signal.SIGCONT)
    worker.kill_all()


class Repeating:
    """Writes log groups, each of them several times, into the shard of its number."""

    def __init__(self, client: HttpLogHub) -> None:
        self._client = client
        self._numbers = count()
        self.sent: Counter[str] = Counter()

    def put(self) -> None:
        """The next log group, and copies of earlier ones."""
        number = next(self._numbers)
        for copy in range(COPIES):
            if (earlier := number - copy * LATER) >= 0:
                self._put(earlier)

    def _put(self, number: int) -> None:
        ids = [f"id-{number}-{n}" for n in range(10)]
        logs = tuple(Log(time=1_767_225_600 + number, contents=(("id", one),)) for one in ids)
        key = ("1" if number % 2 else "9") * 32
        self._client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)), hash_key=key)
        self.sent.update(ids)


@contextmanager
def producing(service: ServiceProcess) -> Iterator[Repeating]:
    """Write while the body runs."""
    with closing(HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)) as client:
        producer = Repeating(client)
        with writing(producer.put):
            yield producer


FILES: dict[str, str] = {}  # Spark's default
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


@pytest.mark.parametrize(
    ("moments", "store"),
    [
        pytest.param(list(Moment), FILES, id="3-files", marks=pytest.mark.deep(minutes=6)),
        pytest.param(list(Moment), ROCKSDB, id="3-rocksdb", marks=pytest.mark.deep(minutes=6)),
        pytest.param(list(Moment) * 10, FILES, id="30-files", marks=pytest.mark.deep(minutes=60)),
    ],
)
def test_each_id_arrives_once_although_workers_with_state_are_killed(
    tmp_path: Path, moments: list[Moment], store: dict[str, str]
) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS)
        config = worker_config(
            service.endpoint,
            ParquetSink(path=str(tmp_path / "sink")),
            pipeline=DEDUPLICATE,
            stateful=True,
            spark_conf=store,
            # So that there are batches between the sink and a checkpoint at most times.
            checkpoint_interval_s=2.0,
        )
        with producing(service) as producer:
            for moment in moments:
                kill_at(workers.start("w-0", config), moment)
            last = workers.start("w-0", config)
            wait_until(lambda: last.phase == "running", "the last worker to run", guard_s=GUARD_S)
        wait_until(lambda: bool(last.phase) and all_saved(client), "the last checkpoints", guard_s=GUARD_S)
        status = last.status
        assert last.end(signal.SIGTERM) == 0, last.log_tail()
    rows = delivered(tmp_path / "sink")
    print(
        f"\n{len(moments)} kills: {producer.sent.total()} logs in, {len(producer.sent)} ids,"
        f" {rows.total()} rows out"
    )
    assert rows == Counter(set(producer.sent))
    assert max(producer.sent.values()) == COPIES
    assert status is not None
    assert status.incomplete == []
