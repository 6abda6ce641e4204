"""Key_Shared: each key at one consumer, in order, while consumers come and go."""

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import Join, LeaveSubscription, Redeliver, Refusal
from loghub_service.subscription.slots import SLOTS
from loghub_service.subscription.state import SubscriptionLimits
from tests.loghub_service.subscription.driver import DrivenSubscription

KEYED = SubscriptionType.KEY_SHARED
LOW, HIGH = 0, SLOTS - 1  # slots of the first and the second consumer
G1 = position_of(1)


def test_each_log_goes_to_the_owner_of_its_slot() -> None:
    of = DrivenSubscription(KEYED, ((LOW, HIGH, HIGH, LOW), (HIGH,)))
    of.join(1)
    of.join(2)
    of.flow(1, 9)
    of.flow(2, 9)
    assert (of.taken(1), of.taken(2)) == ([0, 3], [1, 2, G1])


def test_a_newcomer_gets_a_key_only_when_the_former_owner_has_acknowledged_its_logs() -> None:
    of = DrivenSubscription(KEYED, ((HIGH, LOW, HIGH, HIGH),))
    of.join(1, permits=2)
    of.join(2, permits=9)
    assert (of.taken(1), of.taken(2)) == ([0, 1], [])
    of.ack(0)
    assert of.taken(2) == [2, 3]


def test_without_permits_nothing_new_is_looked_at() -> None:
    of = DrivenSubscription(KEYED, ((LOW, LOW, LOW, HIGH),))
    of.join(1, permits=2)
    queue = of.subscription.shards[0].queue
    assert (of.taken(1), queue.unacked) == ([0, 1], 2)
    of.apply(Redeliver(consumer=1, shard=0))
    of.flow(1, 1)  # it is for the first that waits
    assert (of.taken(1), queue.unacked) == ([0], 2)


def test_a_log_does_not_pass_one_of_its_key_that_waits() -> None:
    of = DrivenSubscription(KEYED, ((LOW, HIGH, LOW, HIGH),))
    of.join(1, permits=1)
    of.join(2, permits=1)
    assert (of.taken(1), of.taken(2)) == ([0], [1])
    of.apply(Redeliver(consumer=1, shard=0))
    of.flow(1, 9)
    assert of.taken(1) == [0, 2]


def test_logs_of_other_keys_pass_up_to_the_look_ahead() -> None:
    of = DrivenSubscription(
        KEYED, ((LOW, LOW, LOW, HIGH, LOW, HIGH),), limits=SubscriptionLimits(look_ahead=2)
    )
    of.join(1, permits=1)
    of.join(2, permits=9)
    assert (of.taken(1), of.taken(2)) == ([0], [])  # two wait, and nothing more is read
    of.flow(1, 1)
    assert (of.taken(1), of.taken(2)) == ([1], [3])
    of.flow(1, 9)
    assert (of.taken(1), of.taken(2)) == ([2, 4], [5])


def test_the_logs_of_a_consumer_that_leaves_go_to_the_next_owner_in_order() -> None:
    of = DrivenSubscription(KEYED, ((HIGH, HIGH, HIGH),))
    of.join(1)
    of.join(2, permits=2)
    of.flow(1, 9)
    assert (of.taken(1), of.taken(2)) == ([], [0, 1])
    of.apply(LeaveSubscription(consumer=2))
    assert of.taken(1) == [0, 1, 2]


def test_a_late_acknowledgment_of_the_first_log_that_waits_lets_the_next_go() -> None:
    of = DrivenSubscription(KEYED, ((LOW, LOW, HIGH),))
    of.join(1, permits=2)
    of.join(2)
    of.apply(Redeliver(consumer=1, shard=0))
    of.delivered.clear()
    of.ack(0)
    of.flow(1, 1)
    assert of.delivered == {1: [(1, 1)]}


def test_a_log_with_a_delay_lets_others_of_its_key_pass() -> None:
    of = DrivenSubscription(KEYED, ((LOW, LOW),))
    of.join(1, permits=1)
    of.apply(Redeliver(consumer=1, shard=0, delay_s=1.0))
    of.delivered.clear()
    of.flow(1, 9)
    assert of.taken(1) == [1]
    of.time_passes(1.0)
    assert of.delivered == {1: [(0, 1)]}


def test_logs_with_a_time_wait_for_it() -> None:
    of = DrivenSubscription(KEYED, ((LOW, HIGH),), due_unix_s=3.0)
    of.join(1, permits=9)
    assert of.taken(1) == []
    of.time_passes(3.0)
    assert of.taken(1) == [0, 1]


def test_a_delay_survives_that_nobody_is_connected() -> None:
    of = DrivenSubscription(KEYED, ((LOW, HIGH),))
    of.join(1, permits=2)
    of.apply(Redeliver(consumer=1, shard=0, runs=[(1, 2)], delay_s=5))
    of.apply(LeaveSubscription(consumer=1))
    of.join(2, permits=9)
    assert of.delivered[2] == [(0, 0)]
    of.time_passes(5.0)
    assert of.delivered[2] == [(0, 0), (1, 1)]


def test_slots_that_nobody_has_chosen_wait_for_an_owner() -> None:
    of = DrivenSubscription(KEYED, ((5, 9, 5),))
    of.join(1, permits=9, slots=((5, 5),))
    assert (of.taken(1), of.states) == ([0, 2], ["Unowned"])
    of.join(2, permits=9, slots=((6, 7), (9, HIGH)))
    assert (of.taken(2), of.states) == ([1], ["Flowing"])
    of.apply(LeaveSubscription(consumer=2))
    assert of.states == ["Unowned"]
    of.ack(1)
    assert of.states == ["Flowing"]


def test_chosen_slots_must_be_free_legal_and_chosen_by_all() -> None:
    of = DrivenSubscription(KEYED, ())
    of.join(1, slots=((0, 9), (20, 29)))
    assert of.join(2, slots=((5, 5),)).refusal is Refusal.SLOTS_TAKEN
    assert of.join(2, slots=((30, 29),)).refusal is Refusal.BAD_SLOTS
    assert of.join(2, slots=()).refusal is Refusal.BAD_SLOTS
    assert of.join(2).refusal is Refusal.CONSUMER_BUSY
    assert of.join(2, slots=((10, 19),)).refusal is None


def test_other_types_ignore_chosen_slots() -> None:
    of = DrivenSubscription(SubscriptionType.SHARED, ((1, 2),))
    of.apply(Join(consumer=1, name="", type=SubscriptionType.SHARED, shards=(0,), slots=((9, 8),)))
    of.flow(1, 9)
    assert of.taken(1) == [0, 1]


def test_beyond_the_limit_of_ranges_only_holes_are_delivered() -> None:
    of = DrivenSubscription(KEYED, ((LOW,) * 6,), limits=SubscriptionLimits(max_ranges=1))
    of.join(1, permits=4)
    of.ack(1)
    of.delivered.clear()
    of.apply(Redeliver(consumer=1, shard=0, runs=[(2, 3)]))
    of.flow(1, 9)
    assert of.taken(1) == []
    of.apply(Redeliver(consumer=1, shard=0, runs=[(0, 1)]))
    assert of.taken(1) == [0]
    of.ack(0)
    assert of.taken(1) == [2, 4, 5]


def test_so_many_logs_may_be_unacknowledged_and_no_more() -> None:
    of = DrivenSubscription(KEYED, ((LOW, HIGH) * 4,), limits=SubscriptionLimits(max_unacked=3))
    of.join(1, permits=9)
    assert (of.taken(1), of.states) == ([0, 1, 2], ["WaitsForRoom"])
    of.ack(1)
    assert of.taken(1) == [3]


def test_a_log_that_its_consumer_wants_later_lets_the_next_owner_have_the_key() -> None:
    of = DrivenSubscription(SubscriptionType.KEY_SHARED, [[SLOTS - 1], [SLOTS - 1]])
    of.join(1, permits=1)
    of.join(2, permits=1)
    assert of.taken(2) == []
    of.apply(Redeliver(consumer=1, shard=0, delay_s=5.0))
    assert of.taken(2) == [position_of(1)]
