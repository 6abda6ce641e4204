"""Condition GroupSynced: whether the consumer group at the log service matches the spec."""

from loghub_operator.api.conditions import ConditionType, ConditionUpdate, GroupReason
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState, Unavailable
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.listing import listed
from loghub_operator.plan.ownership import named


def group_finding(
    resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired, *, delayed: bool
) -> ConditionUpdate:
    """Whether the group at the log service matches the spec; ``delayed``: its correction has to wait."""
    reason, message = _group_state(resource, observed, desired, delayed=delayed)
    return ConditionUpdate(
        type=ConditionType.GROUP_SYNCED,
        status="True" if reason in (GroupReason.UP_TO_DATE, GroupReason.FOREIGN_CONSUMERS) else "False",
        reason=reason,
        message=message,
    )


def _group_state(
    resource: LogHubConsumerGroup, observed: ObservedState, desired: Desired, *, delayed: bool
) -> tuple[str, str]:
    service = observed.service
    if desired.owner is not None:
        message = (
            f"{named(desired.owner, resource)} owns consumer group {resource.group}, because it proved access"
            " to it first"
        )
        return GroupReason.OWNERSHIP_CONFLICT, message
    if isinstance(service, Unavailable):
        return service.reason, service.message
    if service.group is None:
        return GroupReason.CREATING, f"creating consumer group {resource.group}"
    if desired.refusal is not None:
        return GroupReason.ADOPTION_REFUSED, desired.refusal
    if service.group != desired.group_now:
        if delayed:
            message = "another controller keeps changing timeout and order; backing off between corrections"
            return GroupReason.UPDATING, message
        return GroupReason.UPDATING, "updating timeout and order of the consumer group"
    if service.group != desired.group:
        return GroupReason.UPDATING, "the shorter timeout is set once every worker runs with it"
    if desired.foreign:
        message = f"shares its shards with consumers of others: {listed(desired.foreign)}"
        return GroupReason.FOREIGN_CONSUMERS, f"consumer group {resource.group} is up to date and {message}"
    return GroupReason.UP_TO_DATE, f"consumer group {resource.group} is up to date"
