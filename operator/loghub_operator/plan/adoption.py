"""Decides whether an object may adopt a consumer group that existed before it.

A typing error in ``spec.consumerGroup``, or a staging object with the name of production, would otherwise
join a live group: it would change the group's settings and take shards from the consumers of others.
``spec.adoption`` decides. A group that the object has created or adopted before is its own, whatever runs in
it; foreign consumers are then only reported.
"""

import re

from loghub_operator.api.adoption import is_recorded_elsewhere
from loghub_operator.api.v1alpha1 import Adoption, LogHubConsumerGroup
from loghub_operator.model.memory import Stillness
from loghub_operator.model.observed import Available, ObservedState
from loghub_operator.plan.listing import listed

# Clients save checkpoints about once a minute while they consume; longer than a restart of one takes.
RECENT_S = 300.0


def foreign_consumers(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[str, ...]:
    """Live consumers of the group that are not workers of this object.

    An object that neither owns the group nor runs workers for it has none there: workers that were started
    for a group of another log service, before an edit of the endpoint, are none of this one. A consumer with
    the name of one is then a worker of an object of the same name, often in another cluster, or of this one
    before it was recreated; in that case it is gone after the group's timeout.

    An endpoint without extensions does not list consumers: there they are those that saved a checkpoint
    within `RECENT_S`, so a consumer of a stream without logs is not seen.
    """
    service = observed.service
    if not isinstance(service, Available) or service.group is None:
        return ()
    live = _consumers(service, observed.at_unix_s)
    if not (_is_own(observed) or _runs_workers(resource, observed)):
        return live
    return _without_own_names(resource, live)


def consumers_without_pods(resource: LogHubConsumerGroup, observed: ObservedState) -> tuple[str, ...]:
    """Live consumers of the group other than the workers that exist. A worker that was stopped before it left
    is one until the group's timeout; one that stays is a worker of an object of the same name.

    An endpoint without extensions does not say who is live, and the object's workers saved checkpoints just
    now: there consumers with the name of a worker count only if their checkpoints still move (`still_since`).
    """
    service = observed.service
    if not isinstance(service, Available) or service.group is None:
        return ()
    existing = {worker.name for worker in observed.workers}
    live = tuple(name for name in _consumers(service, observed.at_unix_s) if name not in existing)
    return live if service.consumers is not None else _without_own_names(resource, live)


def still_since(observed: ObservedState, now: float) -> Stillness | None:
    """Since when the checkpoints rest, seen from now on or as the previous reconcile remembers; None if the
    endpoint lists its consumers, or does not answer. Call it once no worker exists.
    """
    service, before = observed.service, observed.memory.stillness
    if not isinstance(service, Available) or service.consumers is not None:
        return before
    seen = tuple((one.shard, one.checkpoint, one.checkpoint_unix_s) for one in service.shards)
    if before is None:
        return Stillness(since_unix_s=now, checkpoints=seen)
    moved = set(seen) - set(before.checkpoints)
    if not moved:
        return before
    numbers = {shard for shard, _, _ in moved}
    names = {one.checkpoint_consumer or "unnamed" for one in service.shards if one.shard in numbers}
    return Stillness(since_unix_s=now, checkpoints=seen, moved_by=tuple(sorted(names)))


def _without_own_names(resource: LogHubConsumerGroup, names: tuple[str, ...]) -> tuple[str, ...]:
    own = re.compile(re.escape(resource.metadata.name) + "-[0-9]+")
    return tuple(name for name in names if not own.fullmatch(name))


def _runs_workers(resource: LogHubConsumerGroup, observed: ObservedState) -> bool:
    return bool(observed.replicas or observed.workers) and not is_recorded_elsewhere(resource)


def _is_own(observed: ObservedState) -> bool:
    """Whether the object has created or adopted the group."""
    return observed.group_record is not None and observed.group_record.is_about_ours


def _consumers(service: Available, now: float) -> tuple[str, ...]:
    if service.consumers is not None:
        return service.consumers
    saved = {
        shard.checkpoint_consumer
        for shard in service.shards
        if shard.checkpoint_unix_s is not None and now - shard.checkpoint_unix_s < RECENT_S
    }
    return tuple(sorted(saved - {""}))


def adoption_refusal(
    resource: LogHubConsumerGroup, observed: ObservedState, foreign: tuple[str, ...]
) -> str | None:
    """Why the object must not adopt the group, as a message for users; None: it may, or need not."""
    service = observed.service
    if not isinstance(service, Available) or service.group is None or _is_own(observed):
        return None
    match resource.spec.adoption:
        case Adoption.NEVER:
            why = "spec.adoption is Never"
        case Adoption.IF_IDLE if foreign:
            why = f"it has consumers that are not workers of this object: {listed(foreign)}"
        case _:
            return None
    return (
        f"consumer group {resource.group} existed before this object, and {why}; choose another "
        "consumerGroup, stop those consumers and wait until they are no longer live, or change spec.adoption"
    )
