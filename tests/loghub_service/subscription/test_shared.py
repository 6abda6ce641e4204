"""Shared: which consumer gets which log, what comes again, and what waits."""

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    Allow,
    Expired,
    Join,
    LeaveSubscription,
    PassOn,
    Redeliver,
    Refusal,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.shared import SharedQueue, runs_of
from loghub_service.subscription.state import DispatchDraft, SubscriptionLimits
from loghub_service.subscription.step import next_deadline
from tests.loghub_service.subscription.driver import DrivenSubscription, plain

SHARED = SubscriptionType.SHARED
G1, G2 = position_of(1), position_of(2)


def test_logs_are_dealt_one_at_a_time_by_priority_and_in_turns() -> None:
    """Receiver queues of 2, 1, 1 in the first priority and 2, 1 in the second; seven logs."""
    of = DrivenSubscription(SHARED, ())
    for consumer, permits, priority in ((1, 2, 0), (2, 1, 0), (3, 1, 0), (4, 2, 1), (5, 1, 1)):
        of.join(consumer, permits=permits, priority=priority)
    order = []
    for _ in range(7):
        of.append(0)
        order += [consumer for consumer in range(1, 6) if of.taken(consumer)]
    assert order == [1, 2, 3, 1, 4, 5, 4]


def test_a_whole_group_is_dealt_in_the_same_order() -> None:
    of = DrivenSubscription(SHARED, ())
    for consumer, permits, priority in ((1, 2, 0), (2, 1, 0), (3, 1, 0), (4, 2, 1), (5, 1, 1)):
        of.join(consumer, permits=permits, priority=priority)
    of.append(*[0] * 8)
    assert [of.taken(consumer) for consumer in range(1, 6)] == [[0, 3], [1], [2], [4, 6], [5]]


def test_a_consumer_gets_no_more_than_its_permits_and_its_limit_of_unacknowledged_logs() -> None:
    of = DrivenSubscription(SHARED, plain(9), limits=SubscriptionLimits(max_unacked_of_consumer=4))
    of.join(1, permits=3)
    assert of.taken(1) == [0, 1, 2]
    of.flow(1, 5)
    assert of.taken(1) == [3]
    of.ack(1)
    assert of.taken(1) == [4]


def test_what_a_consumer_acknowledges_in_one_shard_makes_room_for_logs_of_another() -> None:
    of = DrivenSubscription(SHARED, plain(2), plain(3), limits=SubscriptionLimits(max_unacked_of_consumer=2))
    of.join(1, permits=9, shards=(0, 1))
    assert of.taken(1) == [0, 1]
    of.flow(1, 1)
    of.ack(0, 1, shard=0)
    assert of.taken(1) == [0, 1]
    assert of.subscription.shards[1].queue.unacked == 2
    of.apply(LeaveSubscription(consumer=1))
    assert of.subscription.full == {}


def test_of_many_shards_no_more_are_looked_at_than_a_consumer_can_take_logs_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = DrivenSubscription(SHARED, *[plain(3)] * 20, limits=SubscriptionLimits(max_unacked_of_consumer=2))
    of.join(1, permits=9, shards=tuple(range(20)))
    of.ack(0, 1)  # from now on, each shard has logs to deliver
    assert of.taken(1) == [0, 1, 2, 0]
    looked_at, dispatch = list[int](), SharedQueue.dispatch

    def look(queue: SharedQueue, draft: DispatchDraft) -> None:
        looked_at.append(queue.cursor.shard)
        dispatch(queue, draft)

    monkeypatch.setattr(SharedQueue, "dispatch", look)
    of.ack(2)
    assert looked_at == [0, 0, 1]  # shard 0 has no more
    of.apply(Allow(consumer=1, permits=0))
    of.ack(0, shard=1)
    assert looked_at[3:] == [1]
    of.apply(Allow(consumer=1, permits=1))
    assert looked_at[4:] == [1]


def test_what_is_still_out_is_known_in_whichever_order_it_is_asked() -> None:
    of = DrivenSubscription(SHARED, plain(9))
    of.join(1, permits=9)
    consumer, queue = of.subscription.consumers[1], of.subscription.shards[0].queue
    of.ack(6)
    assert queue.still_out(consumer, [(5, 7, 0), (8, 9, 0), (7, 8, 0), (5, 6, 0)]) == [(5, 6, 0), (7, 9, 0)]


def test_a_run_ends_with_its_group_and_where_the_number_of_redeliveries_changes() -> None:
    """The positions of a full group and of the next one follow each other."""
    assert runs_of([G1 - 1, G1], {}) == [(G1 - 1, G1, 0), (G1, G1 + 1, 0)]
    assert runs_of([G1 - 1, G1], {7: 1}) == [(G1 - 1, G1, 0), (G1, G1 + 1, 0)]
    assert runs_of([0, 1, 2, 4], {1: 2}) == [(0, 1, 0), (1, 2, 2), (2, 3, 0), (4, 5, 0)]


def test_permits_beyond_the_limit_are_cut() -> None:
    of = DrivenSubscription(SHARED, (), limits=SubscriptionLimits(max_permits=2))
    of.join(1, permits=5)
    of.append(0, 0, 0)
    assert of.taken(1) == [0, 1]


def test_single_acknowledgments_are_ranges_until_the_mark_reaches_them() -> None:
    of = DrivenSubscription(SHARED, plain(3, 1, 2))
    of.join(1, permits=9)
    of.ack(2, 0)
    assert (of.mark, of.ranges) == (1, ((2, G1),))  # the gap after the group's last log belongs to it
    of.ack(G1, G2 + 1)
    assert (of.mark, of.ranges) == (1, ((2, G2), (G2 + 1, position_of(3))))
    of.ack(1)
    assert (of.mark, of.ranges) == (G2, ((G2 + 1, position_of(3)),))
    of.ack(G2)
    assert (of.mark, of.ranges) == (position_of(3), ())


def test_an_acknowledgment_that_comes_twice_saves_nothing() -> None:
    of = DrivenSubscription(SHARED, plain(3, 3))
    of.join(1, permits=3)
    assert of.ack(0, 2, G1).acked == {0: [(0, 1), (2, G1), (G1, G1 + 1)]}
    assert of.ack(0, 2, G1).acked == {}
    assert of.apply(Ack(shard=0, runs=[(0, G1)])).acked == {0: [(1, 2)]}


def test_a_run_may_name_the_end_of_its_group_in_either_form() -> None:
    of = DrivenSubscription(SHARED, plain(3, 3))
    of.join(1, permits=9)
    of.apply(Ack(shard=0, runs=[(0, 3), (G1 + 1, G2)]))
    assert (of.mark, of.ranges) == (G1, ((G1 + 1, G2),))


def test_a_run_beyond_the_end_or_over_two_groups_is_rejected_alone() -> None:
    of = DrivenSubscription(SHARED, plain(1, 1))
    of.join(1, permits=9)
    done = of.apply(Ack(shard=0, runs=[(0, G1 + 1), (G2, G2 + 1), (-1, 1), (1, 1), (G1, G1 + 1)]))
    assert (done.rejected, of.ranges) == (4, ((G1, G2),))


def test_what_was_out_at_a_consumer_that_leaves_goes_to_another_with_the_same_count() -> None:
    of = DrivenSubscription(SHARED, plain(4))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(0, 1)]))  # it has no permit left for it
    of.join(2, permits=1)
    assert of.delivered.pop(2) == [(0, 1)]
    of.apply(LeaveSubscription(consumer=1))
    of.flow(2, 2)
    assert of.delivered.pop(2) == [(1, 0), (2, 0)]
    of.apply(LeaveSubscription(consumer=2))
    of.join(3, permits=9)
    assert of.delivered.pop(3) == [(0, 1), (1, 0), (2, 0), (3, 0)]


def test_only_what_is_out_at_the_consumer_is_redelivered() -> None:
    of = DrivenSubscription(SHARED, plain(4))
    of.join(1, permits=2)
    of.join(2, permits=2)
    of.delivered.clear()
    of.apply(Redeliver(consumer=1, shard=0, runs=[(0, 4), (1, 2), (9, 20)]))
    of.flow(2, 9)
    assert of.delivered == {2: [(0, 1), (1, 1)]}


def test_a_run_with_many_more_positions_than_are_out_names_no_others() -> None:
    of = DrivenSubscription(SHARED, plain(4))
    of.join(1, permits=3)
    of.delivered.clear()
    of.apply(Redeliver(consumer=1, shard=0, runs=[(1, G1)]))
    of.flow(1, 2)
    assert of.delivered == {1: [(1, 1), (2, 1)]}


def test_without_names_everything_that_the_consumer_has_is_redelivered() -> None:
    of = DrivenSubscription(SHARED, plain(3))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0))
    of.delivered.clear()
    of.flow(1, 9)
    assert of.delivered == {1: [(0, 1), (1, 1), (2, 0)]}


def test_a_delay_holds_a_log_back_and_lets_others_pass() -> None:
    of = DrivenSubscription(SHARED, plain(3))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(0, 1)], delay_s=2.5))
    of.delivered.clear()
    of.flow(1, 9)
    assert of.taken(1) == [2]
    assert next_deadline(of.subscription) == 2.5
    of.time_passes(2.4)
    assert of.taken(1) == []
    of.time_passes(2.5)
    assert of.delivered == {1: [(0, 1)]}
    assert next_deadline(of.subscription) is None


def test_the_first_of_all_delays_is_the_deadline() -> None:
    of = DrivenSubscription(SHARED, plain(1), plain(1))
    of.join(1, permits=2, shards=(0, 1))
    of.apply(Redeliver(consumer=1, shard=0, delay_s=2.0))
    of.apply(Redeliver(consumer=1, shard=1, delay_s=3.0))
    assert next_deadline(of.subscription) == 2.0
    of.ack(0, shard=0)
    assert next_deadline(of.subscription) == 3.0
    of.apply(SubscribedShards(shards={0: ShardStart(end=G1)}))
    assert next_deadline(of.subscription) is None


def test_a_delay_survives_that_nobody_is_connected() -> None:
    of = DrivenSubscription(SHARED, plain(2))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(1, 2)], delay_s=5))
    of.apply(LeaveSubscription(consumer=1))
    assert next_deadline(of.subscription) is None
    of.join(2, permits=9)
    assert of.delivered[2] == [(0, 0)]
    of.time_passes(5.0)
    assert of.delivered[2] == [(0, 0), (1, 1)]


def test_logs_with_a_time_wait_for_it() -> None:
    of = DrivenSubscription(SHARED, plain(2), due_unix_s=7.0)
    of.join(1, permits=9)
    assert of.taken(1) == []
    of.ack(0)
    of.time_passes(7.0)
    assert of.taken(1) == [1]


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
@pytest.mark.parametrize("permits", [0, 9])
def test_logs_with_a_time_follow_a_clock_that_is_set(kind: SubscriptionType, permits: int) -> None:
    """Whether they wait because of their time or are not dealt yet; a delay is a duration."""
    of = DrivenSubscription(kind, plain(2), due_unix_s=100.0)
    of.time_passes(1.0, unix_s=100.0)
    of.join(1, permits=1)
    assert of.taken(1) == [0]
    of.apply(Redeliver(consumer=1, shard=0, delay_s=5.0))
    of.time_passes(2.0, unix_s=50.0)
    of.flow(1, permits)
    of.flow(1, 9 - permits)
    assert of.taken(1) == []
    assert next_deadline(of.subscription) == 6.0
    of.time_passes(6.0, unix_s=54.0)
    assert of.delivered.pop(1) == [(0, 1)]
    assert next_deadline(of.subscription) == 52.0
    of.time_passes(7.0, unix_s=99.0)
    assert of.taken(1) == []
    assert next_deadline(of.subscription) == 8.0
    of.time_passes(8.0, unix_s=100.0)
    assert of.taken(1) == [1]


def test_a_time_counts_by_the_clock_of_now_after_nobody_was_connected() -> None:
    of = DrivenSubscription(SHARED, plain(1), due_unix_s=100.0)
    of.time_passes(1.0, unix_s=50.0)
    of.join(1, permits=9)
    of.apply(LeaveSubscription(consumer=1))
    of.time_passes(2.0, unix_s=100.0)
    of.join(2, permits=9)
    assert of.taken(2) == [0]


def test_a_late_acknowledgment_settles_what_is_out_elsewhere_waits_or_is_not_read() -> None:
    of = DrivenSubscription(SHARED, plain(2, 1, 3))
    of.join(1, permits=1)
    of.join(2, permits=1)
    of.apply(LeaveSubscription(consumer=1))  # position 0 waits, 1 is out at consumer 2
    of.ack(0, 1, G1, G2 + 1)
    assert (of.mark, of.ranges) == (G1 + 1, ((G2 + 1, G2 + 2),))
    of.flow(2, 9)
    assert of.taken(2) == [1, G2, G2 + 2]
    assert (of.mark, of.ranges) == (G2, ((G2 + 1, G2 + 2),))  # the end of its group is known now


def test_beyond_the_limit_of_ranges_only_holes_are_delivered() -> None:
    of = DrivenSubscription(SHARED, plain(8), limits=SubscriptionLimits(max_ranges=2))
    of.join(1, permits=5)
    of.ack(1, 3)
    assert of.states == ["WaitsForRoom"]
    of.flow(1, 9)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(2, 3), (4, 5)]))
    assert of.taken(1) == [0, 1, 2, 3, 4, 2]  # not 4 again, nor anything new
    of.ack(0)
    assert (of.states, of.taken(1)) == (["Flowing"], [4, 5, 6, 7])


def test_what_is_not_out_adds_no_range_beyond_the_limit() -> None:
    of = DrivenSubscription(SHARED, plain(9), limits=SubscriptionLimits(max_ranges=1))
    of.join(1)
    assert of.ack(2).rejected == 0
    assert of.ack(5, 3, 0).rejected == 1
    assert (of.mark, of.ranges) == (1, ((2, 4),))


def test_so_many_logs_may_be_unacknowledged_and_no_more() -> None:
    of = DrivenSubscription(SHARED, plain(9), limits=SubscriptionLimits(max_unacked=3))
    of.join(1, permits=9)
    assert (of.taken(1), of.states) == ([0, 1, 2], ["WaitsForRoom"])
    of.ack(1)
    assert (of.taken(1), of.states) == ([3], ["WaitsForRoom"])


def test_a_seek_forgets_everything_and_closes_the_consumers() -> None:
    of = DrivenSubscription(SHARED, plain(4))
    of.join(1, permits=9)
    of.join(2)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(1, 2)]))
    of.ack(0, 3)
    done = of.apply(SeekTo(shard=0, position=1))
    assert (done.closed, done.replaced, of.mark, of.ranges) == ([1, 2], [0], 1, ())
    assert of.subscription.consumers == {}
    of.join(3, permits=9)
    assert of.delivered[3] == [(1, 0), (2, 0), (3, 0)]


def test_a_seek_stays_within_the_shard() -> None:
    of = DrivenSubscription(SHARED, plain(1))
    of.apply(SeekTo(shard=0, position=position_of(9)))
    assert of.mark == G1
    of.apply(SeekTo(shard=0, position=-1))
    assert of.mark == 0


def test_what_has_expired_is_not_delivered_again() -> None:
    of = DrivenSubscription(SHARED, plain(1, 1, 1, 1))
    of.join(1, permits=1)
    of.join(2, permits=1)
    of.apply(LeaveSubscription(consumer=1))  # 0 waits, G1 is out
    of.apply(Expired(shard=0, position=G2))
    assert of.mark == G2
    of.delivered.clear()
    of.flow(2, 9)
    assert of.taken(2) == [G2, position_of(3)]
    of.apply(Expired(shard=0, position=G1))  # an older one
    assert of.mark == G2
    of.apply(Expired(shard=0, position=position_of(99)))
    assert of.mark == position_of(4)


def test_counts_and_delays_go_with_their_logs() -> None:
    """Else a subscription would remember everything that ever failed."""
    of = DrivenSubscription(SHARED, plain(1, 1, 1, 1, 1))
    of.join(1, permits=9)
    queue = of.subscription.shards[0].queue
    assert isinstance(queue, SharedQueue)
    of.apply(Redeliver(consumer=1, shard=0, delay_s=9.0))
    of.ack(0)
    assert sorted(queue.counts) == [position_of(n) for n in (1, 2, 3, 4)]
    of.apply(LeaveSubscription(consumer=1))
    of.ack(position_of(3))  # late
    of.apply(Expired(shard=0, position=G2))
    assert sorted(queue.counts) == sorted(queue.held_back) == [G2, position_of(4)]
    of.join(2)
    of.ack(G2)  # late, and not read again
    of.apply(LeaveSubscription(consumer=2))
    assert sorted(queue.counts) == sorted(queue.held_back) == [position_of(4)]


def test_a_consumer_of_another_type_is_refused_while_one_is_there_and_changes_the_type_afterwards() -> None:
    of = DrivenSubscription(SHARED, plain(2))
    of.join(1, permits=9)
    of.ack(1)
    other = Join(consumer=2, name="b", type=SubscriptionType.EXCLUSIVE, shards=(0,))
    assert of.apply(other).refusal is Refusal.CONSUMER_BUSY
    of.apply(LeaveSubscription(consumer=1))
    done = of.apply(other)
    assert (done.refusal, done.are_settings_changed) == (None, True)
    of.flow(2, 9)
    assert of.taken(2) == [0]


def test_a_load_of_before_a_rewind_is_ignored() -> None:
    of = DrivenSubscription(SHARED, plain(2))
    of.join(1)
    of.apply(LeaveSubscription(consumer=1))
    before = of.subscription.shards[0].load
    of.apply(of.loaded(0, before, 0, 9))
    of.join(2, permits=1)
    of.apply(of.loaded(0, before, 0, 9))
    assert of.taken(2) == [0]


def test_logs_that_are_lost_hold_nothing_back() -> None:
    """After an accepted loss, ordinals have no group."""
    of = DrivenSubscription(SHARED, ((0,), (), (), (0,), ()))
    of.join(1, permits=9)
    of.ack(0, position_of(3))
    assert (of.mark, of.ranges) == (position_of(5), ())


def test_the_first_priority_goes_first_whenever_its_consumer_came() -> None:
    of = DrivenSubscription(SHARED, ())
    of.join(1, permits=9, priority=1)
    of.join(2, permits=1)
    of.append(0, 0)
    assert (of.taken(2), of.taken(1)) == ([0], [1])


def test_what_waits_beyond_the_permits_stays_waiting() -> None:
    of = DrivenSubscription(SHARED, plain(4))
    of.join(1, permits=3)
    of.apply(Redeliver(consumer=1, shard=0))
    of.join(2, permits=1)
    assert of.taken(2) == [0]
    of.flow(2, 1)
    assert of.taken(2) == [1]


def test_a_seek_forgets_delays() -> None:
    of = DrivenSubscription(SHARED, plain(2))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0, delay_s=5.0))
    of.apply(SeekTo(shard=0, position=0))
    of.join(2, permits=9)
    assert of.taken(2) == [0, 1]
    of.flow(2, 9)
    of.apply(Redeliver(consumer=2, shard=0, delay_s=9.0))
    for now, expected in ((5.0, []), (9.0, [0, 1])):
        of.time_passes(now)
        assert of.taken(2) == expected


def test_a_log_counts_once_as_acknowledged() -> None:
    of = DrivenSubscription(SHARED, plain(5))
    of.join(1, permits=4)
    cursor = of.subscription.shards[0]
    for runs, expected in (([(0, 1), (2, 3)], 2), ([(0, 3)], 3), ([(0, 4)], 4), ([(0, 4)], 4)):
        of.apply(Ack(shard=0, runs=runs))
        assert (cursor.acknowledged, cursor.queue.unacked) == (expected, 4 - expected)


def test_what_is_out_above_the_expired_logs_stays_out() -> None:
    of = DrivenSubscription(SHARED, plain(1, 1))
    of.join(1, permits=2)
    of.apply(Expired(shard=0, position=G1))
    assert of.subscription.consumers[1].unacked == 1
    assert of.ack(G1).acked == {0: [(G1, G2)]}


def test_a_log_that_is_too_large_for_its_consumer_waits_for_one_that_takes_any_size() -> None:
    """Whatever the priorities are; meanwhile the other logs go on."""
    of = DrivenSubscription(SHARED, plain(3, 1))
    of.join(1, permits=2, takes_any_size=False)
    of.join(2, priority=1)
    assert of.taken(1) == [0, 1]
    assert of.apply(PassOn(consumer=1, shard=0, runs=[(0, 2)])).refusal is None
    of.flow(1, 1)
    assert of.taken(1) == [2]
    of.flow(2, 1)
    of.flow(1, 9)
    assert (of.taken(2), of.taken(1)) == ([0], [G1])
    of.flow(2, 1)
    assert of.delivered == {2: [(1, 0)]}
    of.ack(0, 1, 2, G1)
    assert of.mark == position_of(2)


def test_what_is_too_large_goes_to_the_takers_in_turns_and_first() -> None:
    of = DrivenSubscription(SHARED, plain(8))
    of.join(1, permits=4, takes_any_size=False)
    assert of.taken(1) == [0, 1, 2, 3]
    assert of.apply(PassOn(consumer=1, shard=0, runs=[(0, 4)])).refusal is Refusal.NO_TAKER
    of.join(2)
    of.join(3)
    of.apply(PassOn(consumer=1, shard=0, runs=[(1, 3)]))
    of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)]))
    of.flow(3, 2)
    of.flow(2, 2)
    assert (of.taken(3), of.taken(2)) == ([0, 1], [2, 4])


def test_a_taker_without_room_for_more_holds_nobody_up() -> None:
    limits = SubscriptionLimits(max_unacked=3, max_unacked_of_consumer=2)
    of = DrivenSubscription(SHARED, plain(5), limits=limits)
    of.join(1, permits=1, takes_any_size=False)
    of.join(2, permits=9)
    assert (of.taken(1), of.taken(2)) == ([0], [1, 2])
    of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)]))
    of.flow(1, 9)
    of.ack(1)
    assert (of.taken(2), of.taken(1)) == ([0], [3])


def test_what_is_too_large_is_for_all_once_no_taker_is_left() -> None:
    """Then the endpoint of the consumer that is dealt it leaves it out."""
    of = DrivenSubscription(SHARED, plain(3))
    of.join(1, permits=1, takes_any_size=False)
    of.join(2, permits=1)
    of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)]))
    of.flow(1, 1)
    assert (of.taken(1), of.taken(2)) == ([0, 2], [1])
    of.apply(LeaveSubscription(consumer=2))
    of.flow(1, 9)
    assert of.taken(1) == [0, 1]
    assert of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)])).refusal is Refusal.NO_TAKER


def test_what_is_too_large_comes_to_a_limited_consumer_again_once_it_was_refused() -> None:
    of = DrivenSubscription(SHARED, plain(1))
    of.join(1, permits=1, takes_any_size=False)
    of.join(2)
    of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)]))
    of.flow(2, 1)
    of.apply(Redeliver(consumer=2, shard=0))
    of.flow(1, 1)
    assert of.delivered[1] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("kind", [SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER])
def test_what_is_too_large_is_for_nobody_else_where_one_consumer_alone_may_get_it(
    kind: SubscriptionType,
) -> None:
    of = DrivenSubscription(kind, plain(1))
    of.join(1, permits=1, takes_any_size=False)
    of.join(2, permits=1)
    assert of.apply(PassOn(consumer=1, shard=0, runs=[(0, 1)])).refusal is Refusal.NO_TAKER
    assert of.apply(PassOn(consumer=3, shard=0, runs=[(0, 1)])).refusal is Refusal.UNKNOWN_CONSUMER
    assert of.delivered == {1: [(0, 0)]}
