"""A worker's membership threads on the fake log service, stepped by the test.

The service has one logstore with one shard, unless a test wants more; the sink only records its calls.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loghub.client.port import GroupInfo, Position
from loghub.contract.sinks import ParquetSink
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.batch_plan import Range
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.log_service import ConsumerIdentity
from loghub_consumer.membership.heartbeat import Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings, ShardPhase
from loghub_consumer.membership.shard_manager import ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import ShardTasks, SharedState
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.loghub_consumer.membership.tasks_in_order import TasksInOrder
from tests.loghub_worker.support import worker_config

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))
IDENTITY = ConsumerIdentity(logstore="ls", group="g", consumer="c")


class FakeClock:
    """A clock that the test moves, with different monotonic and unix seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return 1_700_000_000 + self.now


class RecordingSink:
    """A sink that has delivered `ahead` log groups more than the checkpoint."""

    def __init__(self) -> None:
        self.ahead = 0
        self.resume_waits_for: threading.Event | None = None
        self.opened: list[ShardIncarnation] = []
        self.resumed = 0
        self.moved: list[bool] = []
        self.acknowledged: list[tuple[int, int]] = []

    def open_shard(self, shard: ShardIncarnation) -> None:
        self.opened.append(shard)

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin,
    ) -> int:
        if self.resume_waits_for is not None:
            self.resume_waits_for.wait(60)
        confirm()
        self.resumed += 1
        self.moved.append(origin is CheckpointOrigin.MOVED)
        return checkpoint + self.ahead

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self.acknowledged.append((shard, checkpoint))


class OneShardWorker:
    """A worker's threads on a fake log service with a logstore of one shard."""

    def __init__(
        self,
        folder: Path,
        *,
        groups: int = 0,
        start_position: Position = "begin",
        checkpoint_interval_s: float = 0.0,
        last_initial_shard: int | None = None,
        shards: int = 1,
        tasks: ShardTasks | None = None,
        is_started: bool = True,
        **timings: float,
    ) -> None:
        self.config = worker_config(
            "http://unused",
            ParquetSink(path="/unused"),
            start_position=start_position,
            checkpoint_interval_s=checkpoint_interval_s,
            last_initial_shard=last_initial_shard,
        )
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock)
        self.client = self.server.client("proj")
        self.client.create_project()
        self.client.create_logstore("ls", shards=shards)
        self.client.create_group("ls", GroupInfo(name="g", timeout_s=30, order=False))
        for _ in range(groups):
            self.client.put_logs("ls", GROUP)
        self.begin = self.cursor("begin")
        self.exchange = ExchangeFiles(folder)
        settings = {"interval_s": 5.0, "timeout_s": 30.0, "margin_s": 4.0} | timings
        self.shared_state = SharedState(Membership(MembershipTimings(**settings)), self.exchange, self.clock)
        self.sink = RecordingSink()
        self.tasks = tasks or TasksInOrder()
        self.heartbeat = Heartbeats(self.shared_state, self.client, IDENTITY)
        self.shard_manager = self.make_shard_manager(self.client)
        if is_started:
            self.step()

    def make_shard_manager(self, client: MemoryLogHub) -> ShardManager:
        sink: Any = self.sink
        return ShardManager(
            self.shared_state,
            client,
            ShardOpening(client, sink, IDENTITY, config=self.config),
            IDENTITY,
            config=self.config,
            tasks=self.tasks,
        )

    def cursor(self, position: Position, shard: int = 0) -> int:
        return decode(self.client.get_cursor("ls", shard, position))

    def put(self, groups: int) -> None:
        """Write log groups to every shard that accepts them."""
        for shard in self.client.list_shards("ls"):
            for _ in range(0 if shard.read_only else groups):
                self.client.put_logs("ls", GROUP, hash_key=shard.begin_key)

    @property
    def opened_at(self) -> dict[int, int]:
        """The first position of each shard that was opened, which is saved at once."""
        return dict(reversed(self.sink.acknowledged))

    def read_all(self) -> None:
        """Commit every shard to its end; the children of one that is over follow two heartbeats later."""
        for _ in range(6):
            self.step()
            self._commit_to_end()

    def _commit_to_end(self) -> None:
        with self.shared_state.use() as (membership, _):
            held = {shard.shard: shard.position for shard in membership.shards}
        behind = [
            Range(shard, position, self.cursor("end", shard))
            for shard, position in held.items()
            if position is not None and position < self.cursor("end", shard)
        ]
        with self.shared_state.use() as (membership, _):
            membership.committed(tuple(behind), logs={}, read_bytes={})

    def step(self) -> None:
        """Send one heartbeat and do one step of the shard manager, five seconds later."""
        self.clock.now += 5
        self.heartbeat.step()
        self.shard_manager.step()

    def checkpoint(self, shard: int = 0) -> str:
        return next(c.cursor for c in self.client.get_checkpoints("ls", "g", shard) if c.shard == shard)

    def phases(self) -> dict[int, ShardPhase]:
        with self.shared_state.use() as (membership, _):
            return {s.shard: s.phase for s in membership.shards}

    def commit(self, begin: int, end: int) -> None:
        with self.shared_state.use() as (membership, _):
            membership.committed((Range(0, begin, end),), logs={}, read_bytes={})
