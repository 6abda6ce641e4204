"""A subscription as a whole: shards that come and go, order over a split, restarts, and the backlog."""

import pytest

from loghub.domain.log_position import ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Allow,
    Appended,
    Expired,
    Flow,
    Join,
    LeaveSubscription,
    Redeliver,
    Refusal,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.state import SavedCursor, SubscriptionLimits, SubscriptionSettings, saved
from loghub_service.subscription.step import create, step
from tests.loghub_service.subscription.driver import DrivenSubscription, plain
from tests.loghub_service.subscription.invariants import StoredLogs

SHARED, EXCLUSIVE = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE
G1, G2 = position_of(1), position_of(2)


def split(
    kind: SubscriptionType = SubscriptionType.KEY_SHARED, *, in_order: bool = True
) -> DrivenSubscription:
    """Shard 0 was split into 1 and 2; a consumer has all of them."""
    of = DrivenSubscription(
        kind, plain(1, 1), plain(1), plain(1), parents=((), (0,), (0,)), in_order=in_order
    )
    of.join(1, permits=9, shards=(0, 1, 2))
    return of


def test_children_wait_until_their_parent_is_closed_and_acknowledged_to_its_end() -> None:
    of = split()
    assert of.states == ["Flowing", "WaitsForParent", "WaitsForParent"]
    of.ack(0, G1)
    assert of.states == ["Flowing", "WaitsForParent", "WaitsForParent"]
    of.delivered.clear()
    of.append(is_closed=True)
    assert of.states == ["Finished", "Flowing", "Flowing"]
    assert of.delivered == {1: [(0, 0), (0, 0)]}  # one of each


def test_a_parent_that_is_sought_back_comes_first_again() -> None:
    of = split()
    of.ack(0, G1)
    of.append(is_closed=True)
    of.join(2, shards=(1,))
    of.apply(SeekTo(shard=0, position=G1))
    assert of.states == ["NoConsumer", "WaitsForParent", "NoConsumer"]  # consumer 1 was closed
    of.join(3, permits=9)
    of.ack(G1)
    assert of.states == ["Finished", "Flowing", "NoConsumer"]


def test_without_an_order_children_do_not_wait() -> None:
    assert split(in_order=False).states == ["Flowing"] * 3
    assert split(SHARED).states == ["Flowing"] * 3


def test_children_wait_by_the_type_that_the_subscription_has_now() -> None:
    of = DrivenSubscription(SHARED, plain(1), plain(1), parents=((), (0,)))
    for number, (kind, state) in enumerate(
        ((SHARED, "Flowing"), (EXCLUSIVE, "WaitsForParent"), (SHARED, "Flowing")), 1
    ):
        of.type = kind
        of.join(number, permits=9, shards=(0, 1))
        assert of.states == ["Flowing", state]
        of.apply(LeaveSubscription(consumer=number))


def test_a_parent_that_is_gone_holds_nothing_back() -> None:
    of = split()
    left = {shard: ShardStart(parents=(0,), end=G1) for shard in (1, 2)}
    of.apply(SubscribedShards(shards=left))
    assert of.states == ["Flowing", "Flowing"]
    assert of.subscription.consumers[1].shards == (1, 2)


def test_a_shard_that_is_born_begins_at_its_first_log_and_is_saved() -> None:
    of = DrivenSubscription(SHARED, plain(1))
    of.stored[1] = StoredLogs(((0,),))
    starts = {0: ShardStart(end=G1), 1: ShardStart(parents=(0,), mark=0, end=G1)}
    done = of.apply(SubscribedShards(shards=starts))
    assert (done.replaced, of.states) == ([1], ["NoConsumer", "NoConsumer"])
    assert [change.trigger for change in done.transitions] == ["created"]


def test_news_of_known_shards_are_taken_over() -> None:
    of = DrivenSubscription(SHARED, plain(1))
    of.ack(0)
    of.apply(SubscribedShards(shards={0: ShardStart(end=G1, is_closed=True)}))
    assert of.states == ["NoConsumer"]  # its group was not read, so its end is not known
    of.join(1, permits=1)
    assert of.states == ["Finished"]
    of.apply(Appended(shard=0, end=0))  # an older one
    assert of.subscription.shards[0].end == G1


def test_a_parent_that_becomes_known_later_holds_its_child_back() -> None:
    """What is saved of a subscription has no parents."""
    of = DrivenSubscription(SubscriptionType.KEY_SHARED, plain(1), plain(1))
    of.apply(SubscribedShards(shards={0: ShardStart(end=G1), 1: ShardStart(parents=(0,), end=G1)}))
    of.join(1, permits=9, shards=(0, 1))
    assert (of.states, of.delivered) == (["Flowing", "WaitsForParent"], {1: [(0, 0)]})


def test_an_empty_closed_shard_is_finished_from_the_start() -> None:
    subscription = create(SubscriptionSettings(type=SHARED), {0: ShardStart(mark=G1, end=G1, is_closed=True)})
    assert subscription.shards[0].state == "Finished"


@pytest.mark.parametrize("event", [LeaveSubscription(consumer=9), Flow(consumer=9, permits=1)])
def test_an_unknown_consumer_is_refused(event: LeaveSubscription | Flow) -> None:
    assert DrivenSubscription(SHARED, ()).apply(event).refusal is Refusal.UNKNOWN_CONSUMER


def test_an_unknown_shard_or_a_consumer_of_another_one_is_refused() -> None:
    of = DrivenSubscription(SHARED, (), ())
    of.join(1)
    assert of.apply(Redeliver(consumer=1, shard=1)).refusal is Refusal.UNKNOWN_CONSUMER
    assert of.apply(Ack(shard=9, runs=[(0, 1)])).refusal is Refusal.UNKNOWN_SHARD
    assert of.join(2, shards=(0, 9)).refusal is Refusal.UNKNOWN_SHARD
    assert list(of.subscription.consumers) == [1]


def test_cumulative_acknowledgments_need_an_order() -> None:
    of = DrivenSubscription(SHARED, plain(1))
    assert of.apply(AckUpTo(shard=0, stop=1)).refusal is Refusal.NOT_ORDERED


def test_so_many_consumers_may_join_and_no_more() -> None:
    of = DrivenSubscription(SHARED, (), (), limits=SubscriptionLimits(max_consumers=1))
    of.join(1)
    assert of.join(2).refusal is Refusal.TOO_MANY_CONSUMERS
    assert of.join(2, shards=(0, 1)).refusal is Refusal.TOO_MANY_CONSUMERS
    assert of.join(2, shards=(1,)).refusal is None  # a client has a consumer for each shard


def test_one_consumer_has_its_permits_for_all_its_shards() -> None:
    of = DrivenSubscription(SHARED, plain(2), plain(2))
    of.join(1, permits=3, shards=(0, 1))
    assert of.taken(1) == [0, 1, 0]
    assert of.subscription.consumers[1].unacked == 3


def test_after_a_restart_everything_without_an_acknowledgment_comes_again() -> None:
    of = DrivenSubscription(SHARED, plain(2, 2))
    of.join(1, permits=9)
    of.ack(1, G1 + 1)
    starts = {0: ShardStart(end=G2)}
    kept = saved(of.subscription.shards[0])
    assert kept == SavedCursor(mark=0, ranges=((1, G1), (G1 + 1, G2)), high=G2, unacked_below=2)
    of.subscription = create(of.subscription.settings, starts, {0: kept})
    assert saved(of.subscription.shards[0]) == kept
    of.delivered.clear()
    of.join(2, permits=9)
    assert of.delivered == {2: [(0, 0), (G1, 0)]}


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
def test_the_backlog_is_known_without_a_consumer_and_while_everything_is_read_again(
    kind: SubscriptionType,
) -> None:
    of = DrivenSubscription(kind, plain(3, 1, 1))
    cursor = of.subscription.shards[0]
    assert cursor.backlog == (0, 0)  # all logs from 0 on
    of.join(1, permits=4)
    assert cursor.backlog == (G2, 4)
    of.ack(1)
    assert cursor.backlog == (G2, 3)
    of.apply(LeaveSubscription(consumer=1))
    assert cursor.backlog == (G2, 3)
    of.join(2, permits=1)
    of.ack(0)
    assert cursor.backlog[1] == 2
    of.flow(2, 9)
    assert cursor.backlog == (position_of(3), 3)
    of.apply(SeekTo(shard=0, position=G1))
    assert cursor.backlog == (G1, 0)


def test_a_mark_beyond_what_was_read_is_the_backlog() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 1))
    of.apply(AckUpTo(shard=0, stop=G2))
    assert of.subscription.shards[0].backlog == (G2, 0)
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 1))
    of.join(1, permits=2)
    of.apply(LeaveSubscription(consumer=1))
    of.apply(AckUpTo(shard=0, stop=position_of(3)))
    assert of.subscription.shards[0].backlog == (position_of(3), 0)


def test_acknowledgments_of_what_was_never_read_leave_the_backlog_below_as_it_is() -> None:
    of = DrivenSubscription(SHARED, plain(5))
    of.join(1, permits=3)
    of.apply(LeaveSubscription(consumer=1))
    cursor = of.subscription.shards[0]
    assert cursor.backlog == (3, 3)
    of.ack(4)
    assert cursor.backlog == (3, 3)
    of.apply(Ack(shard=0, runs=[(2, 4)]))
    assert cursor.backlog == (3, 2)


def test_nothing_is_read_without_room_or_by_a_consumer_without_permits() -> None:
    of = DrivenSubscription(SHARED, plain(*[1] * 9), limits=SubscriptionLimits(max_unacked=3, max_loaded=3))
    cursor = of.subscription.shards[0]
    of.join(1)
    assert cursor.load == 0
    of.flow(1, 9)
    assert (of.taken(1), of.states, cursor.load) == ([0, G1, G2], ["WaitsForRoom"], 1)


@pytest.mark.parametrize(("max_loaded", "loads"), [(4, 2), (5, 1)])
def test_the_next_load_waits_until_half_of_what_may_be_loaded_is_missing(max_loaded: int, loads: int) -> None:
    """One log is out and one waits, so that two of the first load are left of four, or three of five."""
    limits = SubscriptionLimits(look_ahead=1, max_loaded=max_loaded)
    of = DrivenSubscription(SubscriptionType.KEY_SHARED, plain(*[1] * 9), limits=limits)
    of.join(1)
    of.join(2, permits=9)
    of.flow(1, 1)
    assert of.taken(1) == [0]
    assert of.subscription.shards[0].load == loads


def test_a_load_asks_for_as_much_as_there_is_room_and_one_is_under_way_at_a_time() -> None:
    limits = SubscriptionLimits(max_loaded=10)
    subscription = create(SubscriptionSettings(type=SHARED), {0: ShardStart(end=position_of(99))})
    step(subscription, Join(consumer=1, name="", type=SHARED, shards=(0,)), now=0.0, limits=limits)
    done = step(subscription, Flow(consumer=1, permits=1), now=0.0, limits=limits)
    assert [(load.first, load.max_logs, load.with_slots) for load in done.loads] == [(0, 10, False)]
    assert step(subscription, Flow(consumer=1, permits=1), now=0.0, limits=limits).loads == []


def test_a_load_of_logs_that_have_expired_is_not_waited_for() -> None:
    subscription = create(SubscriptionSettings(type=SHARED), {0: ShardStart(end=position_of(3))})
    step(subscription, Join(consumer=1, name="", type=SHARED, shards=(0,)), now=0.0)
    (load,) = step(subscription, Flow(consumer=1, permits=1), now=0.0).loads
    (another,) = step(subscription, Expired(shard=0, position=G2), now=0.0).loads
    assert (load.first, another.first) == (0, G2)


def test_the_next_load_waits_until_half_of_the_last_is_delivered() -> None:
    of = DrivenSubscription(SHARED, plain(*[1] * 30), limits=SubscriptionLimits(max_loaded=10))
    loads = [load.first for load in of.join(1).loads]
    for _ in range(12):
        loads += [ordinal_of(load.first) for load in of.flow(1, 1).loads]
    assert loads == [0, 10, 15], "each time five are left"


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_consumer_that_gets_all_it_asked_for_does_not_wait_for_a_load_when_it_asks_again(
    kind: SubscriptionType,
) -> None:
    of = DrivenSubscription(kind, plain(*[1] * 30), limits=SubscriptionLimits(max_loaded=10))
    of.join(1)
    at_once = []
    for _ in range(3):
        done = of.apply(Allow(consumer=1, permits=10))
        at_once.append(sum(stop - first for one in done.deliveries for first, stop, _ in one.runs))
    assert at_once == [0, 10, 10]
    assert len(of.taken(1)) == 30


def test_a_load_passes_what_was_acknowledged_before_it() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 1))
    of.apply(AckUpTo(shard=0, stop=G2))
    of.join(1)
    assert [load.first for load in of.flow(1, 1).loads] == [G2]


def test_a_key_is_in_use_in_key_shared_only() -> None:
    settings = [SubscriptionSettings(type=kind, key=("user",)) for kind in SubscriptionType]
    assert [one.type for one in settings if one.key_in_use == ("user",)] == [SubscriptionType.KEY_SHARED]
