"""Schedules with the vendor's Java, Go and Python libraries in place of workers.

They process and then force a checkpoint, which is at least once, and do not fence: a consumer drops its
shards only one interval after the timeout, counted from the last answer. What must hold:

- At most one consumer works on a shard, not counting those whose heartbeats the service, while it ran, has
  not received for the timeout: they have lost what they work on, until an answer names it again.
- Each log group that the service stored is processed at least once, and none that was acknowledged is lost.

Heartbeats do not overtake each other here (docs/decisions/domain.md says what would follow).
"""

from dataclasses import dataclass, field
from pathlib import Path

from loghub.client.port import LogHub
from loghub.client.transport import HttpCall
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubException
from tests.simulator.faults import Fault, WorkerCrashed
from tests.simulator.network import connect
from tests.simulator.service import TICK_S, VirtualClock
from tests.simulator.simulation import END_ROUNDS, NAMES, Simulation
from tests.simulator.worker import GROUP, INTERVAL_S, LOGSTORE, TIMEOUT_S, Row, pull

# A pause is measured from one tick to the next, so a session may end a little earlier after several.
TOLERANCE_S = 4 * TICK_S


@dataclass
class LibraryConsumer:
    """One process. ``works_on``: shard -> the cursor that it reads next, None until it has looked."""

    name: str
    client: LogHub
    clock: VirtualClock
    works_on: dict[int, int | None] = field(default_factory=dict)
    assigned: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    answered_s: float = 0.0
    processed: list[Row] = field(default_factory=list)

    def drop_if_due(self) -> None:
        if self.clock.now_s - self.answered_s >= TIMEOUT_S + INTERVAL_S:
            self.works_on, self.assigned, self.lost = {}, set(), set()

    def heartbeat(self) -> None:
        answer = self.client.heartbeat(LOGSTORE, GROUP, consumer=self.name, held=tuple(sorted(self.works_on)))
        self.answered_s = self.clock.now_s
        self.assigned = set(answer)
        self.lost -= self.assigned
        for shard in answer:
            self.works_on.setdefault(shard, None)

    def work(self) -> None:
        """Process a little of each shard, and finish those that the last answer does not list."""
        for shard in sorted(self.works_on):
            if shard in self.assigned:
                self._process(shard)
            else:
                del self.works_on[shard]
                self.lost.discard(shard)

    def _process(self, shard: int) -> None:
        begin = self.works_on[shard]
        if begin is None:
            saved = [c.cursor for c in self.client.get_checkpoints(LOGSTORE, GROUP, shard) if c.cursor]
            begin = decode_cursor(saved[0] if saved else self.client.get_cursor(LOGSTORE, shard, "begin"))
            self.works_on[shard] = begin
        end = decode_cursor(self.client.get_cursor(LOGSTORE, shard, "end"))
        rows = pull(self.client, shard, begin, min(end, begin + 3))
        self.processed += rows
        cursor = begin + len(rows)
        self.client.update_checkpoint(
            LOGSTORE, GROUP, shard=shard, cursor=encode_cursor(cursor), consumer=self.name, force=True
        )
        self.works_on[shard] = cursor


class LibrarySimulation(Simulation):
    """A schedule without workers."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.network.late_heartbeats = False
        self.network.on_done = self._heard
        self.service.on_start = self._everyone_heard
        self.consumers: dict[str, LibraryConsumer] = {}
        self._heard_s = dict.fromkeys(NAMES, 0.0)

    def _heard(self, sender: str, call: HttpCall) -> None:
        if sender and call.query.get("type") == "heartbeat":
            self._mark_lost()
            self._heard_s[sender] = self.service.ran_s

    def _everyone_heard(self) -> None:
        """A restarted service gives every consumer a new session."""
        self._mark_lost()
        self._heard_s = dict.fromkeys(NAMES, self.service.ran_s)

    def _mark_lost(self) -> None:
        for consumer in self.consumers.values():
            consumer.drop_if_due()
            if self.service.ran_s - self._heard_s[consumer.name] >= TIMEOUT_S - TOLERANCE_S:
                consumer.lost |= consumer.works_on.keys()

    def _check_exclusive(self) -> None:
        self._mark_lost()
        busy: dict[int, str] = {}
        for consumer in self.consumers.values():
            for shard in consumer.works_on.keys() - consumer.lost:
                other = busy.setdefault(shard, consumer.name)
                assert other == consumer.name, f"{other} and {consumer.name} both work on shard {shard}"

    def _step_a_worker(self) -> None:
        name = self.dice.random.choice(NAMES)
        if self.dice.random.random() < 0.01:
            self.dice.counts[Fault.WORKER_CRASHED] += 1
            self.consumers.pop(name, None)
        self._step(name, heartbeat=self.dice.random.random() < 0.7)

    def _step(self, name: str, *, heartbeat: bool) -> None:
        if name not in self.consumers:
            self.consumers[name] = LibraryConsumer(name, connect(self.network, name), self.clock)
        consumer = self.consumers[name]
        consumer.drop_if_due()
        try:
            if heartbeat:
                consumer.heartbeat()
            else:
                consumer.work()
        except LogHubException:
            return
        except WorkerCrashed:
            self.consumers.pop(name, None)
        finally:
            self.sink |= {(shard, cursor): value for shard, cursor, value in consumer.processed}
            self._check_exclusive()

    def _end(self) -> None:
        for _ in range(END_ROUNDS):
            if self.service.engine is None:
                self._start_service()
            for name in NAMES:
                self._step(name, heartbeat=True)
                self._step(name, heartbeat=False)
            self.service.advance(1.0)
            self._learn_stored()
            if self.service.engine is not None and self.sink.keys() == self.stored.keys():
                break
        self._check_end()
