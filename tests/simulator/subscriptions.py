"""Schedules with consumers of a subscription in place of workers.

They are connected to the registry of subscriptions, as those of an endpoint are: they join, ask for logs,
acknowledge some with a receipt and some without, and want some again. A connection is lost with the service,
with its consumer, and sometimes by itself; then what was out goes to others, and an acknowledgment of it may
still arrive. What must hold, besides what holds for each log group (`simulation`):

- A log whose acknowledgment has a receipt is never delivered again.
- Every log that was stored is delivered, and in the end all are acknowledged, with nothing left to remember.
- In Shared and Key_Shared a log is out at one consumer. In Key_Shared the logs of a key are delivered in
  their order the first time, and in ordered types all logs of a shard.
- A log of a child shard is delivered after all of its parents are acknowledged, but for Shared.
"""

from dataclasses import dataclass, field
from pathlib import Path

from loghub.domain.log_position import ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.engine import Engine
from loghub_service.storage.shardlog import cursor_of
from loghub_service.storage.shardlog import ordinal_of as ordinal_at
from loghub_service.subscription.events import (
    Ack,
    ClockRead,
    Delivery,
    Event,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    LoadGroups,
    Redeliver,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.slots import slot_of
from loghub_service.subscription.state import SubscriptionSettings
from loghub_service.subscription.step import next_deadline
from loghub_service.subscription_registry import RegisteredSubscription
from tests.simulator.faults import Fault, ServiceCrashed
from tests.simulator.service import PROJECT
from tests.simulator.simulation import END_ROUNDS, NAMES, Simulation
from tests.simulator.worker import id_of

NAME = "s"
KEYS = 5
MAX_LOADED = 8  # log groups of one load
Log = tuple[int, int]  # shard and cursor


@dataclass
class ConnectedConsumer:
    """One connection. ``out`` has what was delivered on it and is not acknowledged."""

    name: str
    number: int
    out: list[Log] = field(default_factory=list)


class SubscriptionSimulation(Simulation):
    """``acked`` are the logs whose acknowledgment was sent, and of ``receipted`` it came back that they are
    durable. ``delivered`` has each log that ever was."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.kind = list(SubscriptionType)[seed % len(SubscriptionType)]
        self.consumers: dict[str, ConnectedConsumer] = {}
        self.acked: set[Log] = set()
        self.receipted: set[Log] = set()
        self.delivered: set[Log] = set()
        self._late: list[list[Log]] = []  # acknowledgments on their way, of connections that are lost
        self._numbers = 0
        self.service.on_start = self.consumers.clear

    def _set_up(self) -> None:
        super()._set_up()
        self.dice.active = False
        self.service.act(self._create)
        self.dice.active = True

    async def _create(self, engine: Engine) -> None:
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        settings = SubscriptionSettings(type=self.kind)
        created = engine.subscriptions.create(logstore.saved.id, NAME, settings, self._starts(engine))
        await created.durable()

    # -- the service's side of the connections

    def _starts(self, engine: Engine) -> dict[int, ShardStart]:
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        starts = {}
        for shard, saved in logstore.shards.items():
            log = engine.logs[saved.logstore, shard]
            starts[shard] = ShardStart(
                parents=saved.spec.parents,
                mark=position_of(ordinal_at(log, log.extent.oldest_cursor)),
                end=position_of(ordinal_at(log, log.extent.end_cursor)),
                is_closed=saved.spec.read_only,
            )
        return starts

    async def _apply(self, engine: Engine, event: Event, *, receipt: bool = False) -> bool:
        """Whether nothing was refused or rejected, and all of it is durable if a receipt is requested."""
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        subscription = engine.subscriptions.of(logstore.saved.id)[NAME]
        self._learn_stored()
        self._step(engine, subscription, SubscribedShards(shards=self._starts(engine)))
        deadline_s = next_deadline(subscription.state)
        if deadline_s is not None and deadline_s <= self.clock.now_s:
            self._step(engine, subscription, ClockRead(unix_s=self.clock.unix_s()))
        if isinstance(event, Redeliver):
            (consumer,) = (each for each in self.consumers.values() if each.number == event.consumer)
            consumer.out = [one for one in consumer.out if one[0] != event.shard]
        is_taken = self._step(engine, subscription, event)
        if receipt:
            await subscription.durable()
        return is_taken

    def _step(self, engine: Engine, subscription: RegisteredSubscription, event: Event) -> bool:
        done = subscription.apply(event, now=self.clock.now_s)
        for delivery in done.deliveries:
            self._deliver(engine, subscription, delivery)
        for load in done.loads:
            self._step(engine, subscription, self._loaded(engine, subscription.logstore, load))
        return done.refusal is None and not done.rejected

    def _loaded(self, engine: Engine, logstore: int, load: LoadGroups) -> GroupsLoaded:
        log = engine.logs[logstore, load.shard]
        end, cursor = log.extent.end_cursor, cursor_of(log, ordinal_of(load.first))
        groups = min(MAX_LOADED, end - cursor)
        read = log.read(cursor=cursor, end_cursor=end, max_groups=groups, max_bytes=1 << 30)
        entries = [
            LoadedEntry(
                position_of(ordinal_at(log, entry.cursor)),
                1,
                slots=[slot_of(key_of(id_of(bytes(entry.group))))] if load.with_slots else None,
            )
            for entry in read.entries
        ]
        after = position_of(ordinal_at(log, read.next_cursor))
        return GroupsLoaded(shard=load.shard, load=load.number, entries=entries, next=after)

    # -- what consumers get

    def _deliver(self, engine: Engine, subscription: RegisteredSubscription, delivery: Delivery) -> None:
        shard, log = delivery.shard, engine.logs[subscription.logstore, delivery.shard]
        logs = [
            (shard, cursor_of(log, ordinal_of(position)))
            for first, stop, _ in delivery.runs
            for position in range(first, stop)
        ]
        again = self.receipted.intersection(logs)
        assert not again, f"acknowledged with a receipt, and delivered again: {sorted(again)}"
        assert self.stored.keys() >= set(logs), "a log is delivered that is not stored"
        self.dice.counts[Fault.ACK_LOST] += len(self.acked.intersection(logs))
        if self.kind is not SubscriptionType.SHARED:
            self._check_parents(shard)
        for one in logs:
            self._check_order_of(one)
            self.delivered.add(one)
        for consumer in self.consumers.values():
            if consumer.number == delivery.consumer:
                consumer.out += logs
            elif not self.kind.is_ordered:
                shared = set(consumer.out).intersection(logs)
                assert not shared, f"out at two consumers: {sorted(shared)}"

    def _check_parents(self, child: int) -> None:
        for parent in self.parents.get(child, ()):
            missing = [one for one in self.stored if one[0] == parent and one not in self.acked]
            assert not missing, f"shard {child} was delivered before {missing} of its parent"

    def _check_order_of(self, one: Log) -> None:
        if one in self.delivered or self.kind is SubscriptionType.SHARED:
            return
        shard, cursor = one
        is_keyed, key = self.kind is SubscriptionType.KEY_SHARED, key_of(self.stored[one])
        passed = [
            other
            for other, name in self.stored.items()
            if other[0] == shard and other[1] < cursor and other not in self.delivered
            if not is_keyed or key_of(name) == key
        ]
        assert not passed, f"{one} was delivered before {passed}"

    # -- what consumers do

    def _step_a_worker(self) -> None:
        dice = self.dice
        name = dice.random.choice(NAMES)
        self.service.advance(dice.random.uniform(0.001, 0.05))
        if dice.happens(Fault.DELAYED):
            self.service.advance(dice.random.uniform(0.5, 12.0))
        if self.service.engine is None:
            return
        try:
            self._step_of(name)
        except ServiceCrashed:
            self.consumers.clear()

    def _step_of(self, name: str) -> None:
        consumer, dice = self.consumers.get(name), self.dice
        if self._late and dice.random.random() < 0.3:
            self._ack(self._late.pop(), receipt=False)
        elif consumer is None:
            self._join(name)
        elif dice.random.random() < 0.01:
            dice.counts[Fault.WORKER_CRASHED] += 1
            self._disconnect(consumer)
        elif dice.happens(Fault.CONNECTION_LOST):
            if consumer.out and dice.happens(Fault.ACK_LATE):
                self._late.append(list(consumer.out))
                self.acked.update(consumer.out)
            self._disconnect(consumer)
        else:
            self._act_as(consumer)

    def _join(self, name: str) -> None:
        """Exclusive refuses all but one."""
        self._numbers += 1
        number = self._numbers
        self.consumers[name] = ConnectedConsumer(name, number)
        join = Join(consumer=number, name=name, type=self.kind, shards=None)
        if not self.service.act(lambda engine: self._apply(engine, join)):
            del self.consumers[name]

    def _disconnect(self, consumer: ConnectedConsumer) -> None:
        del self.consumers[consumer.name]
        leave = LeaveSubscription(consumer=consumer.number)
        self.service.act(lambda engine: self._apply(engine, leave))

    def _act_as(self, consumer: ConnectedConsumer) -> None:
        dice, number = self.dice, consumer.number
        chance = dice.random.random()
        if chance < 0.4 or not consumer.out:
            flow = Flow(consumer=number, permits=dice.random.randrange(1, 5))
            self.service.act(lambda engine: self._apply(engine, flow))
        elif chance < 0.5:
            shard = consumer.out[-1][0]
            again = Redeliver(consumer=number, shard=shard, delay_s=dice.random.choice((0.0, 2.0)))
            self.service.act(lambda engine: self._apply(engine, again))
        else:
            logs = dice.random.sample(consumer.out, min(len(consumer.out), dice.random.randrange(1, 4)))
            consumer.out = [one for one in consumer.out if one not in logs]
            self.acked.update(logs)
            if dice.happens(Fault.REQUEST_LOST):
                self._disconnect(consumer)
            else:
                for _ in range(2 if dice.happens(Fault.REPEATED) else 1):
                    self._ack(logs, receipt=dice.random.random() < 0.4)

    def _ack(self, logs: list[Log], *, receipt: bool) -> None:
        """A crash on the way raises ServiceCrashed, and then there is no receipt."""
        for shard in {shard for shard, _ in logs}:
            of_shard = [one for one in logs if one[0] == shard]
            is_taken = self.service.act(
                lambda engine, of_shard=of_shard: self._ack_at(engine, of_shard, receipt=receipt)  # type: ignore[misc]
            )
            if receipt and is_taken and not self.dice.happens(Fault.ANSWER_LOST):
                self.receipted.update(of_shard)
                self.dice.counts[Fault.RECEIPTED] += len(of_shard)

    async def _ack_at(self, engine: Engine, logs: list[Log], *, receipt: bool) -> bool:
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        shard = logs[0][0]
        log = engine.logs[logstore.saved.id, shard]
        positions = [position_of(ordinal_at(log, cursor)) for _, cursor in logs]
        runs = [(position, position + 1) for position in positions]
        return await self._apply(engine, Ack(shard=shard, runs=runs), receipt=receipt)

    # -- the end

    def _end(self) -> None:
        """One consumer takes and acknowledges everything."""
        for _ in range(END_ROUNDS):
            self.service.advance(3.0)  # delays are over
            if self.service.engine is None:
                self._start_service()
            if self.service.engine is None:
                continue  # the data was damaged, and is repaired now
            for consumer in tuple(self.consumers.values()):
                if consumer.name != NAMES[0]:
                    self._disconnect(consumer)
            if NAMES[0] not in self.consumers:
                self._join(NAMES[0])
            last = self.consumers[NAMES[0]]
            flow = Flow(consumer=last.number, permits=9)
            self.service.act(lambda engine, flow=flow: self._apply(engine, flow))  # type: ignore[misc]
            logs, last.out = last.out, []
            self.acked.update(logs)
            self._ack(logs, receipt=True)
            if self.acked >= self.stored.keys():
                break
        self._check_end()

    def _check_end(self) -> None:
        missing = self.stored.keys() - self.delivered
        assert not missing, f"stored and never delivered: {sorted(missing)[:5]}"
        engine = self.service.engine
        assert engine is not None
        (logstore,) = engine.catalog.projects[PROJECT].logstores.values()
        for cursor in engine.subscriptions.of(logstore.saved.id)[NAME].state.shards.values():
            assert (cursor.acked.mark, cursor.acked.ranges) == (cursor.end, ()), (
                f"shard {cursor.shard} is left"
            )
        self.sink = dict(self.stored)
        super()._check_end()


def key_of(name: str) -> bytes:
    """Of a log with this id."""
    return str(int(name.removeprefix("id-")) % KEYS).encode()
