"""One worker without Spark: the production membership, shard manager, batch delivery and commit log.

The threads of a worker are actors here, which the simulation steps. A stub takes the place of Spark: it plans
by the positions as the source does, pulls the rows and writes them as JSON lines.
"""

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from loghub.client.port import LogHub, Poll
from loghub.contract.sinks import JsonSink
from loghub.contract.worker import WorkerConfig
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import split
from loghub_consumer.batch_plan import EMPTY_PLAN, BatchLimits, BatchPlan, Range, due_retries, next_plan
from loghub_consumer.exchange_files import Positions, Report, ShardRetries
from loghub_consumer.failure.handler import AttemptJournal, Journal
from loghub_consumer.log_service import ConsumerIdentity, LogServiceAddress
from loghub_consumer.membership.heartbeat import GroupWatch, Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.streaming_query import QueryRunner
from loghub_worker.sink.files.commit_log import CommitLog
from loghub_worker.sink.files.formats import JSON
from loghub_worker.sink.files.sink import FilesSink
from loghub_worker.sink.files.storage import FolderStorage
from tests.loghub_worker.support import worker_config
from tests.simulator.faults import WorkerCrashed
from tests.simulator.service import VirtualClock

LOGSTORE, GROUP = "ls", "g"
TIMEOUT_S, INTERVAL_S, MARGIN_S = 15, 3.0, 3.0
Row = tuple[int, int, str]  # shard, cursor, id


class MemoryExchange:
    """The exchange files of `loghub_consumer.exchange_files.ExchangeFiles`, without files."""

    folder = Path("/unused")

    def __init__(self) -> None:
        self._positions = Positions(version=-1, shards={})
        self._report = Report(version=-1, ends={})
        self._retries = ShardRetries(shards={})

    def write_retries(self, retries: ShardRetries) -> None:
        self._retries = retries

    def retries(self) -> ShardRetries:
        return self._retries

    def write_positions(self, positions: Positions) -> None:
        self._positions = positions

    def positions(self) -> Positions:
        return self._positions

    def write_report(self, report: Report) -> None:
        self._report = report

    def report(self) -> Report:
        return self._report


class SimCounts:
    """What was read of the running batch, by shard."""

    def __init__(self) -> None:
        self.by_shard: dict[int, ReadCount] = {}

    def begin_batch(self) -> None:
        """They are taken at the end of a batch."""

    def of(self, ranges: tuple[Range, ...]) -> dict[int, ReadCount]:
        return {one.shard: self.by_shard.pop(one.shard) for one in ranges}


class SimSharedState(SharedState):
    """The simulation waits instead."""

    def wait(self, since: int, timeout_s: float) -> None:
        """Return immediately."""


class SimFilesSink(FilesSink):
    """Writes rows without Spark."""

    def write(self, result: Any, batch: str) -> int:
        stage = self._commit_log.stage(batch)
        stage.mkdir(parents=True)
        (stage / "part-0.json").write_text("".join(json.dumps(row) + "\n" for row in result))
        return len(result)


class SimJournal(AttemptJournal):
    """A process that is crashing writes nothing more, whatever its ``finally`` says."""

    def write(self, journal: Journal) -> None:
        if not isinstance(sys.exception(), WorkerCrashed):
            super().write(journal)


class SimTasks:
    """The threads of the shard manager's requests as one actor, which begins them in order. While one waits,
    it may act again, so that requests about several shards are under way."""

    def __init__(self) -> None:
        self._busy: set[Hashable] = set()
        self._waiting: deque[tuple[frozenset[Hashable], Callable[[frozenset[Hashable]], None]]] = deque()

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        return bool(self.start_together((key,), lambda _: task()))

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        free = frozenset(keys) - self._busy
        self._busy |= free
        if free:
            self._waiting.append((free, task))
        return free

    def run_waiting(self) -> None:
        while self._waiting:
            keys, task = self._waiting.popleft()
            try:
                task(keys)
            finally:
                self._busy -= keys

    def alone(self, key: Hashable) -> AbstractContextManager[None]:
        raise NotImplementedError("only consumers without Spark wait for a shard's requests")

    def wait_for(self, keys: Set[Hashable]) -> None:
        """What has not begun yet runs now; what waits for an answer cannot be waited for."""
        self.run_waiting()

    def stop(self, timeout_s: float) -> None:
        """A worker ends with its process here."""


def config() -> WorkerConfig:
    return worker_config(
        "http://127.0.0.1:1",
        JsonSink(path="/unused"),
        logstore=LOGSTORE,
        consumer_group=GROUP,
        timeout_s=TIMEOUT_S,
        heartbeat_interval_s=INTERVAL_S,
        checkpoint_interval_s=2.0,
    )


class SimWorker:
    """One process of a worker. ``acting`` counts the steps of each actor that it is in the middle of.

    ``folder`` is that of the sink; ``state`` has the journals and plans of all workers.
    """

    def __init__(
        self,
        name: str,
        client: LogHub,
        clock: VirtualClock,
        folder: Path,
        *,
        state: Path,
        at_step: Callable[[str], None],
    ) -> None:
        self.name = name
        self.acting: Counter[str] = Counter()
        self.paused_until_s = 0.0
        self.client = client
        self.exchange = MemoryExchange()
        timings = MembershipTimings(interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, margin_s=MARGIN_S)
        self.shared_state = SimSharedState(Membership(timings), self.exchange, clock)
        identity = ConsumerIdentity(logstore=LOGSTORE, group=GROUP, consumer=name)
        storage = FolderStorage(folder, group_path=("proj", LOGSTORE, GROUP))
        commit_log = CommitLog(storage, at_step=at_step)
        commit_log.prune(owner=name)
        sink = SimFilesSink(commit_log, JSON)
        self.heartbeat = Heartbeats(self.shared_state, client, identity)
        self.watch = GroupWatch(self.shared_state, client, identity, wait_s=0.0)
        self._tasks = SimTasks()
        self.manager = ShardManager(
            self.shared_state,
            client,
            ShardOpening(client, sink, identity, config=config()),
            identity,
            config=config(),
            tasks=self._tasks,
        )
        self._offsets = state / name / "offsets"
        self._offsets.mkdir(parents=True, exist_ok=True)
        settings = QuerySettings(
            config=config(),
            consumer=name,
            address=LogServiceAddress(endpoint="", project="", credentials_dir=""),
            exchange=self.exchange,  # type: ignore[arg-type]
            scratch=state / name,
            journal=state / f"{name}.json",
        )
        spark: Any = None
        transform: Any = lambda rows: rows  # noqa: E731
        self.query = QueryRunner(
            settings, spark, self.shared_state, self.manager, transform=transform, sink=sink
        )
        self.query.failures._journal = SimJournal(settings.journal)
        self._counts = SimCounts()
        self.query.counts = self._counts  # type: ignore[assignment]
        self._plan: BatchPlan = EMPTY_PLAN
        with self.shared_state.use() as (membership, _):
            membership.source_started()

    def may_act(self, actor: str) -> bool:
        """A thread of a worker waits for its own step; there are several for requests about shards."""
        return not self.acting[actor] or actor == "requests"

    def act(self, actor: str) -> None:
        self.acting[actor] += 1
        try:
            getattr(self, f"_{actor}")()
        finally:
            self.acting[actor] -= 1

    def _heartbeat(self) -> None:
        self.heartbeat.step()

    def _watch(self) -> None:
        self.watch.step()

    def _manager(self) -> None:
        self.manager.step()

    def _requests(self) -> None:
        self._tasks.run_waiting()

    def _query(self) -> None:
        """One micro-batch, as the source and Spark do it."""
        plan = self._next_plan()
        if plan is self._plan:
            return
        self._plan = plan
        rows = [row for shard_range in plan.ranges for row in self._read(shard_range)]
        (self._offsets / str(plan.number)).write_text(json.dumps(plan.to_json()))
        self.query._process(rows, plan.number)  # type: ignore[arg-type]

    def _next_plan(self) -> BatchPlan:
        positions = self.exchange.positions()
        ends = self._ends(positions)
        self.exchange.write_report(Report(version=positions.version, ends=ends))
        return next_plan(
            self._plan,
            positions=positions.shards,
            ends=ends,
            sizes={},
            limits=BatchLimits(log_groups=4, bytes=1 << 30, logs=1_000_000),
            retries=due_retries(
                self.exchange.retries().shards, positions.shards, now=self.shared_state.clock.monotonic_s()
            ),
        )

    def _ends(self, positions: Positions) -> dict[int, int]:
        if not self.client.has_polls():
            ends = {shard: self.client.get_cursor(LOGSTORE, shard, "end") for shard in positions.shards}
        else:
            poll = Poll(name=self.name, wait_s=0.0)
            found = self.client.await_ends(LOGSTORE, dict.fromkeys(positions.shards, ""), poll=poll)
            ends = {one.shard: one.end for one in found}
        return {shard: decode_cursor(end) for shard, end in ends.items()}

    def _read(self, shard_range: Range) -> list[Row]:
        rows = list(pull(self.client, shard_range.shard, shard_range.begin, shard_range.end))
        self._counts.by_shard[shard_range.shard] = ReadCount(logs=len(rows), bytes=1)
        return rows


def pull(client: LogHub, shard: int, begin: int, end: int) -> list[Row]:
    """The log groups of a range; each has one log, whose id is its only value."""
    rows: list[Row] = []
    while begin < end:
        pulled = client.pull_logs(
            LOGSTORE, shard, cursor=encode_cursor(begin), count=end - begin, end_cursor=encode_cursor(end)
        )
        if not pulled.count:
            break
        for group in split(pulled.body):
            rows.append((shard, begin, id_of(bytes(group))))
            begin += 1
    return rows


def id_of(group: bytes) -> str:
    start = group.index(b"id-")
    return group[start : group.index(b";", start)].decode()
