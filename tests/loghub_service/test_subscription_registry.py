"""The registry of subscriptions: what is persisted, when a receipt may be sent, and what a restart finds."""

import asyncio
import random
from collections.abc import Coroutine
from itertools import count
from pathlib import Path

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.api.logstores import delete
from loghub_service.api.projects import delete_project
from loghub_service.diagnosis import DataRefused
from loghub_service.engine import Engine
from loghub_service.facts import (
    CursorAdvanced,
    CursorSaved,
    ServiceFact,
    SubscriptionDeleted,
    SubscriptionSaved,
)
from loghub_service.storage.subscription_rows import StoredSubscription
from loghub_service.subscription.cursor_format import unpack
from loghub_service.subscription.events import (
    Ack,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.state import SavedCursor, SubscriptionLimits, SubscriptionSettings, saved
from loghub_service.subscription_registry import (
    COLLECT_RUNS,
    MAX_DELTAS,
    RegisteredSubscription,
    SubscriptionRegistry,
    TooManySubscriptions,
)
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live, request

SHARED = SubscriptionSettings(type=SubscriptionType.SHARED)
GROUPS = 5_000
STARTS = {0: ShardStart(end=position_of(GROUPS))}
GENERATIONS = count(1)


class Commits:
    """In place of the database: ``facts`` are committed when the test says so."""

    def __init__(self) -> None:
        self.facts: list[ServiceFact] = []
        self.waiting: list[asyncio.Future[object]] = []

    def submit(self, *facts: ServiceFact) -> "asyncio.Future[object]":
        self.facts += facts
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def commit(self) -> None:
        for future in self.waiting:
            future.set_result(None)
        self.waiting.clear()

    def taken(self) -> list[ServiceFact]:
        """The facts since the last call."""
        taken, self.facts = self.facts, []
        return taken


def registry(
    commits: Commits, maximum: int = 9, limits: SubscriptionLimits | None = None
) -> SubscriptionRegistry:
    return SubscriptionRegistry(
        submit=commits.submit,
        named=lambda logstore: {"logstore": str(logstore)},
        limits=limits or SubscriptionLimits(),
        max_subscriptions=maximum,
        new_generation=lambda: f"g{next(GENERATIONS)}",
    )


def ack(subscription: RegisteredSubscription, *ordinals: int) -> None:
    """Of groups of one log, that were all read."""
    runs = [(position_of(o), position_of(o + 1)) for o in ordinals]
    assert subscription.apply(Ack(shard=0, runs=runs), now=0.0).rejected == 0


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(scenario)


def test_a_subscription_is_saved_with_its_cursors() -> None:
    async def scenario() -> None:
        commits = Commits()
        registry(commits).create(1, "s", SHARED, STARTS)
        settings, cursor = commits.taken()
        assert isinstance(settings, SubscriptionSaved)
        assert (settings.name, settings.type, settings.in_order) == ("s", SHARED.type, True)
        assert isinstance(cursor, CursorSaved)
        assert unpack(cursor.packed, ()) == SavedCursor(mark=0)

    run(scenario())


def test_a_seek_saves_another_generation_with_the_mark_in_one_transaction() -> None:
    """A kill between both would leave old acknowledgments that count, or new ones that do not."""

    async def scenario() -> None:
        transactions: list[tuple[ServiceFact, ...]] = []
        commits = Commits()

        def submit(*facts: ServiceFact) -> "asyncio.Future[object]":
            transactions.append(facts)
            return commits.submit(*facts)

        everything = registry(commits)
        everything._submit = submit
        subscription = everything.create(1, "s", SHARED, STARTS)
        before = subscription.generation
        subscription.apply(SeekTo(shard=0, position=0), now=0.0)
        subscription.apply(Join(consumer=1, name="", type=SHARED.type, shards=(0,)), now=0.0)
        _, (settings, cursor) = transactions
        assert isinstance(settings, SubscriptionSaved)
        assert isinstance(cursor, CursorSaved)
        assert before != settings.generation == subscription.generation

    run(scenario())


def test_one_that_is_not_durable_is_not_saved() -> None:
    async def scenario() -> None:
        commits = Commits()
        everything = registry(commits)
        settings = SubscriptionSettings(type=SubscriptionType.EXCLUSIVE, is_durable=False)
        reader = everything.create(1, "reader", settings, STARTS)
        ack(reader, 0)
        await reader.durable()
        everything.delete(1, "reader")
        assert commits.facts == []

    run(scenario())


def test_a_receipt_waits_for_the_commit_of_what_was_acknowledged_before() -> None:
    async def scenario() -> None:
        commits = Commits()
        subscription = registry(commits).create(1, "s", SHARED, STARTS)
        commits.commit()
        ack(subscription, 0)
        ack(subscription, 2)
        commits.taken()
        receipt = asyncio.ensure_future(subscription.durable())
        await asyncio.sleep(0)
        (delta,) = commits.taken()
        assert isinstance(delta, CursorAdvanced)
        assert not receipt.done()
        commits.commit()
        await receipt
        assert commits.facts == []  # nothing is saved twice
        await subscription.durable()

    run(scenario())


def test_without_a_receipt_acknowledgments_are_collected() -> None:
    async def scenario() -> None:
        commits = Commits()
        subscription = registry(commits).create(1, "s", SHARED, STARTS)
        commits.taken()
        for ordinal in range(COLLECT_RUNS):
            assert commits.facts == []
            ack(subscription, ordinal)
        assert len(commits.taken()) == 1
        ack(subscription, COLLECT_RUNS)
        while not commits.facts:  # the timer
            await asyncio.sleep(0.01)
        (delta,) = commits.taken()
        assert isinstance(delta, CursorAdvanced)

    run(scenario())


def test_what_is_collected_is_saved_when_the_service_stops() -> None:
    async def scenario() -> None:
        commits = Commits()
        everything = registry(commits)
        subscription = everything.create(1, "s", SHARED, STARTS)
        ack(subscription, 0)
        commits.taken()
        everything.close()
        assert len(commits.taken()) == 1

    run(scenario())


def test_deltas_that_have_grown_are_replaced_by_the_cursor() -> None:
    async def scenario() -> None:
        commits = Commits()
        subscription = registry(commits).create(1, "s", SHARED, STARTS)
        commits.taken()
        commits.commit()
        for ordinal in range(MAX_DELTAS + 1):
            ack(subscription, ordinal)
            receipt = asyncio.ensure_future(subscription.durable())
            await asyncio.sleep(0)
            commits.commit()
            await receipt
        *deltas, whole = commits.taken()
        assert [type(fact) for fact in deltas] == [CursorAdvanced] * MAX_DELTAS
        assert isinstance(whole, CursorSaved)
        assert unpack(whole.packed, ()).mark == position_of(MAX_DELTAS + 1)
        ack(subscription, *range(100, 2_000, 2))  # one large delta
        for ordinal, kind in ((101, CursorAdvanced), (103, CursorSaved), (105, CursorAdvanced)):
            receipt = asyncio.ensure_future(subscription.durable())
            await asyncio.sleep(0)
            assert [type(fact) for fact in commits.taken()] == [kind]
            commits.commit()
            await receipt
            ack(subscription, ordinal)

    run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_the_facts_of_any_life_are_the_state(seed: int) -> None:
    """Joins, acknowledgments in a random order, seeks and changes of type, over two shards."""

    async def scenario() -> None:
        rng, commits = random.Random(seed), Commits()
        everything = registry(commits, limits=SubscriptionLimits(max_ranges=200))
        starts = {shard: ShardStart(end=position_of(300)) for shard in (0, 1)}
        subscription = everything.create(1, "s", SHARED, starts)
        for number in range(200):
            kind = rng.choice(list(SubscriptionType))
            shard = rng.randrange(2)
            runs = [(position_of(o), position_of(o) + 1) for o in rng.sample(range(300), 5)]
            event = rng.choices(
                (
                    Ack(shard=shard, runs=runs),
                    Join(consumer=number, name="", type=kind, shards=(0, 1)),
                    LeaveSubscription(consumer=number - 1),
                    SeekTo(shard=shard, position=position_of(rng.randrange(300))),
                ),
                (20, 2, 2, 1),
            )[0]
            outcome = subscription.apply(event, now=0.0)
            for load in outcome.loads:
                first = load.first >> 17
                slots = [0] if load.with_slots else None
                loaded = GroupsLoaded(
                    shard=load.shard,
                    load=load.number,
                    entries=[LoadedEntry(position_of(first), 1, slots=slots)],
                    next=position_of(first + 1),
                )
                subscription.apply(loaded, now=0.0)
            if rng.random() < 0.2:
                everything._save_collected()
        everything.close()
        whole: dict[int, bytes] = {}
        deltas: dict[int, list[bytes]] = {0: [], 1: []}
        for fact in commits.taken():
            if isinstance(fact, CursorSaved):
                whole[fact.shard], deltas[fact.shard] = fact.packed, []
            elif isinstance(fact, CursorAdvanced):
                deltas[fact.shard].append(fact.packed)
            else:
                assert isinstance(fact, SubscriptionSaved)
                settings = fact
        assert settings.type is subscription.state.settings.type
        assert settings.generation == subscription.generation
        for shard, cursor in subscription.state.shards.items():
            found, expected = unpack(whole[shard], deltas[shard]), saved(cursor)
            assert (found.mark, found.ranges) == (expected.mark, expected.ranges)

    run(scenario())


def test_a_restored_subscription_goes_on_and_learns_its_shards_with_the_next_report() -> None:
    async def scenario() -> None:
        commits = Commits()
        everything = registry(commits)
        kept = SavedCursor(
            mark=position_of(3),
            ranges=((position_of(5), position_of(6)),),
            high=position_of(9),
            unacked_below=4,
        )
        everything.restore(
            StoredSubscription(
                logstore=1, name="s", type=SHARED.type, in_order=True, generation="AB", cursors={0: kept}
            )
        )
        subscription = everything.of(1)["s"]
        assert subscription.generation == "AB"
        assert saved(subscription.state.shards[0]) == kept
        report = {0: ShardStart(end=position_of(20)), 1: ShardStart(parents=(0,), end=position_of(1))}
        subscription.apply(SubscribedShards(shards=report), now=0.0)
        assert [type(fact) for fact in commits.taken()] == [CursorSaved]  # the new shard
        subscription.apply(Join(consumer=1, name="", type=SHARED.type, shards=(0,)), now=0.0)
        done = subscription.apply(Flow(consumer=1, permits=1), now=0.0)
        assert [load.first for load in done.loads] == [position_of(3)]
        ack(subscription, 3)
        await asyncio.sleep(0)
        everything.close()
        assert len(commits.taken()) == 1

    run(scenario())


def test_so_many_subscriptions_may_exist_and_no_more() -> None:
    async def scenario() -> None:
        everything = registry(Commits(), maximum=2, limits=SubscriptionLimits(max_subscriptions=1))
        everything.create(1, "s", SHARED, STARTS)
        with pytest.raises(TooManySubscriptions, match="a logstore has at most 1"):
            everything.create(1, "t", SHARED, STARTS)
        everything.create(2, "s", SHARED, STARTS)
        with pytest.raises(TooManySubscriptions, match="--max-subscriptions"):
            everything.create(3, "s", SHARED, STARTS)
        assert len(everything) == 2

    run(scenario())


def test_the_shards_of_all_subscriptions_are_counted_by_their_state() -> None:
    async def scenario() -> None:
        everything = registry(Commits())
        flowing = everything.create(1, "s", SHARED, STARTS)
        everything.create(2, "s", SHARED, {**STARTS, 1: ShardStart(is_closed=True)})
        flowing.apply(Join(consumer=1, name="", type=SHARED.type, shards=(0,)), now=0.0)
        counted = {state.value: shards for state, shards in everything.shards_by_state().items()}
        assert counted == {
            "NoConsumer": 1,
            "WaitsForParent": 0,
            "Flowing": 1,
            "WaitsForRoom": 0,
            "Unowned": 0,
            "Finished": 1,
        }

    run(scenario())


def test_a_deleted_subscription_is_not_saved_any_more() -> None:
    async def scenario() -> None:
        commits = Commits()
        everything = registry(commits)
        subscription = everything.create(1, "s", SHARED, STARTS)
        ack(subscription, 0)
        commits.taken()
        everything.delete(1, "s")
        assert commits.taken() == [SubscriptionDeleted(logstore=1, name="s")]
        ack(subscription, 1)  # of a client that does not know it yet
        everything.close()
        assert commits.facts == []
        assert everything.of(1) == {}

    run(scenario())


def test_a_subscription_survives_a_restart_of_the_service_and_not_its_logstore(tmp_path: Path) -> None:
    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        for _ in range(8):
            await engine.append(engine.logs[STORE_ID, 0], b"\n\0", logs=1)
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, {0: ShardStart(end=position_of(8))})
        ack(subscription, 1, 0, 7)
        await subscription.durable()
        ack(subscription, 3)  # saved by the clean stop

    async def after(engine: Engine) -> None:
        subscription = engine.subscriptions.of(STORE_ID)["s"]
        assert subscription.state.settings == SHARED
        acked = subscription.state.shards[0].acked
        assert (acked.mark, acked.ranges) == (
            position_of(2),
            ((position_of(3), position_of(4)), (position_of(7), position_of(8))),
        )
        await delete(engine, "p", "ls")
        assert engine.subscriptions.of(STORE_ID) == {}

    async def at_last(engine: Engine) -> None:
        assert len(engine.subscriptions) == 0

    clock = ManualClock()
    for scenario in (before, after, at_last):
        live(tmp_path / "data", clock, scenario)


def test_subscriptions_go_with_the_project_of_their_logstore(tmp_path: Path) -> None:
    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, {0: ShardStart()})
        await delete_project(engine, request("DELETE"))
        assert len(engine.subscriptions) == 0
        assert subscription.is_deleted

    live(tmp_path / "data", ManualClock(), scenario)


def test_a_start_refuses_a_log_that_ends_before_an_acknowledgment(tmp_path: Path) -> None:
    """Its next log groups would have positions that count as acknowledged, and would never be delivered."""

    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, {0: ShardStart(end=position_of(8))})
        ack(subscription, 0, 7)
        await subscription.durable()

    async def never(engine: Engine) -> None:
        raise AssertionError("the service has started")

    live(tmp_path / "data", ManualClock(), before)
    with pytest.raises(DataRefused, match="but subscription s has an acknowledgment at 1008"):
        live(tmp_path / "data", ManualClock(), never)
