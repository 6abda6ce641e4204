"""The calls of subscriptions in an adapter that has none: each is refused in the same words."""

from collections.abc import Mapping
from typing import NoReturn

from loghub.client.port import Position
from loghub.wire.errors import ExtensionMissing
from loghub.wire.subscriptions import (
    Exchange,
    Exchanged,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)


class NoSubscriptions:
    """A part of an adapter. Every call raises ExtensionMissing."""

    def has_subscriptions(self) -> bool:
        """Always False, whatever service answers."""
        return False

    def list_subscriptions(self, logstore: str) -> tuple[SubscriptionSummary, ...]:
        _refuse(logstore)

    def create_subscription(self, logstore: str, name: str, spec: SubscriptionSpec) -> None:
        _refuse(logstore, name, spec)

    def delete_subscription(self, logstore: str, name: str) -> None:
        _refuse(logstore, name)

    def subscription_status(self, logstore: str, name: str) -> SubscriptionStatus:
        _refuse(logstore, name)

    def seek_subscription(self, logstore: str, name: str, position: Position | Mapping[int, str]) -> None:
        _refuse(logstore, name, position)

    def skip_subscription(self, logstore: str, name: str, *, shard: int, logs: int | None) -> int:
        _refuse(logstore, name, shard, logs)

    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged:
        _refuse(logstore, name, exchange)


def _refuse(*_: object) -> NoReturn:
    raise ExtensionMissing(
        "subscriptions need the embedded service and its http adapter: use a consumer group here"
    )
