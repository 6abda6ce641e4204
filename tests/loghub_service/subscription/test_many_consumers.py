"""What a request costs does not grow with the number of the other consumers: a thousand that wait for logs
must not occupy the service. The cost is the number of calls, which no load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import Ack, Allow, Appended, Event, Join, LeaveSubscription
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
