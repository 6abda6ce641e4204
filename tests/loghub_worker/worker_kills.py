"""Kills or pauses real workers at chosen moments while producers write, for
`tests.loghub_worker.test_worker_kills`.

So that a kill cannot miss its moment, all processes of the worker are stopped first (SIGSTOP); if the moment
is over by then, they continue.
"""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from loghub.client.http import HttpLogHub
from loghub.contract.worker import WorkerConfig
from loghub.wire.cursor import decode
from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.handler import AttemptJournal
from tests.loghub_worker.sink_views import SinkView
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    Producer,
    WorkerProcess,
    Workers,
    all_saved,
)
from tests.support import ServiceProcess, wait_until

SHARDS, LOGS, MAX_LOG_GROUPS, TIMEOUT_S = 3, 10, 40, 8
PAUSE_S = 0.05  # between two log groups of the producer
# Log groups ahead of the checkpoints that the producer writes: there are always further batches, and the last
# worker does not need minutes for what was written while others started.
MAX_AHEAD = 6 * MAX_LOG_GROUPS
IN_A_JOB = 0.3  # of the looks at a worker may end in its kill


class Moment(StrEnum):
    """When a worker is killed."""

    JOB = "in a Spark job, before the sink has the batch"
    SINK = "after the sink has a batch, before its checkpoint"
    CHECKPOINT = "right after a checkpoint"


# The first three are inside of a batch.
KILLS = (Moment.JOB, Moment.SINK, Moment.JOB, Moment.CHECKPOINT)
PAUSES = (Moment.JOB, Moment.SINK)


def checkpoints(client: HttpLogHub) -> dict[int, int]:
    shards = client.group_status(LOGSTORE, GROUP).shards
    return {s.shard: decode(s.checkpoint) if s.checkpoint else 0 for s in shards}


def ends(client: HttpLogHub) -> dict[int, int]:
    return {s.shard: decode(s.end_cursor) for s in client.group_status(LOGSTORE, GROUP).shards}


class Victim:
    """A worker that is stopped at a moment of its second batch, or of a later one, and killed or not."""

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
        self.stop()
        self.worker.kill_all()

    def stop(self) -> None:
        """All its processes stand still afterwards."""
        self._wait_for_a_batch()
        self._first = self.running
        self._begins, self._checkpoints = self._sink.last_begins(), checkpoints(self._client)
        wait_until(self._is_caught, self._moment, guard_s=GUARD_S)

    def unsaved(self) -> int:
        """Log groups beyond the checkpoints that the sink has, or gets of the running batch, at most. The
        worker stands still."""
        ends = Counter({shard: begin + 1 for shard, begin in self._sink.last_begins().items()})
        ends |= Counter({part.shard: part.end for part in self.running})
        saved = checkpoints(self._client)
        return sum(max(0, end - saved[shard]) for shard, end in ends.items())

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
        # Now and then: otherwise a job would always be hit at its beginning.
        if (self._moment is Moment.JOB and random.random() > IN_A_JOB) or not self._is_now():
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
            return running not in ((), self._first) and not self._is_in_sink(running)
        saved, own = checkpoints(self._client), self.worker.shards
        if self._moment is Moment.CHECKPOINT:
            return any(saved[shard] > before for shard, before in self._checkpoints.items() if shard in own)
        begins = self._sink.last_begins()
        new = [shard for shard in begins.keys() & own if begins[shard] > self._begins.get(shard, -1)]
        return any(begins[shard] >= saved[shard] for shard in new)

    def _is_in_sink(self, ranges: tuple[Range, ...]) -> bool:
        begins = self._sink.last_begins()
        return any(begins.get(part.shard, -1) >= part.begin for part in ranges)


@contextmanager
def writing(put: Callable[[], object]) -> Iterator[None]:
    """Call `put` again and again while the body runs. Raises what it raises."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(PAUSE_S):
            put()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        try:
            yield
        finally:
            stop.set()
        done.result()


@contextmanager
def producing(service: ServiceProcess) -> Iterator[Producer]:
    """Write log groups while the body runs, so many that there is always more than one batch to read."""
    with closing(HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)) as client:
        producer = Producer(client)
        first = ends(client)

        def put() -> None:
            saved = checkpoints(client)
            if sum(end - max(first[shard], saved[shard]) for shard, end in ends(client).items()) < MAX_AHEAD:
                producer.put(groups=1, logs=LOGS)

        with writing(put):
            yield producer


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
    """What was sent, the checkpoint of each shard after each kill, and how many log groups were
    `Victim.unsaved` at all kills or pauses together."""

    sent: Counter[str]
    checkpoints: list[dict[int, int]]
    unsaved: int


def run(scene: Scene, kills: Sequence[Moment]) -> Outcome:
    """Kill a worker at each of these moments while producers write, and let one more deliver the rest."""
    after_kills, unsaved = [], 0
    with producing(scene.service) as producer:
        for number, moment in enumerate(kills):
            victim = Victim(scene.start(number), moment, scene.sink, scene.client)
            victim.kill()
            after_kills.append(checkpoints(scene.client))
            unsaved += victim.unsaved()
        last = scene.start(len(kills))
        wait_until(lambda: last.phase == "running", "the last worker to run", guard_s=GUARD_S)
    wait_until(lambda: bool(last.phase) and all_saved(scene.client), "the last checkpoints", guard_s=GUARD_S)
    assert last.end(signal.SIGTERM) == 0, last.log_tail()
    return Outcome(sent=producer.sent, checkpoints=after_kills, unsaved=unsaved)


def pause(scene: Scene, pauses: Sequence[Moment], *, first_kill: Moment | None = None) -> Outcome:
    """Stop one of two workers at each of these moments until the other one has its shards and has delivered
    more of them. One of the two may follow another that was killed."""
    unsaved = 0
    with producing(scene.service) as producer:
        if first_kill is not None:
            Victim(scene.start(0), first_kill, scene.sink, scene.client).kill()
        workers = [scene.start(0), scene.start(1)]
        wait_until(lambda: all(map(_is_reading, workers)), "both workers to read", guard_s=GUARD_S)
        for number, moment in enumerate(pauses):
            paused, other = workers[number % 2], workers[1 - number % 2]
            victim = Victim(paused, moment, scene.sink, scene.client)
            victim.stop()
            try:
                unsaved += victim.unsaved()
                _wait_taken_over(scene, other)
            finally:
                paused.signal_all(signal.SIGCONT)
            wait_until(lambda: all(map(_is_reading, workers)), "both workers to read", guard_s=GUARD_S)
    alive = lambda: all(worker.phase for worker in workers)  # noqa: E731
    wait_until(lambda: alive() and all_saved(scene.client), "the last checkpoints", guard_s=GUARD_S)
    for worker in workers:
        assert worker.end(signal.SIGTERM) == 0, worker.log_tail()
    return Outcome(sent=producer.sent, checkpoints=[], unsaved=unsaved)


def _is_reading(worker: WorkerProcess) -> bool:
    return worker.phase == "running" and 0 < len(worker.shards) < SHARDS


def _wait_taken_over(scene: Scene, worker: WorkerProcess) -> None:
    before = checkpoints(scene.client)

    def has_all() -> bool:
        saved = checkpoints(scene.client)
        is_alone = bool(worker.phase) and len(worker.shards) == SHARDS
        return is_alone and all(saved[shard] > before[shard] for shard in saved)

    wait_until(has_all, "the other worker to deliver all shards", guard_s=GUARD_S)
