"""Subscriptions: their types, and the states of a shard, as the status, the wire and the data folder spell
them."""

from collections.abc import Iterable
from enum import StrEnum


class SubscriptionType(StrEnum):
    """How the logs of a subscription are spread over its consumers.

    Exclusive has one consumer, Failover one that is active for each shard. Both are ordered: a consumer gets
    the logs of a shard in their order, and again from the mark after any disturbance. Shared deals the logs
    one by one, KeyShared by key, as Key_Shared of Pulsar does.
    """

    EXCLUSIVE = "Exclusive"
    FAILOVER = "Failover"
    SHARED = "Shared"
    KEY_SHARED = "KeyShared"

    @property
    def is_ordered(self) -> bool:
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class SubscriptionState(StrEnum):
    """The state of a shard in one subscription (docs/subscription-states.md 1)."""

    NO_CONSUMER = "NoConsumer"
    WAITS_FOR_PARENT = "WaitsForParent"
    FLOWING = "Flowing"
    WAITS_FOR_ROOM = "WaitsForRoom"
    UNOWNED = "Unowned"
    FINISHED = "Finished"


_WORST_FIRST = (
    SubscriptionState.UNOWNED,
    SubscriptionState.WAITS_FOR_ROOM,
    SubscriptionState.WAITS_FOR_PARENT,
    SubscriptionState.NO_CONSUMER,
    SubscriptionState.FLOWING,
    SubscriptionState.FINISHED,
)


def worst_state(states: Iterable[SubscriptionState]) -> SubscriptionState:
    """The state of a subscription: of its shards' states the one that most needs attention; Finished if there
    is no shard."""
    return min(states, key=_WORST_FIRST.index, default=SubscriptionState.FINISHED)
