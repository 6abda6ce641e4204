"""What the log service stores and reports of a subscription, as the operator sees it.

An object consumes either a consumer group (`loghub_operator.model.observed.GroupSettings`) or a subscription
(`SubscriptionKind`). What is stored of both is one value to the planner: it is created if it is missing,
updated if it differs, and deleted at the end. Only where a group and a subscription differ in kind, such as
in who may be connected while a setting changes, does the planner ask which of the two it is.
"""

from dataclasses import dataclass

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_operator.api.subscription import GroupSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionKind:
    """What the log service stores of a subscription. None of it changes while a consumer is connected."""

    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Such as "KeyShared by user, in order"."""
        key = f" by {', '.join(self.key)}" if self.key else ""
        in_order = ", in order" if self.in_order else ""
        return f"{self.type}{key}{in_order}"


def subscription_of(asked: GroupSubscription | None) -> SubscriptionKind | None:
    """What the log service should store for ``spec.subscription``; None for a consumer group."""
    if asked is None:
        return None
    return SubscriptionKind(type=asked.type, in_order=asked.keeps_order, key=asked.key or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionObserved:
    """A subscription in one observation; None: unknown.

    ``backlog_logs``: logs that are not acknowledged; ``unacked_logs`` of them are at consumers.
    ``redelivered_logs`` and ``acknowledged_logs`` count since the log service started. ``held_slots``: the
    parts of the keys, in type KeyShared, that have logs at consumers: as many consumers can have work.
    """

    settings: SubscriptionKind
    state: SubscriptionState
    backlog_logs: int | None = None
    unacked_logs: int = 0
    redelivered_logs: int = 0
    acknowledged_logs: int | None = None
    oldest_unacked_s: float | None = None
    held_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDelivery:
    """One shard in a subscription. ``acked_ranges``: ranges of acknowledged logs above the position up to
    which every log is acknowledged."""

    state: SubscriptionState
    acked_ranges: int = 0
    unacked_logs: int = 0
