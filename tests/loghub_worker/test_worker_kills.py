"""Real workers are killed with SIGKILL while a Spark job runs, again and again, with everything that they
have started. Another worker takes over each time, under the same name or under another one, and producers
write all the time. At the end the input and the output are compared line by line.

A worker is killed at a chosen moment. So that the kill cannot miss it, all processes of the worker are
stopped first (SIGSTOP); if the moment is over by then, they continue. `tests/loghub_worker/sink` has a kill
at each single step of the commit log, without Spark.
"""

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import Protocol

import pytest

from loghub.client.http import HttpLogHub
from loghub.sink_settings import KafkaSink, LogstoreSink, ParquetSink
from loghub.wire.cursor import decode
from loghub.worker_contract import SqlPipeline, WorkerConfig
from loghub_worker.batch_plan import Range
from loghub_worker.failure.attempt_journal import AttemptJournal
from loghub_worker.sink.commit_log import BatchDecision
from loghub_worker.sink.exclusive_files import read_json
from tests import kafka
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    LogstoreReader,
    Producer,
    WorkerProcess,
    Workers,
    all_saved,
    delivered,
    prepare,
    row_of,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

KILLS = [3, pytest.param(100, marks=[pytest.mark.deep, pytest.mark.timeout(6 * 3600)])]
SHARDS, LOGS, MAX_LOG_GROUPS, TIMEOUT_S = 3, 10, 40, 8
PAUSE_S = 0.05  # between two log groups of the producer
COPY = "copy"
COPY_SQL = """
SELECT contents['id'] AS id, __shard__ AS shard, __cursor__ AS cursor, {worker} AS worker FROM logs
"""


class Moment(StrEnum):
    """When a worker is killed."""

    JOB = "in a Spark job, before the sink has the batch"
    SINK = "after the sink has a batch, before its checkpoint"
    CHECKPOINT = "right after a checkpoint"


class SinkView(Protocol):
    """What a sink has, seen from outside."""

    def last_begins(self) -> Mapping[int, int]:
        """The last cursor at which something begins that the sink has and that the service may not have a
        checkpoint after, by shard."""


class FilesView:
    """A folder with a commit log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "_loghub" / PROJECT / LOGSTORE / GROUP

    def last_begins(self) -> Mapping[int, int]:
        begins: dict[int, int] = {}
        for path in self.records.glob("batches/*.json"):
            decision = read_json(path, BatchDecision)
            for claim in decision.claims if decision is not None and decision.committed else ():
                shard, _, begin, _ = map(int, claim.split("-"))
                begins[shard] = max(begin, begins.get(shard, 0))
        return begins


@dataclass(frozen=True, slots=True)
class Copied:
    """One row of the logstore sink: which worker, counted from 0, wrote which log from where."""

    id: str
    shard: int
    cursor: int
    worker: int


class LogstoreView:
    """A logstore that gets the rows of `COPY_SQL`."""

    def __init__(self, client: HttpLogHub) -> None:
        self._reader = LogstoreReader(client, COPY)
        self._rows: list[Copied] = []
        self._begins: dict[int, int] = {}

    def rows(self) -> Sequence[Copied]:
        for log in self._reader.logs():
            row = row_of(log)
            copied = Copied(row["id"], int(row["shard"]), int(row["cursor"]), int(row["worker"]))
            self._rows.append(copied)
            self._begins[copied.shard] = max(copied.cursor, self._begins.get(copied.shard, 0))
        return self._rows

    def last_begins(self) -> Mapping[int, int]:
        self.rows()
        return dict(self._begins)  # as of now


class TopicView:
    """A topic of Kafka."""

    def __init__(self, broker: kafka.Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def last_begins(self) -> Mapping[int, int]:
        begins: dict[int, int] = {}
        for record in self._broker.records(self._topic):
            shard, cursor, _ = kafka.place_of(record)
            begins[shard] = max(cursor, begins.get(shard, 0))
        return begins


def checkpoints(client: HttpLogHub) -> dict[int, int]:
    shards = client.group_status(LOGSTORE, GROUP).shards
    return {s.shard: decode(s.checkpoint) if s.checkpoint else 0 for s in shards}


class Victim:
    """A worker that is killed at a moment of its second batch, or of a later one."""

    def __init__(self, worker: WorkerProcess, moment: Moment, sink: SinkView, client: HttpLogHub) -> None:
        self.worker = worker
        self._moment = moment
        self._sink = sink
        self._client = client
        self._state = worker.folder / "state"
        self._journal = AttemptJournal(self._state / "attempts.json")

    @property
    def running(self) -> tuple[Range, ...]:
        """The ranges of the running batch."""
        return self._journal.read().running

    def kill(self) -> None:
        self._wait_for_a_batch()
        self._first = self.running
        self._begins, self._checkpoints = self._sink.last_begins(), checkpoints(self._client)
        wait_until(self._is_caught, self._moment, guard_s=GUARD_S)
        self.worker.kill_all()

    def _wait_for_a_batch(self) -> None:
        """The journal may be that of an earlier process until this one runs."""
        for what, condition in (
            ("the worker to run", lambda: self.worker.phase == "running"),
            ("a batch", lambda: bool(self.running)),
        ):
            wait_until(condition, what, guard_s=GUARD_S)

    def _is_caught(self) -> bool:
        """Whether the moment has come. All processes of the worker are stopped then."""
        assert self.worker.process.poll() is None, self.worker.log_tail()
        if not self._is_now():
            return False
        try:
            self.worker.signal_all(signal.SIGSTOP)
            is_caught = self._is_now()
        except BaseException:
            self.worker.kill_all()
            raise
        if not is_caught:
            self.worker.signal_all(signal.SIGCONT)
        return is_caught

    def _is_now(self) -> bool:
        if self._moment is Moment.JOB:
            running = self.running
            return (
                running not in ((), self._first) and self._is_read(running) and not self._is_in_sink(running)
            )
        saved = checkpoints(self._client)
        if self._moment is Moment.CHECKPOINT:
            return any(saved[shard] > before for shard, before in self._checkpoints.items())
        begins = self._sink.last_begins()
        new = [shard for shard, begin in begins.items() if begin > self._begins.get(shard, -1)]
        return any(begins[shard] >= saved[shard] for shard in new)

    def _is_read(self, ranges: tuple[Range, ...]) -> bool:
        """Whether a task of the running job has read one of the ranges: it has written the count, and the
        driver has not yet taken it."""
        counted = {path.name.partition("-")[2] for path in self._state.glob("exchange/counts/*.json")}
        return any(f"{part.shard}.json" in counted for part in ranges)

    def _is_in_sink(self, ranges: tuple[Range, ...]) -> bool:
        begins = self._sink.last_begins()
        return any(begins.get(part.shard, -1) >= part.begin for part in ranges)


@contextmanager
def producing(service: ServiceProcess) -> Iterator[Producer]:
    """Write log groups while the body runs."""
    with closing(HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)) as client:
        producer, stop = Producer(client), threading.Event()

        def produce() -> None:
            while not stop.wait(PAUSE_S):
                producer.put(groups=1, logs=LOGS)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(produce)
            try:
                yield producer
            finally:
                stop.set()
            writing.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A service with a group, and what its workers get. `config` maps the number of a worker to its
    settings."""

    service: ServiceProcess
    client: HttpLogHub
    workers: Workers
    sink: SinkView
    config: Callable[[int], WorkerConfig]

    def start(self, number: int) -> WorkerProcess:
        """The second worker has another name than the first one, the third the name of the second one, and so
        on."""
        return self.workers.start(f"w-{(number + 1) // 2}", self.config(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was sent, and the checkpoint of each shard after each kill."""

    sent: Counter[str]
    checkpoints: list[dict[int, int]]


def run(scene: Scene, kills: int) -> Outcome:
    """Kill so many workers while producers write, and let one more deliver the rest."""
    after_kills = []
    with producing(scene.service) as producer:
        for number, moment in zip(range(kills), cycle(Moment), strict=False):
            Victim(scene.start(number), moment, scene.sink, scene.client).kill()
            after_kills.append(checkpoints(scene.client))
        last = scene.start(kills)
        wait_until(lambda: last.phase == "running", "the last worker to run", guard_s=GUARD_S)
    wait_until(lambda: bool(last.phase) and all_saved(scene.client), "the last checkpoints", guard_s=GUARD_S)
    assert last.end(signal.SIGTERM) == 0, last.log_tail()
    return Outcome(sent=producer.sent, checkpoints=after_kills)


@pytest.mark.parametrize("kills", KILLS)
def test_a_folder_has_every_line_once_after_kills(tmp_path: Path, kills: int) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = FilesView(tmp_path / "sink")
        config = worker_config(
            service.endpoint,
            ParquetSink(path=str(sink.folder)),
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
            # So that there are batches between the sink and a checkpoint at most times.
            checkpoint_interval_s=2.0,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
    rows = delivered(sink.folder)
    print(
        f"\n{kills} kills: {sent.total()} lines in, {rows.total()} lines out,"
        f" {rows.total() - len(rows)} duplicates"
    )
    assert rows == sent
    assert list(sink.records.glob("range-claims/*")) == []


@pytest.mark.parametrize("kills", KILLS)
def test_a_logstore_has_every_line_and_repeats_at_most_one_batch_for_each_kill(
    tmp_path: Path, kills: int
) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        client.create_logstore(COPY, shards=1)
        sink = LogstoreView(client)

        def config(number: int) -> WorkerConfig:
            return worker_config(
                service.endpoint,
                LogstoreSink(project=PROJECT, logstore=COPY),
                timeout_s=TIMEOUT_S,
                max_log_groups=MAX_LOG_GROUPS,
                pipeline=SqlPipeline(text=COPY_SQL.format(worker=number)),
            )

        outcome = run(Scene(service=service, client=client, workers=workers, sink=sink, config=config), kills)
        rows = sink.rows()
    ids = {row.id for row in rows}
    in_flight = [written_after(saved, rows, by=number) for number, saved in enumerate(outcome.checkpoints)]
    duplicates = len(rows) - len(ids)
    print(
        f"\n{kills} kills: {outcome.sent.total()} lines in, {len(rows)} lines out, {duplicates} duplicates;"
        f" {sum(map(len, in_flight))} lines were in flight"
    )
    assert ids == outcome.sent.keys()
    for number, saved in enumerate(outcome.checkpoints):
        batch = {shard: range(begin, begin + MAX_LOG_GROUPS) for shard, begin in saved.items()}
        assert [row for row in in_flight[number].values() if row.cursor not in batch[row.shard]] == []
        assert [row for row in rows if row.worker > number and row.cursor < saved[row.shard]] == []
    assert duplicates <= sum(map(len, in_flight))


@pytest.mark.parametrize("kills", KILLS)
def test_kafka_has_every_line_and_readers_can_drop_what_is_repeated(tmp_path: Path, kills: int) -> None:
    if missing := kafka.missing():
        pytest.skip(missing)
    with (
        kafka.running_broker(tmp_path / "broker") as broker,
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = TopicView(broker, broker.create_topic("lines"))
        config = worker_config(
            service.endpoint,
            KafkaSink(bootstrap_servers=broker.plain, topic="lines"),
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
        records = broker.records("lines")
    rows = {kafka.place_of(record): json.loads(record.value())["id"] for record in records}
    print(
        f"\n{kills} kills: {sent.total()} lines in, {len(records)} records out,"
        f" {len(records) - len(rows)} duplicates, {len(rows)} without them"
    )
    assert Counter(rows.values()) == sent
    assert len(records) - len(rows) <= kills * SHARDS * MAX_LOG_GROUPS * LOGS


def written_after(saved: Mapping[int, int], rows: Sequence[Copied], *, by: int) -> dict[str, Copied]:
    """The rows that the workers up to this one wrote of logs after these checkpoints, by id."""
    return {row.id: row for row in rows if row.worker <= by and row.cursor >= saved[row.shard]}
