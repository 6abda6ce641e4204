"""Subscriptions that are kept in memory."""

from collections.abc import Mapping

from loghub_service.subscription.events import DispatchOutcome, Event, ShardStart
from loghub_service.subscription.state import Subscription, SubscriptionSettings
from loghub_service.subscription.step import create, step


class MemorySubscription:
    def __init__(self, name: str, state: Subscription) -> None:
        self.name = name
        self.state = state

    def apply(self, event: Event, *, now: float) -> DispatchOutcome:
        return step(self.state, event, now=now)

    async def durable(self) -> None:
        return None


class MemorySubscriptions:
    """By logstore and name."""

    def __init__(self) -> None:
        self._all: dict[int, dict[str, MemorySubscription]] = {}

    def of(self, topic: int) -> Mapping[str, MemorySubscription]:
        return self._all.get(topic, {})

    def create(
        self, topic: int, name: str, settings: SubscriptionSettings, shards: Mapping[int, ShardStart]
    ) -> MemorySubscription:
        made = MemorySubscription(name, create(settings, shards))
        self._all.setdefault(topic, {})[name] = made
        return made

    def delete(self, topic: int, name: str) -> None:
        self._all.get(topic, {}).pop(name, None)
