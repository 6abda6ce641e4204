"""The part of the spec that makes an object consume a subscription instead of a consumer group:
``spec.subscription``.

A group gives each shard to one consumer. A subscription of the type Shared or KeyShared deals single logs, so
that more workers than shards have work, and it keeps single acknowledgments. Only a processor acknowledges
single logs, and only the embedded service has subscriptions (docs/subscriptions-protocol.md).
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import Field

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import MAX_KEY_FIELD_CHARS, MAX_KEY_FIELDS, MAX_PRIORITY
from loghub_operator.api.fetch import Checkpoint
from loghub_operator.api.fields import once
from loghub_operator.api.processor import AcknowledgeMode
from loghub_operator.api.scaling import ScalingMode
from loghub_operator.api.validation import ApiModel, Immutable, Rule

_CHECKPOINTS_EVERY_S = Checkpoint().interval_seconds


class GroupSubscription(ApiModel):
    """Consumes a subscription instead of a consumer group; consumerGroup is its name. Only the embedded
    service has subscriptions, and only a processor with acknowledge: Log consumes one. Objects that name the
    same logstore and subscription share it, with the same type, key and inOrder. Cannot be added or removed.
    """

    RULES: ClassVar = (
        Rule(
            field="key",
            cel="!has(self.key) || self.type == 'KeyShared'",
            message="key says which logs stay together in type KeyShared: leave it out",
            holds=lambda self: self.key is None or self.type == SubscriptionType.KEY_SHARED,
        ),
        Rule(
            field="inOrder",
            cel="!has(self.inOrder) || !self.inOrder || self.type != 'Shared'",
            message="type Shared has no order: leave inOrder out, or use KeyShared, Failover or Exclusive",
            holds=lambda self: not self.in_order or self.type != SubscriptionType.SHARED,
        ),
    )

    type: SubscriptionType = Field(
        strict=False,
        description=(
            "How logs are spread over the workers. Changing it, key or inOrder stops all workers before they"
            " start again, and loses no acknowledgment. Exclusive: one worker has all logs, in order."
            " Failover: each shard has one active worker at a time, in order; the others stand by. Shared:"
            " single logs are dealt to all workers in turn, without an order. KeyShared: single logs are"
            " dealt by key, so that the logs of one key are at one worker at a time, in order."
        ),
    )
    key: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1, max_length=MAX_KEY_FIELD_CHARS)], ...],
            Field(
                min_length=1,
                max_length=MAX_KEY_FIELDS,
                json_schema_extra={"x-kubernetes-list-type": "set"},
            ),
            once(),
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "With type KeyShared, the fields of a log that are its key. Default: the key that a Kafka or"
            " Pulsar client gave the log."
        ),
    )
    in_order: bool | None = Field(
        default=None,
        description=(
            "Shards that result from a split or merge wait until every log of their parents is acknowledged."
            " Default: true, except in type Shared, where it must not be true."
        ),
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = Field(
        default=0,
        description=(
            "Priority of the workers of this object, where several objects share the subscription; 0 is the"
            " highest. Workers of the next priority get logs only while those before them are full, or, in"
            " type Failover, gone."
        ),
    )

    @property
    def keeps_order(self) -> bool:
        """Whether the children of a shard wait for it."""
        return self.type != SubscriptionType.SHARED if self.in_order is None else self.in_order


_OF_LOGS = "self.subscription.type in ['Shared', 'KeyShared']"


def _if_subscribed(
    field: str, *, cel: str, message: str, holds: Callable[[Any, GroupSubscription], bool]
) -> Rule:
    """A rule of the whole spec that counts where there is a subscription: ``holds(spec, subscription)``."""
    return Rule(
        field=field,
        cel=f"!(has(self.subscription)) || {cel}",
        message=message,
        holds=lambda self: self.subscription is None or holds(self, self.subscription),
    )


SUBSCRIPTION_RULES = (
    _if_subscribed(
        "subscription",
        cel=f"has(self.pipeline.processor) || !({_OF_LOGS})",
        message=(
            "types Shared and KeyShared deal single logs, which a micro-batch of Spark cannot acknowledge:"
            " use pipeline.processor, or leave out subscription"
        ),
        holds=lambda spec, subscription: spec.pipeline.processor is not None or subscription.type.is_ordered,
    ),
    _if_subscribed(
        "subscription",
        cel=f"has(self.pipeline.processor) || {_OF_LOGS}",
        message=(
            "on Spark, a consumer group is what Exclusive and Failover are: each shard has one worker, in"
            " order, and another takes over. Leave out subscription, or use pipeline.processor"
        ),
        holds=lambda spec, subscription: (
            spec.pipeline.processor is not None or not subscription.type.is_ordered
        ),
    ),
    _if_subscribed(
        "pipeline.processor.acknowledge",
        cel="!has(self.pipeline.processor) || self.pipeline.processor.acknowledge == 'Log'",
        message="a subscription keeps acknowledgments of single logs: set acknowledge: Log",
        holds=lambda spec, _: (
            spec.pipeline.processor is None or spec.pipeline.processor.acknowledge is AcknowledgeMode.LOG
        ),
    ),
    _if_subscribed(
        "inOrder",
        cel="!self.inOrder",
        message="inOrder is for consumer groups: with subscription, set subscription.inOrder",
        holds=lambda spec, _: not spec.in_order,
    ),
    _if_subscribed(
        "checkpoint",
        cel=f"self.checkpoint.intervalSeconds == {_CHECKPOINTS_EVERY_S}",
        message="a subscription has acknowledgments instead of checkpoints: leave out checkpoint",
        holds=lambda spec, _: spec.checkpoint.interval_seconds == _CHECKPOINTS_EVERY_S,
    ),
    _if_subscribed(
        "resetCheckpoints",
        cel="!has(self.resetCheckpoints)",
        message=(
            "a subscription has no checkpoints: move it by `loghub subscription seek`, and leave out"
            " resetCheckpoints"
        ),
        holds=lambda spec, _: spec.reset_checkpoints is None,
    ),
    _if_subscribed(
        "scaling.shards",
        cel="!self.scaling.shards.autoSplit && !self.scaling.shards.autoMerge",
        message=(
            "the workers of a subscription are not bound to shards, so shards do not follow their load: leave"
            " out autoSplit and autoMerge"
        ),
        holds=lambda spec, _: not (spec.scaling.shards.auto_split or spec.scaling.shards.auto_merge),
    ),
    _if_subscribed(
        "replicas",
        cel="self.subscription.type != 'Exclusive' || self.replicas <= 1 && self.scaling.mode == 'Fixed'",
        message=(
            "type Exclusive has one worker: set replicas to 1 and scaling.mode to Fixed, or use type"
            " Failover, in which more workers stand by"
        ),
        holds=lambda spec, subscription: (
            subscription.type != SubscriptionType.EXCLUSIVE
            or (spec.replicas <= 1 and spec.scaling.mode is ScalingMode.FIXED)
        ),
    ),
)

SUBSCRIPTION_STAYS = Immutable(
    field="subscription",
    optional=True,
    same_cel="true",
    same=lambda old, new: (old is None) == (new is None),
    message=(
        "subscription cannot be added or removed, since a consumer group and a subscription have positions of"
        " their own; create another LogHubConsumerGroup instead, after `loghub subscription create"
        " --from-group` if its subscription should continue where this group stands"
    ),
)
