"""Kills of the service at any point of acknowledging, with a real database.

Consumers of a subscription acknowledge logs in a random order, some with receipts. A kill loses what is not
committed. Afterwards no log whose acknowledgment has a receipt is delivered again, and every log that nobody
has acknowledged is delivered.
"""

import asyncio
import random
from contextlib import closing
from pathlib import Path

import pytest

from loghub.domain.log_position import ordinal_of, position_of
from loghub.domain.shards import HashRange, Shard
from loghub.domain.subscription import SubscriptionType
from loghub_service.facts import LogstoreSaved, ProjectSaved, ServiceFact, ShardSaved
from loghub_service.storage.database import Database
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    DispatchOutcome,
    Event,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    Redeliver,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.state import SubscriptionLimits, SubscriptionSettings
from loghub_service.subscription_registry import RegisteredSubscription, SubscriptionRegistry

GROUPS, LOGS = 40, 3
END = position_of(GROUPS)
REPORT = {0: ShardStart(end=END)}
EVERY_LOG = frozenset(position_of(o, i) for o in range(GROUPS) for i in range(LOGS))
LIMITS = SubscriptionLimits(max_ranges=10, max_unacked=60, look_ahead=9, max_loaded=20)
PROJECT = ProjectSaved(name="p", description="", created_s=1, modified_s=2)
STORE = LogstoreSaved(
    id=1, project="p", name="l", ttl_days=3, next_shard=1, options="{}", created_s=4, modified_s=5
)
SHARD = ShardSaved(
    logstore=1,
    spec=Shard(shard=0, keys=HashRange(begin=0, end=1 << 128), read_only=False, parents=()),
    born_us=1,
    first_cursor=0,
)


class Run:
    """One run of the service, from a start to a kill. ``waiting`` are transactions that are not committed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.waiting: list[tuple[tuple[ServiceFact, ...], asyncio.Future[object]]] = []
        self.registry = SubscriptionRegistry(
            submit=self._submit,
            named=lambda logstore: {"logstore": str(logstore)},
            limits=LIMITS,
            max_subscriptions=9,
            new_generation=lambda: "",
        )

    def _submit(self, *facts: ServiceFact) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.waiting.append((facts, future))
        return future

    def commit(self) -> None:
        """The oldest transaction."""
        if self.waiting:
            facts, future = self.waiting.pop(0)
            self.database.commit([facts])
            future.set_result(None)


class Consumers:
    """All consumers of the subscription ``s``, over kills of the service."""

    def __init__(self, rng: random.Random, kind: SubscriptionType) -> None:
        self.rng = rng
        self.kind = kind
        self.acked: set[int] = set()
        self.receipted: set[int] = set()
        self.delivered: set[int] = set()  # since the last start
        self._number = 0
        self.there: dict[int, set[int]] = {}

    def apply(self, subscription: RegisteredSubscription, event: Event) -> DispatchOutcome:
        outcome = subscription.apply(event, now=0.0)
        events = [self._loaded(load.first, load.number) for load in outcome.loads]
        for delivery in outcome.deliveries:
            for first, stop, _ in delivery.runs:
                logs = set(range(first, stop))
                again = logs & self.receipted
                assert not again, f"acknowledged with a receipt, and delivered again: {sorted(again)}"
                self.there[delivery.consumer] |= logs
                self.delivered |= logs
        for loaded in events:
            self.apply(subscription, loaded)
        return outcome

    def _loaded(self, first: int, number: int) -> GroupsLoaded:
        ordinals = range(ordinal_of(first), min(ordinal_of(first) + 5, GROUPS))
        entries = [LoadedEntry(position_of(o), LOGS, slots=[(o * 7919) % 65_536] * LOGS) for o in ordinals]
        return GroupsLoaded(shard=0, load=number, entries=entries, next=position_of(ordinals.stop))

    def join(self, subscription: RegisteredSubscription) -> None:
        self._number += 1
        event = Join(consumer=self._number, name=str(self._number), type=self.kind, shards=(0,))
        if subscription.apply(event, now=0.0).refusal is None:
            self.there[self._number] = set()

    def act(self, subscription: RegisteredSubscription) -> set[int]:
        """Something that a consumer does; returns what a receipt would be for."""
        if not self.there or self.rng.random() < 0.05:
            self.join(subscription)
        consumer = self.rng.choice(sorted(self.there)) if self.there else 0
        logs = sorted(self.there.get(consumer, ()))
        kind = self.rng.choices(("flow", "ack", "up to", "again", "leave"), (6, 12, 2, 2, 1))[0]
        if kind == "flow":
            self.apply(subscription, Flow(consumer=consumer, permits=self.rng.randrange(1, 9)))
        elif kind == "ack" and logs:
            chosen = self.rng.sample(logs, min(len(logs), self.rng.randrange(1, 6)))
            done = self.apply(subscription, Ack(shard=0, runs=[(p, p + 1) for p in chosen]))
            self.acked |= set(chosen)
            return set() if done.rejected else set(chosen)
        elif kind == "up to" and logs and self.kind.is_ordered:
            stop = self.rng.choice(logs) + 1
            self.apply(subscription, AckUpTo(shard=0, stop=stop))
            below = {log for log in EVERY_LOG if log < stop}
            self.acked |= below
            return below
        elif kind == "again" and consumer:
            self.apply(subscription, Redeliver(consumer=consumer, shard=0))
        elif kind == "leave" and consumer:
            self.there.pop(consumer)
            self.apply(subscription, LeaveSubscription(consumer=consumer))
        return set()


async def life(database: Database, rng: random.Random, kind: SubscriptionType, kills: int) -> Consumers:
    consumers = Consumers(rng, kind)
    run = Run(database)
    run.registry.create(1, "s", SubscriptionSettings(type=kind), REPORT)
    run.commit()
    for _ in range(kills):
        subscription = run.registry.of(1)["s"]
        receipts: list[tuple[set[int], asyncio.Task[None]]] = []
        for _ in range(rng.randrange(60)):
            acked = consumers.act(subscription)
            if acked and rng.random() < 0.3:
                receipts.append((acked, asyncio.ensure_future(subscription.durable())))
            if rng.random() < 0.2:
                run.commit()
            await asyncio.sleep(0)
            for logs, receipt in receipts:
                if receipt.done():
                    consumers.receipted |= logs
        for _, receipt in receipts:
            receipt.cancel()
        run.registry.close()  # of the timer only: what it submits is not committed
        run = Run(database)
        consumers.there.clear()
        consumers.delivered.clear()
        (stored,) = database.subscriptions()
        run.registry.restore(stored)
        run.registry.of(1)["s"].apply(SubscribedShards(shards=REPORT), now=0.0)
    _take_everything(run, consumers)
    return consumers


def _take_everything(run: Run, consumers: Consumers) -> None:
    subscription = run.registry.of(1)["s"]
    consumers.join(subscription)
    (consumer,) = consumers.there
    acked_before = set(consumers.acked)
    for _ in range(2 * len(EVERY_LOG)):
        consumers.apply(subscription, Flow(consumer=consumer, permits=9))
        logs = [(p, p + 1) for p in consumers.there[consumer]]
        consumers.there[consumer].clear()
        consumers.apply(subscription, Ack(shard=0, runs=logs))
    lost = EVERY_LOG - consumers.delivered - acked_before
    assert not lost, f"not acknowledged, and never delivered: {sorted(lost)}"
    cursor = subscription.state.shards[0]
    assert (cursor.acked.mark, cursor.acked.ranges) == (END, ())


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_receipted_log_never_comes_again_and_no_other_is_lost(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    receipted = again = 0
    for seed in range(5):
        with closing(Database(str(tmp_path / f"{seed}.sqlite"))) as database:
            database.commit([(PROJECT, STORE, SHARD)])
            consumers = asyncio.run(life(database, random.Random(seed), kind, kills=4))
            receipted += len(consumers.receipted)
            again += len(consumers.delivered & consumers.acked)
    print(f"{kind}: {receipted} receipted, {again} acknowledged without a receipt and delivered again")
    assert receipted > 50
    assert again > 10  # else the kills lose nothing, and the test shows nothing
