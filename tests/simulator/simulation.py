"""One schedule: a service, workers, producers and a sink folder under faults that a seed chooses.

What must hold (`Simulation` raises AssertionError, with the seed):

- Each log group that the service stored is in the sink exactly once, and nothing else is.
- A log group that was acknowledged is stored, and stays.
- A cursor never has two log groups.
- A checkpoint is never beyond what is in the sink.
- In an ordered group, a log group of a child shard is in the sink only after all of its parents.

A schedule ends with a time without faults, in which everything must arrive.
"""

import json
import os
from pathlib import Path

from loghub.client.port import GroupInfo
from loghub.client.transport import HttpCall
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import LogHubException
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.simulator.faults import Dice, Fault, ServiceCrashed, WorkerCrashed
from tests.simulator.network import Network, connect
from tests.simulator.service import PROJECT, SimService, VirtualClock
from tests.simulator.worker import GROUP, LOGSTORE, TIMEOUT_S, SimWorker, id_of, pull

EVENTS = 300
NAMES = ("w-0", "w-1", "w-2")
ACTORS = ("heartbeat", "manager", "query", "requests", "watch")
MAX_DEPTH = 2
MAX_SHARDS = 7
END_ROUNDS = 400


class Simulation:
    """``folder`` is empty; the sink, the service's metadata and the workers' state get folders in it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = Dice(seed)
        self.folder, self._state, data = folder / "sink", folder / "workers", folder / "data"
        for each in (self.folder, self._state, data):
            each.mkdir()
        self.clock = VirtualClock()
        self.service = SimService(self.clock, self.dice, data)
        self.network = Network(
            self.service, self.dice, on_call=self._others_act, on_done=self._check_checkpoint
        )
        self.order = bool(seed % 2)
        self.network.has_polls = bool(seed // 2 % 2)  # otherwise the workers see the service as they see SLS
        self.workers: dict[str, SimWorker] = {}
        self.acknowledged: set[str] = set()
        self.stored: dict[tuple[int, int], str] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.sink: dict[tuple[int, int], str] = {}
        self._ends: dict[int, int] = {}
        self._files: set[str] = set()
        self._depth = 0
        self._ids = 0
        self._admin = connect(self.network, "")
        self._producer = connect(self.network, "")

    def run(self) -> None:
        try:
            self._set_up()
            for _ in range(EVENTS):
                self._next_event()
                self._look_into_sink()
            self.dice.active = False
            self._end()
        finally:
            self.service.close()

    def _set_up(self) -> None:
        self.dice.active = False
        self.service.start()
        self._admin.create_project()
        self._admin.create_logstore(LOGSTORE, shards=2)
        self._admin.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=TIMEOUT_S, order=self.order))
        self.dice.active = True

    # -- events

    def _next_event(self) -> None:
        self.service.advance(self.dice.random.uniform(0.05, 0.8))
        if self.service.engine is None and self.dice.random.random() < 0.3:
            self._start_service()
        chance = self.dice.random.random()
        if chance < 0.60:
            self._step_a_worker()
        elif chance < 0.85:
            self._put()
        elif chance < 0.90 and self.network.late:
            self.network.deliver_late()
        else:
            self._rare_event()

    def _rare_event(self) -> None:
        chance = self.dice.random.random()
        if chance < 0.10:
            self._count(Fault.SERVICE_PAUSED)
            self.service.pause(self.dice.random.uniform(1.5, 25.0))
        elif chance < 0.20 and self.service.engine is not None:
            self._count(Fault.SERVICE_CRASHED)
            self.service.crash()
        elif chance < 0.35 and self.workers:
            self._count(Fault.WORKER_CRASHED)
            del self.workers[self.dice.random.choice(sorted(self.workers))]
        elif chance < 0.50 and self.workers:
            self._count(Fault.WORKER_PAUSED)
            worker = self.workers[self.dice.random.choice(sorted(self.workers))]
            worker.paused_until_s = self.clock.now_s + self.dice.random.uniform(2.0, 30.0)
        elif chance < 0.65:
            self._reshard()
        elif chance < 0.72 and self.service.engine is not None:
            self._stop_service()

    def _count(self, fault: Fault) -> None:
        self.dice.counts[fault] += 1

    def _start_service(self) -> None:
        damage = self.service.damage
        try:
            self.service.start()
        except ServiceCrashed:
            self.service.crash()
            return
        self._learn_stored()
        assert self.service.damage is None, f"the service started on damaged data: {damage}"

    def _stop_service(self) -> None:
        try:
            self.service.stop()
        except ServiceCrashed:
            self.service.crash()
            return
        self._count(Fault.SERVICE_STOPPED)

    def _put(self) -> None:
        self._ids += 1
        name = f"id-{self._ids}"
        group = encode(LogGroup(logs=(Log(time=1, contents=(("id", f"{name};"),)),)))
        key = f"{self.dice.random.getrandbits(128):032x}"
        try:
            self._producer.put_logs(LOGSTORE, group, hash_key=key)
        except LogHubException:
            return
        self.acknowledged.add(name)
        self._learn_stored()

    def _reshard(self) -> None:
        try:
            before = {info.shard: info for info in self._admin.list_shards(LOGSTORE)}
            writable = [shard for shard, info in before.items() if not info.read_only]
            if len(before) >= MAX_SHARDS:
                return
            shard = self.dice.random.choice(writable)
            if len(writable) > 2 and self.dice.random.random() < 0.5:
                self._admin.merge_shards(LOGSTORE, shard)
            else:
                self._admin.split_shard(LOGSTORE, shard)
        except LogHubException:
            return
        self._count(Fault.RESHARDED)

    def _step_a_worker(self) -> None:
        name = self.dice.random.choice(NAMES)
        worker = self.workers.get(name)
        if worker is None:
            if self.dice.random.random() < 0.5:
                self._start_worker(name)
            return
        if self.clock.now_s < worker.paused_until_s:
            return
        # Heartbeats are due more often than anything else; without them nobody would deliver much. Requests
        # about shards usually begin at once.
        actors = ["heartbeat", self.dice.random.choice(ACTORS)]
        if self.dice.random.random() < 0.8:
            actors.append("requests")
        for actor in actors:
            if self.workers.get(name) is worker and worker.may_act(actor):
                self._act(worker, actor)

    def _start_worker(self, name: str) -> None:
        client = connect(self.network, name)
        try:
            self.workers[name] = SimWorker(
                name,
                client,
                self.clock,
                self.folder,
                state=self._state,
                at_step=lambda _: self._at_commit_step(name),
            )
        except WorkerCrashed:
            return

    def _act(self, worker: SimWorker, actor: str) -> None:
        try:
            worker.act(actor)
        except WorkerCrashed:
            if worker.acting.total():  # an outer step of the same process ends, too
                raise
            if self.workers.get(worker.name) is worker:
                del self.workers[worker.name]
        except LogHubException:
            return  # the query fails, and the next one reads again

    def _at_commit_step(self, name: str) -> None:
        if self.dice.happens(Fault.WORKER_CRASHED_IN_COMMIT):
            raise WorkerCrashed
        self._others_act(name)

    def _others_act(self, sender: str) -> None:
        """While this sender waits for an answer, or is stopped between two steps of the commit log."""
        if sender in self.workers and self._depth < MAX_DEPTH and self.dice.happens(Fault.INTERLEAVED):
            self._depth += 1
            for _ in range(self.dice.below(6)):
                self._next_event()
            self._depth -= 1

    # -- checks

    def _check_checkpoint(self, sender: str, call: HttpCall) -> None:
        saved: dict[str, str] = {}
        if sender and call.query.get("type") == "checkpoint":
            fields = json.loads(call.body)
            saved = {fields["shard"]: fields["checkpoint"]}
        elif sender and call.path.endswith("/checkpoints"):
            saved = json.loads(call.body)
        if saved:
            self._look_into_sink()
            self._learn_stored()
        for shard, cursor in ((int(number), decode_cursor(text)) for number, text in saved.items()):
            missing = [
                at for (s, at) in self.stored if s == shard and at < cursor and (s, at) not in self.sink
            ]
            assert not missing, (
                f"checkpoint {cursor} of shard {shard} is beyond the sink, which lacks {missing}"
            )

    def _look_into_sink(self) -> None:
        """Read what is new in the folder."""
        names = sorted(entry.name for entry in os.scandir(self.folder) if entry.is_file())
        new = [name for name in names if name not in self._files]
        if not new:
            return
        self._files.update(new)
        shards = set()
        for name in new:
            for line in (self.folder / name).read_text().splitlines():
                shard, cursor, value = json.loads(line)
                assert (shard, cursor) not in self.sink, f"cursor {cursor} of shard {shard} delivered twice"
                self.sink[shard, cursor] = value
                shards.add(shard)
        if self.order:
            self._learn_stored()
            for shard in shards:
                self._check_order(shard)

    def _check_order(self, child: int) -> None:
        for parent in self.parents.get(child, ()):
            missing = [key for key in self.stored if key[0] == parent and key not in self.sink]
            assert not missing, f"shard {child} was delivered before {missing} of its parent"

    def _learn_stored(self) -> None:
        """What the service has stored, read from its logs directly."""
        engine = self.service.engine
        if engine is None:
            return
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        for shard, saved in logstore.shards.items():
            self.parents[shard] = saved.spec.parents
            log = engine.logs[saved.logstore, shard]
            extent = log.extent
            begin, end = self._ends.get(shard, extent.oldest_cursor), extent.end_cursor
            assert begin <= end, f"shard {shard} ends before cursors that were given already: from {end}"
            self._ends[shard] = end
            if begin < end:
                read = log.read(cursor=begin, end_cursor=end, max_groups=end - begin, max_bytes=1 << 30)
                for entry in read.entries:
                    self.stored[shard, entry.cursor] = id_of(bytes(entry.group))

    # -- the end

    def _end(self) -> None:
        """No faults any more: within a bounded time everything is in the sink."""
        for worker in self.workers.values():
            worker.paused_until_s = 0.0
        for _ in range(END_ROUNDS):
            if self.service.engine is None:
                self._start_service()
            for name in NAMES:
                if name not in self.workers:
                    self._start_worker(name)
                for actor in ACTORS:
                    self._act(self.workers[name], actor)
            self.service.advance(1.0)
            self._look_into_sink()
            self._learn_stored()
            if self.service.engine is not None and self.sink.keys() == self.stored.keys():
                break
        self._check_end()

    def _check_end(self) -> None:
        self._read_again()
        missing = self.stored.keys() - self.sink.keys()
        assert not missing, f"stored and never delivered: {sorted(missing)[:5]}"
        assert self.sink == self.stored
        lost = self.acknowledged - set(self.stored.values())
        assert not lost, f"acknowledged and lost: {sorted(lost)[:5]}"

    def _read_again(self) -> None:
        """Everything is still where it was, as consumers see it."""
        seen: dict[tuple[int, int], str] = {}
        for info in self._admin.list_shards(LOGSTORE):
            begin = decode_cursor(self._admin.get_cursor(LOGSTORE, info.shard, "begin"))
            end = decode_cursor(self._admin.get_cursor(LOGSTORE, info.shard, "end"))
            seen |= {(shard, at): name for shard, at, name in pull(self._admin, info.shard, begin, end)}
        assert seen == self.stored, "a stored log group is gone or has changed"
