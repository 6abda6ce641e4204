"""Plans for an object that this release cannot carry out: it cannot be parsed, or brings out a fault.

The former was stored under the schema of another release, and has a value that this one does not know. A
condition and an event report the problem. Its workers stay as they are while the object exists. When it is
deleted, `loghub_operator.api.parse.parse_for_deletion` reads what `loghub_operator.plan.deletion` needs; only
if the object does not even say which group it is, or what its deletion policy is, does this module release
it: the cluster garbage-collects the workers, and the consumer group is left as it is. A fault is that of one
object: it is reported in the same way, and the bound of a deletion holds.
"""

from typing import Any

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup
from loghub_operator.api.conditions import LONGEST_MESSAGE, ConditionType, ReadyReason, UnseenReason
from loghub_operator.api.parse import parse_status
from loghub_operator.api.v1alpha1 import Metadata
from loghub_operator.model.actions import GROUP_ORPHANED, Action, EmitEvent, RemoveFinalizer
from loghub_operator.model.plan import Plan
from loghub_operator.plan.status.builder import unseen_status
from loghub_operator.plan.status.failure import error_message


def without_spec(document: dict[str, Any]) -> LogHubConsumerGroup:
    """The object without its spec: its metadata, and the status that was reported last."""
    metadata = Metadata.model_validate(document["metadata"], strict=False)
    return LogHubConsumerGroup.model_construct(metadata=metadata, status=parse_status(document.get("status")))


def plan_unread(resource: LogHubConsumerGroup, error: InvalidResourceError, now: float) -> Plan:
    """Plans for ``resource``, which has no spec."""
    problems = "; ".join(str(problem) for problem in error.problems)
    if resource.metadata.deletion_timestamp is not None:
        message = f"the spec does not say what to delete, so the consumer group is left: {problems}"
        event = EmitEvent(type="Warning", reason=GROUP_ORPHANED, message=message)
        return Plan((event, RemoveFinalizer()), resource.status)
    message = (
        f"this version cannot parse the spec; the workers stay as they are until it is corrected: {problems}"
    )
    generation = resource.metadata.generation
    why = UnseenReason.INVALID_SPEC
    status = unseen_status(resource.status, why, message, generation=generation, now=now)
    actions: tuple[Action, ...] = ()
    if not _was_reported(resource, ReadyReason.INVALID_SPEC):
        actions = (EmitEvent(type="Warning", reason=ReadyReason.INVALID_SPEC, message=message),)
    return Plan(actions, status)


def plan_failed(resource: LogHubConsumerGroup, error: Exception, now: float) -> Plan:
    """Plans for ``resource``, which has no spec, after a fault of the operator."""
    message = (
        f"the operator has a fault that this object brings out ({type(error).__name__}); its workers stay as "
        "they are; the operator's log says where"
    )
    generation, why = resource.metadata.generation, UnseenReason.INTERNAL_ERROR
    status = unseen_status(resource.status, why, message, generation=generation, now=now)
    reason = ReadyReason.INTERNAL_ERROR
    event = EmitEvent(type="Warning", reason=reason, message=message)
    return Plan(() if _was_reported(resource, reason) else (event,), status)


def given_up(error: Exception) -> EmitEvent:
    """Reports that an object was released although its deletion could not be carried out."""
    message = (
        "the deletion could not be carried out within its bound, so the consumer group is left, and the "
        f"cluster removes the workers: {type(error).__name__}: {error_message(error)}"
    )
    return EmitEvent(type="Warning", reason=GROUP_ORPHANED, message=message[:LONGEST_MESSAGE])


def _was_reported(resource: LogHubConsumerGroup, reason: ReadyReason) -> bool:
    known = [(one.type, one.reason) for one in resource.status.conditions]
    return (ConditionType.READY, reason) in known
