"""What a request costs does not grow with the number of the other consumers: a thousand that wait for logs
must not occupy the service. The cost is the number of calls, which no load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    Allow,
    Appended,
    Event,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    Redeliver,
)
from loghub_service.subscription.slots import SLOTS
from loghub_service.subscription.state import Subscription, SubscriptionSettings
from loghub_service.subscription.step import ShardStart, create, step

SHARDS = 4
FEW, MANY = 10, 200


def waiting(subscription_type: SubscriptionType, consumers: int) -> Subscription:
    """A subscription without a log, whose consumers wait for some."""
    starts = dict.fromkeys(range(SHARDS), ShardStart())
    subscription = create(SubscriptionSettings(type=subscription_type), starts)
    for number in range(1, consumers + 1):
        step(subscription, joining(subscription_type, number), now=0.0)
        step(subscription, Allow(consumer=number, permits=10), now=0.0)
    return subscription


def joining(subscription_type: SubscriptionType, number: int) -> Join:
    return Join(consumer=number, name=f"c{number:04}", type=subscription_type, shards=None)


def calls(action: Callable[[], object]) -> int:
    made = 0

    def count(_frame: FrameType, what: str, _arg: object) -> None:
        nonlocal made
        made += what in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return made


def busy(consumers: int) -> Subscription:
    """Of Key_Shared: the logs of one consumer wait, since it has no permits, and the others have some out and
    could take more."""
    shard = {0: ShardStart(end=position_of(1))}
    subscription = create(SubscriptionSettings(type=SubscriptionType.KEY_SHARED), shard)
    for number in range(1, consumers + 1):
        step(subscription, joining(SubscriptionType.KEY_SHARED, number), now=0.0)
        step(subscription, Allow(consumer=number, permits=0 if number == 1 else 1000), now=0.0)
    slots = range(0, SLOTS, SLOTS // 400)  # each consumer has some of them
    entry = LoadedEntry(0, len(slots), slots=slots)
    loaded = GroupsLoaded(shard=0, load=1, entries=[entry], next=position_of(1))
    done = step(subscription, loaded, now=0.0)
    assert len({delivery.consumer for delivery in done.deliveries}) == consumers - 1
    assert subscription.shards[0].queue.unacked > sum(d.permits for d in done.deliveries)
    return subscription


@pytest.mark.parametrize(
    "event",
    [
        Ack(shard=0, runs=[(399, 400)]),
        Redeliver(consumer=2, shard=0),
        Allow(consumer=2, permits=20),
        Appended(shard=0, end=position_of(2)),
    ],
    ids=["acknowledges", "refuses", "receives", "a log arrives"],
)
def test_a_request_costs_as_much_beside_many_busy_consumers_of_key_shared(event: Event) -> None:
    made = []
    for consumers in (FEW, MANY):
        subscription = busy(consumers)
        made.append(calls(lambda: step(subscription, event, now=0.0)))  # noqa: B023 - it is called here
    few, many = made
    assert many - few < MANY - FEW


@pytest.mark.parametrize("subscription_type", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
@pytest.mark.parametrize(
    "event",
    [
        Allow(consumer=5, permits=20),
        Ack(shard=0, runs=[(0, 1)]),
        Appended(shard=0, end=position_of(1)),
        LeaveSubscription(consumer=5),
        None,
    ],
    ids=["receives", "acknowledges late", "a log arrives", "leaves", "joins"],
)
def test_a_request_costs_as_much_beside_many_consumers_as_beside_few(
    subscription_type: SubscriptionType, event: Event | None
) -> None:
    made = []
    for consumers in (FEW, MANY):
        subscription = waiting(subscription_type, consumers)
        one = event or joining(subscription_type, consumers + 1)
        made.append(calls(lambda: step(subscription, one, now=0.0)))  # noqa: B023 - it is called here
    few, many = made
    # Each of the others would be a call at least.
    assert many - few < MANY - FEW
