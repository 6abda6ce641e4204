"""What is particular to the scaling of a subscription.

A subscription is measured as a whole, in logs: written is what is acknowledged and what is not, consumed is
what is acknowledged, and lag is the backlog. These three continue as the cursors of a shard do, so the rates,
the formula and the windows of a group apply. Workers are not bound to shards, so the number of shards
limits a type only where a shard has one active worker, and one worker's rate is its part of the whole.

There are cases in which more workers have nothing to do, although the backlog grows: the log service
withholds logs, the logs wait for a logstore that cannot be written, or their keys are few.
"""

from collections.abc import Sequence

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_operator.api.conditions import ActiveReason
from loghub_operator.model.memory import ShardMark
from loghub_operator.model.observed import Available, LogServiceObserved, ShardFailures
from loghub_operator.model.subscription import SubscriptionObserved
from loghub_operator.plan.listing import comma_list
from loghub_operator.plan.scaling.gate import ScalingGate

WHOLE = 0  # instead of the number of a shard
WITHHELD = {
    SubscriptionState.WAITS_FOR_ROOM: "too many logs wait for an acknowledgment, so no others are delivered",
    SubscriptionState.UNOWNED: "logs have keys that no consumer has",
}


def whole_mark(seen: SubscriptionObserved) -> ShardMark:
    """The whole subscription as one shard, in logs."""
    acked, backlog = seen.acknowledged_logs, seen.backlog_logs
    return ShardMark(
        shard=WHOLE,
        written=None if acked is None or backlog is None else acked + backlog,
        consumed=acked,
        consumed_at_unix_s=None,
        lag=backlog,
        holder="",
        read_only=False,
    )


def by_shards(service: Available) -> bool:
    """Whether a shard has one worker at a time, so that more workers than shards cannot have work."""
    return service.subscription is None or service.subscription.settings.type.is_ordered


def sharers(service: Available, ready: Sequence[str]) -> int:
    """How many consumers share what is consumed: those that are connected or, in an ordered type, active."""
    active = {shard.holder for shard in service.shards if shard.holder}
    if by_shards(service):
        return len(active)
    return len({*(service.consumers or ()), *ready})


def cannot_help(service: LogServiceObserved, failures: ShardFailures) -> ScalingGate | None:
    """Why more workers would have nothing to do; None if they would have work, or if that is not known."""
    if not isinstance(service, Available) or service.subscription is None:
        return None
    message = WITHHELD.get(service.subscription.state) or _waiting_for(service, failures)
    return ScalingGate(reason=ActiveReason.MORE_CANNOT_HELP, message=message) if message else None


def _waiting_for(service: Available, failures: ShardFailures) -> str:
    for name, other in (("retry logstore", service.retries), ("dead letter", service.dead_letter)):
        if other is not None and other.error:
            return f"failed logs wait for the {name}: {other.error}"
    settling = [one.shard for one in failures.failing if one.state == "settling"]
    return f"shards wait for the dead letter: {comma_list(settling)}" if settling else ""


def most_useful(service: LogServiceObserved) -> int | None:
    """The most workers that have keys to work on; None: not limited, or not known."""
    if not isinstance(service, Available) or service.subscription is None:
        return None
    seen = service.subscription
    if seen.settings.type is not SubscriptionType.KEY_SHARED:
        return None
    return seen.held_slots or None
