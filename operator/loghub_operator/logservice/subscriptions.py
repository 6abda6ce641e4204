"""Reads one subscription from the log service, for an object with ``spec.subscription``.

The embedded service reports a subscription in one answer. Its shards are shown to the planner in the states
of a group, so that it counts what is assignable, waiting and completed in one way: a shard that has a
consumer is ``already_alloc``, one that waits for its parents is in state ``wait``, and one that was consumed
to its end is ``over``. The state in the subscription itself is kept with it.
"""

from loghub.client.port import LogHub
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire.errors import Code, LogHubError
from loghub.wire.subscriptions import SubscribedShardStatus, SubscriptionStatus
from loghub_operator.api.status import ShardStateText
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
)
from loghub_operator.model.subscription import ShardDelivery, SubscriptionKind, SubscriptionObserved

UNSUPPORTED = (
    "this endpoint has no subscriptions, and type {type} needs them; use the embedded service, or create an"
    " object without spec.subscription: {instead}"
)
_A_GROUP = "a consumer group gives each shard to one consumer, in order, and another takes over"
_BY_THREADS = "fan_out of the consumer library deals the logs of a shard to threads by key"
_INSTEAD = {"Exclusive": _A_GROUP, "Failover": _A_GROUP, "Shared": _BY_THREADS, "KeyShared": _BY_THREADS}
_STATES: dict[SubscriptionState, ShardStateText] = {
    SubscriptionState.NO_CONSUMER: "not_alloc",
    SubscriptionState.WAITS_FOR_PARENT: "wait",
    SubscriptionState.FLOWING: "already_alloc",
    SubscriptionState.WAITS_FOR_ROOM: "already_alloc",
    SubscriptionState.UNOWNED: "not_alloc",
    SubscriptionState.FINISHED: "over",
}


def read_subscription(client: LogHub, resource: LogHubConsumerGroup) -> LogServiceObserved | None:
    """One observation; None if the subscription does not exist. Raises `LogHubException`."""
    asked = resource.spec.subscription
    assert asked is not None
    if not client.has_subscriptions():
        message = UNSUPPORTED.format(type=asked.type, instead=_INSTEAD[asked.type])
        return Unavailable(reason=ServiceErrorReason.SUBSCRIPTION_UNSUPPORTED, message=message)
    try:
        status = client.subscription_status(resource.spec.logstore, resource.group)
    except LogHubError as error:
        if error.code == Code.SUBSCRIPTION_NOT_EXIST:
            return None
        raise
    return observed_subscription(status)


def observed_subscription(status: SubscriptionStatus) -> Available:
    """What the status of a subscription says to the planner.

    In type Shared, the order that is stored is for the next type. Until then it counts for nothing, and is no
    difference to what an object wants.
    """
    in_order = status.in_order and status.type is not SubscriptionType.SHARED
    return Available(
        subscription=SubscriptionObserved(
            settings=SubscriptionKind(type=status.type, in_order=in_order, key=status.key),
            state=status.state,
            backlog_logs=status.backlog_logs,
            unacked_logs=status.unacked_logs,
            redelivered_logs=status.redelivered_logs,
            acknowledged_logs=status.acknowledged_logs,
            oldest_unacked_s=status.oldest_unacked_s,
            held_slots=status.held_slots,
        ),
        shards=tuple(_shard(one) for one in sorted(status.shards, key=lambda one: one.shard)),
        # A client of Pulsar has a consumer for each shard, all of one name.
        consumers=tuple(sorted({consumer.name for consumer in status.consumers})),
    )


def _shard(shard: SubscribedShardStatus) -> ShardObserved:
    is_over = shard.state is SubscriptionState.FINISHED
    return ShardObserved(
        shard=shard.shard,
        state=_STATES[shard.state],
        holder=shard.consumers[0] if len(shard.consumers) == 1 else "",
        checkpoint=shard.mark,
        lag_s=0.0 if shard.backlog_logs == 0 or is_over else shard.oldest_unacked_s,
        lag_logs=shard.backlog_logs,
        end_cursor=shard.end_cursor,
        read_only=shard.read_only,
        parents=shard.parents,
        delivery=ShardDelivery(
            state=shard.state, acked_ranges=shard.acked_ranges, unacked_logs=shard.unacked_logs
        ),
    )
