"""Exclusive and Failover: who is active, what goes out, and what comes again."""

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    ActiveChange,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    Redeliver,
    Refusal,
    ShardStart,
)
from loghub_service.subscription.state import SavedCursor, SubscriptionLimits, SubscriptionSettings
from loghub_service.subscription.step import create, step
from tests.loghub_service.subscription.driver import DrivenSubscription, plain

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
G1, G2, G3 = position_of(1), position_of(2), position_of(3)


def test_a_second_exclusive_consumer_is_refused_and_one_of_another_shard_is_not() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1), plain(1))
    assert of.join(1, permits=1).refusal is None
    assert of.join(2).refusal is Refusal.CONSUMER_BUSY
    assert of.join(3, shards=(1,)).refusal is None


def test_the_first_name_of_the_first_priority_is_active_and_shards_take_turns() -> None:
    """The example of the design: aaa0 and bbb0 leave aaa active; of aaa1 and bbb0, bbb is."""
    of = DrivenSubscription(FAILOVER, plain(), plain())
    assert of.join(1, name="bbb").active == [ActiveChange(1, 0, True)]
    assert of.join(2, name="aaa").active == [ActiveChange(1, 0, False), ActiveChange(2, 0, True)]
    assert of.join(3, name="ccc").active == [ActiveChange(3, 0, False)]
    assert of.join(4, name="aaa", priority=1).active == [ActiveChange(4, 0, False)]
    for consumer, name in ((5, "aaa"), (6, "bbb")):
        of.join(consumer, name=name, shards=(1,))
    active = [cursor.queue.active.number for cursor in of.subscription.shards.values()]  # type: ignore[attr-defined]
    assert active == [2, 6]


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_shards_are_spread_evenly_over_the_members_of_the_first_priority(members: int) -> None:
    of = DrivenSubscription(FAILOVER, *[plain()] * 12)
    for consumer in range(members):
        of.join(consumer, shards=tuple(range(12)))
    of.join(9, shards=tuple(range(12)), priority=1)
    active = [cursor.queue.active.number for cursor in of.subscription.shards.values()]  # type: ignore[attr-defined]
    assert {consumer: active.count(consumer) for consumer in range(members)} == dict.fromkeys(
        range(members), 12 // members
    )


def test_the_next_active_consumer_gets_everything_from_the_mark_without_a_count() -> None:
    of = DrivenSubscription(FAILOVER, plain(2, 1, 1))
    of.join(1, permits=9)
    of.join(2, permits=9)
    assert (of.taken(1), of.taken(2)) == ([0, 1, G1, G2], [])
    of.ack(0, G1)
    assert of.apply(LeaveSubscription(consumer=1)).active == [ActiveChange(2, 0, True)]
    assert of.delivered == {2: [(1, 0), (G2, 0)]}
    assert of.apply(LeaveSubscription(consumer=2)).active == []


def test_the_former_active_consumer_has_nothing_out_any_more() -> None:
    of = DrivenSubscription(FAILOVER, plain(2))
    of.join(2, permits=9)
    of.join(1, permits=1)
    assert {number: c.unacked for number, c in of.subscription.consumers.items()} == {2: 0, 1: 2}
    of.apply(Redeliver(consumer=2, shard=0))
    assert of.taken(1) == [0, 1]


def test_an_entry_goes_out_whole_and_counts_with_all_its_logs() -> None:
    """A client that gets a batch with acknowledged logs in it gives their permits back."""
    of = DrivenSubscription(EXCLUSIVE, plain(4, 1))
    of.ack(1)
    done = of.join(1)
    of.flow(1, 1)
    assert of.taken(1) == [0, 2, 3]
    assert of.subscription.consumers[1].permits == -3
    of.flow(1, 3)
    assert of.taken(1) == []
    of.flow(1, 1)
    assert of.taken(1) == [G1]
    assert done.active == []  # only Failover says it


def test_acknowledgments_one_by_one_and_up_to_a_position() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(3, 2, 1))
    of.join(1, permits=9)
    of.ack(1, G1 + 1)
    assert (of.mark, of.ranges) == (0, ((1, 2), (G1 + 1, G2)))
    of.apply(AckUpTo(shard=0, stop=2))
    assert (of.mark, of.ranges) == (2, ((G1 + 1, G2),))
    of.apply(AckUpTo(shard=0, stop=3))  # the whole group
    assert (of.mark, of.ranges) == (G1, ((G1 + 1, G2),))
    of.apply(AckUpTo(shard=0, stop=G1 + 1))
    assert (of.mark, of.ranges) == (G2, ())
    of.apply(AckUpTo(shard=0, stop=1))  # late
    assert of.mark == G2
    assert of.apply(AckUpTo(shard=0, stop=G3 + 1)).rejected == 1
    of.apply(AckUpTo(shard=0, stop=G2 + 1))
    assert (of.mark, of.subscription.consumers[1].unacked) == (G3, 0)


def test_a_run_beyond_the_last_log_of_its_group_is_one_up_to_the_next_group() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(3, 1))
    of.join(1, permits=9)
    of.apply(Ack(shard=0, runs=[(1, 5), (0, 1)]))
    assert (of.mark, of.ranges) == (position_of(1), ())
    assert of.subscription.consumers[1].unacked == 1


def test_an_acknowledgment_that_comes_twice_saves_nothing() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(3, 3))
    of.join(1, permits=3)
    assert of.ack(0, 2, G1).acked == {0: [(0, 1), (2, G1), (G1, G1 + 1)]}
    assert of.ack(0, 2, G1).acked == {}
    assert of.apply(AckUpTo(shard=0, stop=1)).acked == {}


def test_a_late_acknowledgment_of_what_is_not_read_counts() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(2, 2, 1))
    of.ack(1, G1)
    of.apply(AckUpTo(shard=0, stop=G1 + 1))
    of.join(1, permits=9)
    assert of.taken(1) == [G1 + 1, G2]
    assert of.mark == G1 + 1


def test_the_end_of_a_group_joins_what_was_acknowledged_before_it_was_read() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(2, 1))
    of.ack(1, G1)
    of.join(1, permits=9)
    assert (of.taken(1), of.ranges) == ([0], ((1, G2),))


def test_what_is_wanted_again_comes_from_the_mark() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 1))
    of.join(1, permits=9)
    of.ack(0, G2)
    of.delivered.clear()
    of.apply(Redeliver(consumer=1, shard=0, runs=[(G2, G2 + 1)], delay_s=9.0))
    assert of.delivered == {1: [(G1, 0)]}


def test_at_the_limit_of_ranges_nothing_new_is_read() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(4, 1, 1), limits=SubscriptionLimits(max_ranges=1))
    of.join(1, permits=4)
    of.ack(1)
    of.flow(1, 9)
    assert (of.taken(1), of.states) == ([0, 1, 2, 3], ["WaitsForRoom"])
    of.ack(0)
    assert (of.taken(1), of.states) == ([G1, G2], ["Flowing"])


def test_at_the_limit_of_ranges_a_late_acknowledgment_is_taken_where_it_adds_none() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(9), limits=SubscriptionLimits(max_ranges=1))
    assert of.ack(2).rejected == 0
    assert of.ack(5).rejected == 1
    assert of.ack(3, 1).rejected == 0
    assert of.ranges == ((1, 4),)


def test_what_is_out_may_be_acknowledged_at_any_number_of_ranges() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(4, 1), limits=SubscriptionLimits(max_ranges=1))
    of.join(1, permits=1)
    assert of.ack(1, 3).rejected == 0
    assert of.ranges == ((1, 2), (3, G1))


def test_so_many_log_groups_may_be_out_and_one_that_is_acknowledged_makes_room() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 2, 1, 1), limits=SubscriptionLimits(max_unacked=2))
    of.join(1, permits=9)
    assert (of.taken(1), of.states) == ([0, G1, G1 + 1], ["WaitsForRoom"])
    of.ack(G1)
    assert of.taken(1) == []
    of.ack(G1 + 1)
    assert of.taken(1) == [G2]


def test_one_log_that_nobody_acknowledges_costs_no_memory_for_those_after_it() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(*[1] * 300))
    of.join(1, permits=1_000)
    of.ack(*map(position_of, range(1, 300)))
    queue = of.subscription.shards[0].queue
    assert queue.weight == 1
    assert len(queue.order) < 100  # type: ignore[attr-defined]
    assert of.ranges == ((G1, position_of(300)),)


def test_expired_groups_are_not_out_any_more() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 2))
    of.join(1, permits=2)
    of.apply(Expired(shard=0, position=G1))
    assert (of.mark, of.subscription.consumers[1].unacked) == (G1, 1)
    of.apply(Expired(shard=0, position=G2))
    of.delivered.clear()
    of.flow(1, 1)
    assert (of.mark, of.taken(1)) == (G2, [G2, G2 + 1])


def test_what_was_loaded_stays_when_the_groups_before_it_expire() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1))
    of.join(1, permits=1)
    of.apply(Expired(shard=0, position=G1))
    of.flow(1, 1)
    assert (of.taken(1), of.subscription.shards[0].load) == ([0, G1], 1)


def test_a_group_that_is_acknowledged_as_a_whole() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(3, 1))
    of.join(1, permits=1)
    of.apply(Ack(shard=0, runs=[(1, G1), (G1, G2)]))  # the second is not read yet
    assert (of.mark, of.ranges) == (0, ((1, G2),))


def test_the_end_of_a_part_of_a_group_is_not_that_of_the_group() -> None:
    """A group whose frame would be too large is delivered in several entries."""
    subscription = create(SubscriptionSettings(type=EXCLUSIVE), {0: ShardStart(end=G1)})
    step(subscription, Join(consumer=1, name="", type=EXCLUSIVE, shards=(0,)), now=0.0)
    step(subscription, Flow(consumer=1, permits=1), now=0.0)
    entries = (LoadedEntry(0, 2, is_last=False), LoadedEntry(2, 1))
    done = step(subscription, GroupsLoaded(shard=0, load=1, entries=entries, next=G1), now=0.0)
    assert [delivery.runs for delivery in done.deliveries] == [[(0, 2, 0)]]
    step(subscription, AckUpTo(shard=0, stop=2), now=0.0)
    assert subscription.shards[0].acked.mark == 2
    done = step(subscription, Flow(consumer=1, permits=2), now=0.0)
    assert [delivery.runs for delivery in done.deliveries] == [[(2, 3, 0)]]
    step(subscription, Ack(shard=0, runs=((2, 3),)), now=0.0)
    assert subscription.shards[0].acked.mark == G1


@pytest.mark.parametrize("late", [1, 3])
def test_at_the_limit_of_ranges_an_acknowledgment_before_the_only_one_is_rejected_whole(late: int) -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(*[1] * 6), limits=SubscriptionLimits(max_ranges=1))
    of.join(1, permits=1)
    of.ack(position_of(5))
    assert of.ack(position_of(late)).rejected == 1
    assert (of.mark, of.ranges) == (0, ((position_of(5), position_of(5) + 1),))


def test_the_backlog_is_what_is_out_once_everything_was_read_again() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 1, 1))
    of.join(1, permits=3)
    of.apply(Redeliver(consumer=1, shard=0))
    of.flow(1, 3)
    of.ack(0)
    cursor = of.subscription.shards[0]
    assert (cursor.backlog, cursor.acknowledged) == ((position_of(3), 2), 1)


def test_a_mark_at_the_highest_position_that_was_read_leaves_no_backlog_below_it() -> None:
    saved = {0: SavedCursor(mark=0, high=position_of(3), unacked_below=3)}
    starts = {0: ShardStart(end=position_of(3))}
    subscription = create(SubscriptionSettings(type=EXCLUSIVE), starts, saved)
    step(subscription, AckUpTo(shard=0, stop=position_of(3)), now=0.0)
    assert subscription.shards[0].backlog == (position_of(3), 0)


def test_an_acknowledgment_up_to_the_middle_of_a_group_that_is_done_settles_the_one_before() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1, 2, 1))
    of.join(1, permits=9)
    of.ack(position_of(1), position_of(1) + 1)
    of.apply(AckUpTo(shard=0, stop=position_of(1) + 1))
    assert (of.mark, of.ranges) == (position_of(2), ())
    assert of.subscription.consumers[1].unacked == 1


def test_what_was_acknowledged_before_it_was_read_is_not_read() -> None:
    subscription = create(SubscriptionSettings(type=EXCLUSIVE), {0: ShardStart(end=position_of(3))})
    step(subscription, Join(consumer=1, name="", type=EXCLUSIVE, shards=(0,)), now=0.0)
    step(subscription, AckUpTo(shard=0, stop=position_of(2)), now=0.0)
    (load,) = step(subscription, Flow(consumer=1, permits=1), now=0.0).loads
    assert load.first == position_of(2)
