"""Decide about an object that cannot be read: it was stored under another version of the schema.

What for: its owner is told, in a condition and an event, and its deletion is not held up. What it
must not know: how either is carried out. Read next: `loghub_operator.controller.reconciler`.

Its workers are not touched while it lives; in its deletion the cluster removes them as things that
it owns, and the group is left as it is, since nobody can say which one it is.
"""

from typing import Any

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup
from loghub_operator.api.conditions import ConditionType, ReadyReason, UnseenReason
from loghub_operator.api.parse import parse_status
from loghub_operator.api.v1alpha1 import Metadata
from loghub_operator.model.actions import Action, EmitEvent, ReleaseObject
from loghub_operator.model.plan import Plan
from loghub_operator.plan.status.builder import unseen_status


def without_spec(document: dict[str, Any]) -> LogHubConsumerGroup:
    """The object without its spec: who it is, and what we told of it last."""
    metadata = Metadata.model_validate(document["metadata"], strict=False)
    return LogHubConsumerGroup.model_construct(metadata=metadata, status=parse_status(document.get("status")))


def plan_unread(resource: LogHubConsumerGroup, error: InvalidResourceError, now: float) -> Plan:
    """``resource`` has no spec."""
    problems = "; ".join(str(problem) for problem in error.problems)
    if resource.metadata.deletion_timestamp is not None:
        message = f"the spec cannot be parsed, so the consumer group was not deleted: {problems}"
        event = EmitEvent(type="Warning", reason="ConsumerGroupOrphaned", message=message)
        return Plan((event, ReleaseObject()), resource.status)
    message = (
        f"this version cannot parse the spec; the workers stay as they are until it is corrected: {problems}"
    )
    generation = resource.metadata.generation
    why = UnseenReason.INVALID_SPEC
    status = unseen_status(resource.status, why, message, generation=generation, now=now)
    actions: tuple[Action, ...] = ()
    if not _was_told(resource):
        actions = (EmitEvent(type="Warning", reason=ReadyReason.INVALID_SPEC, message=message),)
    return Plan(actions, status)


def _was_told(resource: LogHubConsumerGroup) -> bool:
    known = [(one.type, one.reason) for one in resource.status.conditions]
    return (ConditionType.READY, ReadyReason.INVALID_SPEC) in known
