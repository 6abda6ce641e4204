"""A consumer of all shards: shards that are born later, what it allows and gives back, changed settings."""

from dataclasses import replace

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    Allow,
    ChangeSettings,
    Join,
    LeaveSubscription,
    Redeliver,
    Refusal,
    ShardStart,
    SubscribedShards,
)
from tests.loghub_service.subscription.driver import DrivenSubscription, plain
from tests.loghub_service.subscription.invariants import StoredLogs

SHARED, KEYED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
FAILOVER, EXCLUSIVE = SubscriptionType.FAILOVER, SubscriptionType.EXCLUSIVE


def attach(of: DrivenSubscription, consumer: int) -> Refusal | None:
    return of.apply(Join(consumer=consumer, name=str(consumer), type=of.type, shards=None)).refusal


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_consumer_of_all_shards_gets_the_logs_of_one_that_is_born_later(kind: SubscriptionType) -> None:
    of = DrivenSubscription(kind, plain(1))
    assert attach(of, 1) is None
    of.apply(Allow(consumer=1, permits=9))
    of.stored[1] = StoredLogs(((0, 0),))
    starts = {0: ShardStart(end=position_of(1)), 1: ShardStart(end=position_of(1))}
    of.apply(SubscribedShards(shards=starts))
    assert of.taken(1) == [0, 0, 1]
    assert of.subscription.consumers[1].shards == (0, 1)
    assert (attach(of, 2) is Refusal.CONSUMER_BUSY) is (kind is EXCLUSIVE)


def test_what_a_consumer_allows_replaces_what_it_allowed_before() -> None:
    of = DrivenSubscription(SHARED, plain(9))
    attach(of, 1)
    for permits, expected in ((2, [0, 1]), (0, []), (1, [2]), (1, [3])):
        of.apply(Allow(consumer=1, permits=permits))
        assert of.taken(1) == expected
    of.apply(Allow(consumer=1, permits=3))
    of.apply(Allow(consumer=1, permits=0))
    of.taken(1)
    of.append(0)
    assert of.taken(1) == []


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_consumer_gets_logs_of_the_shards_that_it_allows(kind: SubscriptionType) -> None:
    of = DrivenSubscription(kind, plain(2), plain(3))
    attach(of, 1)
    of.apply(Allow(consumer=1, permits=9, only=frozenset({1})))
    assert of.taken(1) == [0, 1, 2]
    of.apply(Allow(consumer=1, permits=9))
    assert of.taken(1) == [0, 1]


@pytest.mark.parametrize("without_permits", [0, 1, 2])
def test_each_shard_is_the_first_in_its_turn(without_permits: int) -> None:
    """One with a long backlog keeps no other waiting, however often the consumer asks for nothing."""
    of = DrivenSubscription(SHARED, plain(*[1] * 50), plain(*[1] * 50), plain(*[1] * 50))
    attach(of, 1)
    for _ in range(6):
        of.apply(Allow(consumer=1, permits=4))
        for _ in range(without_permits):
            of.apply(Allow(consumer=1, permits=0))
    unacked = {shard: cursor.queue.unacked for shard, cursor in of.subscription.shards.items()}
    assert unacked == {0: 8, 1: 8, 2: 8}


@pytest.mark.parametrize("kind", [SHARED, KEYED])
def test_what_is_given_back_goes_to_another_consumer_without_a_count(kind: SubscriptionType) -> None:
    of = DrivenSubscription(kind, plain(3))
    attach(of, 1)
    of.apply(Allow(consumer=1, permits=3))
    of.apply(Allow(consumer=1, permits=0))
    attach(of, 2)
    of.apply(Allow(consumer=2, permits=3))
    of.apply(Redeliver(consumer=1, shard=0, runs=[(1, 3)], is_counted=False))
    if kind is KEYED:  # one has a log of the slot yet
        of.apply(Ack(shard=0, runs=[(0, 1)]))
        of.apply(Allow(consumer=1, permits=3))
        assert of.delivered[1][3:] + of.delivered.get(2, []) == [(1, 0), (2, 0)]
    else:
        assert of.delivered[2] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_what_is_still_out_of_an_answer_that_was_lost_is_known(kind: SubscriptionType) -> None:
    of = DrivenSubscription(kind, plain(4, 2))
    attach(of, 1)
    of.apply(Allow(consumer=1, permits=9))
    queue, consumer = of.subscription.shards[0].queue, of.subscription.consumers[1]
    answer = [(0, 4, 0), (position_of(1), position_of(1, 2), 0)]
    of.apply(Ack(shard=0, runs=[(1, 3)]))
    left = [(a, b) for a, b, _ in queue.still_out(consumer, answer)]
    assert left == [(0, 1), (3, 4), (position_of(1), position_of(1, 2))]
    of.apply(Allow(consumer=1, permits=0))
    of.apply(Redeliver(consumer=1, shard=0))
    assert queue.still_out(consumer, answer) == []


def test_settings_change_while_nobody_is_attached() -> None:
    of = DrivenSubscription(SHARED, plain(2))
    change = ChangeSettings(type=KEYED, in_order=False, key=("user",))
    done = of.apply(change)
    assert (done.refusal, done.are_settings_changed) == (None, True)
    settings = of.subscription.settings
    assert (settings.type, settings.in_order, settings.key) == (KEYED, False, ("user",))
    assert not of.apply(change).are_settings_changed
    assert of.apply(replace(change, in_order=True)).are_settings_changed
    assert of.apply(change).are_settings_changed
    of.type = KEYED
    attach(of, 1)
    assert of.apply(ChangeSettings(type=SHARED, in_order=True, key=())).refusal is Refusal.CONSUMER_BUSY
    assert of.subscription.settings == settings


@pytest.mark.parametrize("kind", SubscriptionType)
def test_acknowledgments_while_nobody_is_there_make_the_backlog_smaller(kind: SubscriptionType) -> None:
    of = DrivenSubscription(kind, plain(3, 3))
    attach(of, 1)
    of.apply(Allow(consumer=1, permits=9))
    of.ack(0)
    of.apply(LeaveSubscription(consumer=1))
    cursor = of.subscription.shards[0]
    assert cursor.backlog == (cursor.high, 5)
    of.ack(1, position_of(1))
    assert cursor.backlog[1] == 3
    of.apply(Ack(shard=0, runs=[(2, position_of(1))]))  # as many logs as there may be
    assert cursor.backlog[1] == 3
    attach(of, 2)
    of.apply(Allow(consumer=2, permits=9))
    assert cursor.backlog[1] == 2


@pytest.mark.parametrize("kind", SubscriptionType)
def test_the_logs_of_a_group_are_counted_and_not_the_positions_up_to_its_end(kind: SubscriptionType) -> None:
    """Also while logs are read again that were read before: then the count says what is left of them."""
    of = DrivenSubscription(kind, plain(3, 2, 3))
    of.join(1, permits=8)
    of.apply(LeaveSubscription(consumer=1))
    of.join(2, permits=5)
    cursor = of.subscription.shards[0]
    of.ack(0, 1, 2)
    assert (cursor.acknowledged, cursor.backlog) == (3, (position_of(3), 5))
    of.apply(Ack(shard=0, runs=[(position_of(1), position_of(2))]))
    assert (cursor.acknowledged, cursor.backlog) == (5, (position_of(3), 3))


def test_a_consumer_whose_shard_is_gone_excludes_nobody() -> None:
    of = DrivenSubscription(EXCLUSIVE, plain(1), plain(1))
    first = Join(consumer=1, name="1", type=EXCLUSIVE, shards=(0,))
    assert of.apply(first).refusal is None
    assert attach(of, 2) is Refusal.CONSUMER_BUSY
    of.apply(SubscribedShards(shards={1: ShardStart(end=position_of(1))}))
    assert attach(of, 2) is None
