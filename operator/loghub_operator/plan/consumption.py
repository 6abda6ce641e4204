"""What one object consumes: a consumer group or a subscription, with the settings of the spec.

The settings of a group change while its workers run, apart from a shorter timeout, which waits for them. The
settings of a subscription are part of what each connected consumer joined, so they change only while none is
connected: the workers leave first, and join again under the new settings.
"""

from collections.abc import Iterable

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    LogServiceObserved,
    Peer,
    Stored,
    WorkerNames,
    WorkerObserved,
)
from loghub_operator.model.revision import Revision
from loghub_operator.model.subscription import SubscriptionKind, subscription_of
from loghub_operator.plan.listing import comma_list


def stored_of(resource: LogHubConsumerGroup) -> Stored:
    """What the log service should store of what this object consumes."""
    spec, subscription = resource.spec, subscription_of(resource.spec.subscription)
    if subscription is not None:
        return subscription
    return GroupSettings(timeout_s=spec.timeout_seconds, order=spec.in_order)


def stored_now(
    wanted: Stored,
    existing: Stored | None,
    workers: Iterable[WorkerObserved],
    desired: Revision,
    *,
    is_connected: bool,
) -> Stored:
    """What the log service should store until the workers, whose ``desired`` revision may be another one than
    they run with, allow all that is wanted. ``is_connected``: a consumer is connected, or a worker may be at
    any moment.
    """
    if isinstance(wanted, GroupSettings):
        return _group_now(wanted, existing, workers, desired)
    if isinstance(existing, SubscriptionKind) and existing != wanted and is_connected:
        return existing
    return wanted


def _group_now(
    wanted: GroupSettings,
    existing: Stored | None,
    workers: Iterable[WorkerObserved],
    desired: Revision,
) -> GroupSettings:
    """A timeout is shortened only once every worker runs with it. A worker with the longer timeout would
    continue with shards that the log service has already reassigned, and its heartbeats would come too late
    for the shorter timeout.
    """
    if not isinstance(existing, GroupSettings) or wanted.timeout_s >= existing.timeout_s:
        return wanted
    if all(worker.revision.settings == desired.settings for worker in workers):
        return wanted
    return GroupSettings(timeout_s=existing.timeout_s, order=wanted.order)


def connected(service: LogServiceObserved) -> tuple[str, ...]:
    """The consumers that the log service reports as live; none if it reports nothing."""
    return (service.consumers or ()) if isinstance(service, Available) else ()


def changing(consumed: str, wanted: Stored, existing: Stored | None, others: tuple[str, ...]) -> str:
    """Why all workers leave the subscription before they start again, as a message for users; "" if they do
    not have to. ``others`` are connected consumers that are no workers of this object.
    """
    if not isinstance(wanted, SubscriptionKind) or not isinstance(existing, SubscriptionKind):
        return ""
    if existing == wanted:
        return ""
    waits = f"; it has consumers that are not workers of this object: {comma_list(others)}" if others else ""
    return f"{consumed} changes from {existing} to {wanted}, for which no consumer may be connected{waits}"


def without_partners(consumers: Iterable[str], own: Peer, peers: Iterable[Peer]) -> tuple[str, ...]:
    """The consumers that are no workers of the other objects with which this one shares its subscription."""
    rest = tuple(consumers)
    for peer in peers:
        if peer.shares_with(own):
            rest = WorkerNames(f"{peer.name}-", 0).foreign(rest)
    return rest
