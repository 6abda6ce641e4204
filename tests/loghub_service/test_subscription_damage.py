"""What a full disk, a kill between commits, damaged rows and an older catalog leave of a subscription."""

import asyncio
import random
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.engine import Engine
from loghub_service.facts import CursorAdvanced, CursorSaved, ServiceFact
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.settings import ServiceSettings
from loghub_service.start import open_engine
from loghub_service.storage.database import Database, DatabaseUnusable
from loghub_service.storage.group_commit import StorageFailed
from loghub_service.subscription.events import Ack, SeekTo, ShardStart, SubscribedShards
from loghub_service.subscription.state import SubscriptionLimits, SubscriptionSettings
from loghub_service.subscription_registry import MAX_DELTAS, RegisteredSubscription, SubscriptionRegistry
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.fsck_runs import FIRST, Fsck, flip, only_lists, put, segment_of
from tests.loghub_service.test_subscription_kills import PROJECT, SHARD, STORE

SHARED = SubscriptionSettings(type=SubscriptionType.SHARED)
GROUPS = 30  # of the data folder
ALL = {0: ShardStart(end=position_of(GROUPS))}


def ack(subscription: RegisteredSubscription, *ordinals: int) -> None:
    runs = [(position_of(o), position_of(o + 1)) for o in ordinals]
    assert subscription.apply(Ack(shard=0, runs=runs), now=0.0).rejected == 0


def acked(engine: Engine) -> tuple[int, tuple[tuple[int, int], ...]]:
    cursor = engine.subscriptions.of(STORE_ID)["s"].state.shards[0].acked
    return cursor.mark, cursor.ranges


async def nothing(_: Engine) -> None:
    """The service starts and stops."""


# -- commits


def test_an_acknowledgment_that_finds_no_room_has_no_receipt_and_comes_again(tmp_path: Path) -> None:
    """The service ends, as after each failed commit, and the next one has what was receipted before."""
    failed: list[BaseException] = []

    async def full() -> None:
        settings = ServiceSettings(data=str(tmp_path), host="127.0.0.1", port=0)
        platform = Platform(clock=ManualClock(), disk=OsDisk(), random=OsRandom())
        engine = await open_engine(settings, platform, on_failed=failed.append)
        await create_group_of_one_shard(engine)
        await engine.append(engine.logs[STORE_ID, 0], b"\n\0", logs=40_000)
        shards = {0: ShardStart(end=position_of(1))}
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, shards)
        subscription.apply(Ack(shard=0, runs=[(0, 1)]), now=0.0)
        await subscription.durable()
        connection = engine._database._connection
        connection.pragma("max_page_count", connection.pragma("page_count"))
        # Every second log, so that the ranges need several pages.
        runs = [(2 * n, 2 * n + 1) for n in range(1, 9_000)]
        assert subscription.apply(Ack(shard=0, runs=runs), now=0.0).rejected == 0
        with pytest.raises(StorageFailed, match="full"):
            await subscription.durable()
        subscription.apply(Ack(shard=0, runs=[(1, 2)]), now=0.0)
        with pytest.raises(StorageFailed):
            await subscription.durable()
        await engine.close()

    async def after(engine: Engine) -> None:
        assert acked(engine) == (1, ())
        subscription = engine.subscriptions.of(STORE_ID)["s"]
        subscription.apply(Ack(shard=0, runs=[(1, 2)]), now=0.0)
        await subscription.durable()

    asyncio.run(full())
    assert len(failed) == 1
    live(tmp_path, ManualClock(), after)


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_after_any_commit_leaves_what_was_acknowledged_until_it_was_submitted(
    tmp_path: Path, seed: int
) -> None:
    """Deltas, a cursor in their place when they are too many, several of both in one transaction, seeks."""

    async def scenario() -> None:
        rng = random.Random(seed)
        kinds: list[frozenset[type]] = []
        with closing(Database(str(tmp_path / "m.sqlite"))) as database:
            database.commit([(PROJECT, STORE, SHARD)])
            waiting: list[tuple[tuple[ServiceFact, ...], tuple[str, int, object]]] = []

            def submit(*facts: ServiceFact) -> "asyncio.Future[object]":
                present = everything.of(1)["s"]
                acked = present.state.shards[0].acked
                waiting.append((facts, (present.generation, acked.mark, acked.ranges)))
                future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                future.set_result(None)
                return future

            everything = SubscriptionRegistry(
                submit=submit,
                named=lambda _: {},
                limits=SubscriptionLimits(),
                max_subscriptions=1,
                new_generation=lambda: f"{rng.getrandbits(64):x}",
            )
            subscription = everything.create(1, "s", SHARED, {0: ShardStart(end=position_of(GROUPS * 99))})
            for _ in range(3 * MAX_DELTAS):
                ack(subscription, *rng.sample(range(GROUPS * 99), rng.choice((1, 1, 1, 40))))
                await subscription.durable()
                if rng.random() < 0.02:
                    subscription.apply(SeekTo(shard=0, position=position_of(rng.randrange(99))), now=0.0)
                if not waiting or rng.random() < 0.3:
                    continue  # the next ones are in the same transaction
                database.commit([facts for facts, _ in waiting])
                kinds.append(frozenset(type(fact) for facts, _ in waiting for fact in facts))
                (stored,) = database.subscriptions()
                cursor = stored.cursors[0]
                assert (stored.generation, cursor.mark, cursor.ranges) == waiting[-1][1]
                waiting.clear()
        assert {frozenset({CursorAdvanced}), frozenset({CursorSaved, CursorAdvanced})} <= set(kinds)

    asyncio.run(scenario())


# -- damage


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE subscription_cursor SET packed=x'80'", "subscription s, shard 0: .* within"),
        ("UPDATE subscription_delta SET packed=x'010001'", "subscription s, shard 0: .* empty"),
        ("UPDATE subscription SET type='Other'", "subscription s: 'Other' is not"),
    ],
)
def test_a_damaged_row_is_named_by_its_subscription(
    fsck: Fsck, data: Path, clock: ManualClock, change: str, words: str
) -> None:
    async def before(engine: Engine) -> None:
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, ALL)
        await subscription.durable()
        ack(subscription, 3)
        await subscription.durable()

    live(data, clock, before)
    with closing(apsw.Connection(str(data / "metadata.sqlite"))) as connection:
        connection.execute(change)
    with pytest.raises(DatabaseUnusable, match=words):
        live(data, clock, nothing)
    listed = only_lists(fsck, data)
    assert "catalog_unusable" in listed.kinds
    assert "subscription s" in listed.document["findings"][0]["text"]


def test_a_log_that_lost_an_acknowledged_group_goes_on_above_it(
    fsck: Fsck, data: Path, clock: ManualClock
) -> None:
    """A new group in its place would count as acknowledged, and never be delivered."""

    async def before(engine: Engine) -> None:
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, ALL)
        ack(subscription, GROUPS - 1)
        await subscription.durable()

    async def after(engine: Engine) -> None:
        assert engine.logs[STORE_ID, 0].extent.end_cursor == FIRST + GROUPS
        await put(engine, 1, name="second")
        cursor = engine.subscriptions.of(STORE_ID)["s"].state.shards[0].acked
        assert (position_of(GROUPS - 1) in cursor, position_of(GROUPS) in cursor) == (True, False)

    live(data, clock, before)
    last = f"first {GROUPS - 1} ".encode()
    flip(segment_of(data, last), last)
    only_lists(fsck, data)
    assert fsck("--accept-loss", f"{STORE_ID}/0").status == 0
    live(data, clock, after)


def test_what_an_older_catalog_does_not_know_as_acknowledged_comes_again(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    async def before(engine: Engine) -> None:
        subscription = engine.subscriptions.create(STORE_ID, "s", SHARED, ALL)
        ack(subscription, 0, 1, 2, 7)
        await subscription.durable()

    async def later(engine: Engine) -> None:
        subscription = engine.subscriptions.of(STORE_ID)["s"]
        subscription.apply(SubscribedShards(shards=ALL), now=0.0)
        ack(subscription, 3, 4, 9)
        await subscription.durable()

    async def after(engine: Engine) -> None:
        assert acked(engine) == (position_of(3), ((position_of(7), position_of(8)),))

    live(data, clock, before)
    shutil.copy(data / "metadata.sqlite", tmp_path / "older")
    live(data, clock, later)
    shutil.copy(tmp_path / "older", data / "metadata.sqlite")
    assert only_lists(fsck, data).kinds == ["catalog_older"]
    assert fsck("--accept-catalog").status == 0
    live(data, clock, after)
