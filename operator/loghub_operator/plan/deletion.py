"""Decides the next step for a consumer group whose object is being deleted, or cannot be carried out at all.

The workers are asked to drain, and the operator waits until they have left, within a bound; if the log
service does not answer several times in a row, it stops them at once, because they could not leave. Under
Retain the object is then released. Under Delete the operator tries to delete the group until `bound_s` has
passed since it saw the deletion; then it releases the object, and an event reports what remains. So it does
where a worker does not terminate, for example on a lost node. Every wait is bounded, so a deletion never
hangs forever.

An object that cannot be parsed was stored under the schema of another release, and has a value that this
release does not know. A condition and an event report the problem, and its workers stay as they are while the
object exists. When it is deleted, `loghub_operator.api.parse.parse_for_deletion` reads what a deletion needs;
only if the object does not even say which group it is, or what its deletion policy is, is it released at
once: the cluster garbage-collects the workers, and the consumer group is left as it is. A fault that one
object brings out is reported in the same way, and the bound of a deletion holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from loghub_operator.api import InvalidResourceError
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.conditions import MAX_MESSAGE, ConditionType, ReadyReason, UncheckedReason
from loghub_operator.api.labels import ANNOTATION_DELETE_ADOPTED
from loghub_operator.api.parse import parse_status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup, Metadata
from loghub_operator.model.actions import (
    GROUP_ORPHANED,
    Action,
    DeleteGroup,
    DrainWorker,
    EmitEvent,
    Plan,
    RemoveFinalizer,
    RemoveWorkers,
)
from loghub_operator.model.memory import NO_MEMORY, Memory, Stillness
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    Peer,
    ServiceErrorReason,
    Unavailable,
    WorkerObserved,
)
from loghub_operator.plan.checkpoint_reset import ResetProgress, at_deletion
from loghub_operator.plan.listing import comma_list
from loghub_operator.plan.ownership import (
    RECENT_S,
    consumers_without_pods,
    named,
    remaining_claimants,
    still_since,
)
from loghub_operator.plan.patience import PATIENCE, failed_looks
from loghub_operator.plan.replicas import Drains, drains_of
from loghub_operator.plan.status.builder import deleting_status, error_message, unchecked_status
from loghub_operator.plan.subject import Subject, drain_bound_s


def without_spec(document: dict[str, Any]) -> LogHubConsumerGroup:
    """The object without its spec: its metadata, and the status that was reported last."""
    metadata = Metadata.model_validate(document["metadata"], strict=False)
    return LogHubConsumerGroup.model_construct(metadata=metadata, status=parse_status(document.get("status")))


def plan_invalid(resource: LogHubConsumerGroup, error: InvalidResourceError, now: float) -> Plan:
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
    why = UncheckedReason.INVALID_SPEC
    status = unchecked_status(resource.status, why, message, generation=generation, now=now)
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
    generation, why = resource.metadata.generation, UncheckedReason.INTERNAL_ERROR
    status = unchecked_status(resource.status, why, message, generation=generation, now=now)
    reason = ReadyReason.INTERNAL_ERROR
    event = EmitEvent(type="Warning", reason=reason, message=message)
    return Plan(() if _was_reported(resource, reason) else (event,), status)


def given_up(error: Exception) -> EmitEvent:
    """Reports that an object was released although its deletion could not be carried out."""
    message = (
        "the deletion could not be carried out within its bound, so the consumer group is left, and the "
        f"cluster removes the workers: {type(error).__name__}: {error_message(error)}"
    )
    return EmitEvent(type="Warning", reason=GROUP_ORPHANED, message=message[:MAX_MESSAGE])


def _was_reported(resource: LogHubConsumerGroup, reason: ReadyReason) -> bool:
    reported = [(condition.type, condition.reason) for condition in resource.status.conditions]
    return (ConditionType.READY, reason) in reported


# A namespace that does not end is worse than a group to delete by hand, and an outage of the log service is
# usually shorter (docs/decisions/ownership.md).
DELETE_BOUND_S = 300.0
# The API server's clock, from which the time of the request is, may be behind ours by this. With more than 15
# minutes, SLS refuses every signature.
CLOCK_AHEAD_S = 900.0
STILL_S = 90.0  # clients of SLS save a checkpoint every minute while they consume
_DELETED_WITH_IT = (
    ServiceErrorReason.PROJECT_NOT_FOUND,
    ServiceErrorReason.LOGSTORE_NOT_FOUND,
    ServiceErrorReason.SUBSCRIPTION_UNSUPPORTED,  # there is none to delete
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """Which bounds have passed since the deletion was seen."""

    leaving: bool  # stop the workers, even workers that have not left
    ending: bool  # stop waiting for workers that have not terminated
    deleting: bool  # stop trying to delete the group


def plan_deletion(subject: Subject, now: float) -> Plan:
    """The next step towards releasing the object."""
    resource, observed, service = subject.resource, subject.observed, subject.observed.service
    memory, looks = remembered(observed.memory, now), failed_looks(observed.memory.failed_looks, service)
    over = _bounds(subject.drain_bound_s, waited_s(resource.metadata, memory, now))
    must_delete = _must_be_deleted(resource, observed.group_record, observed.peers)
    stillness, reset = None, ResetProgress(resource.status.checkpoint_reset)
    # 1. The workers leave; 2. their pods end; 3. the group is deleted or kept, and the object is released.
    if observed.worker_set is not None:
        drains = drains_of(observed, subject.names, subject.drain_bound_s, now)
        actions, waiting_for = _stop_workers(drains, over, is_patient=looks < PATIENCE)
    elif observed.workers and not over.ending:
        actions, waiting_for = [], f"waiting for {_names(observed.workers)} to terminate"
    else:
        stillness = still_since(service, memory.stillness, now)
        unrest = _unrest(service, stillness, now)
        actions, waiting_for = _end(subject, over, unrest, must_delete=must_delete)
        is_released = any(isinstance(action, RemoveFinalizer) for action in actions)
        if is_released and _is_kept(service, actions):
            reset = at_deletion(subject, now, is_over=over.deleting)
            if reset.is_committing:
                actions, waiting_for = list(reset.actions), "the checkpoint reset is being finished"
            actions = [*reset.events, *actions]
    claimant = next(iter(remaining_claimants(observed.peers)), None)
    fate = _fate(resource, claimant, must_delete=must_delete)
    status = deleting_status(subject, waiting_for=waiting_for, fate=fate, now=now)
    status = status.model_copy(update={"checkpoint_reset": reset.status})
    after = Memory(
        deletion_seen_unix_s=memory.deletion_seen_unix_s,
        stillness=stillness,
        committed=reset.committed,
        failed_looks=looks,
    )
    return Plan(tuple(actions), status, memory=after)


def _is_kept(service: LogServiceObserved, actions: Iterable[Action]) -> bool:
    """Whether a consumer group stays, whose checkpoints a client may use. While the log service does not
    answer, it may."""
    if isinstance(service, Available):
        return service.stored is not None and not any(isinstance(action, DeleteGroup) for action in actions)
    return service.reason not in _DELETED_WITH_IT


def remembered(memory: Memory | None, now: float) -> Memory:
    """The memory, with when the deletion was first seen."""
    memory = memory or NO_MEMORY
    return memory if memory.deletion_seen_unix_s is not None else replace(memory, deletion_seen_unix_s=now)


def waited_s(metadata: Metadata, memory: Memory, now: float) -> float:
    """For how long this operator has known of the deletion, by its own clock: the API server's, from which
    the time of the request is, may be another. After many restarts it is what is sure by both.
    """
    seen, requested = memory.deletion_seen_unix_s, metadata.deleted_at_unix_s()
    known_s = 0.0 if seen is None else now - seen
    return known_s if requested is None else max(known_s, now - requested - CLOCK_AHEAD_S)


def bound_s(resource: LogHubConsumerGroup) -> float:
    """How long the whole deletion may take."""
    return _deletion_bound_s(drain_bound_s(resource))


def _deletion_bound_s(leave_s: float) -> float:
    return max(DELETE_BOUND_S, 4 * leave_s)


def _bounds(leave_s: float, since_s: float) -> _Bounds:
    """One drain may have started just before the deletion and another just after it; the grace period of the
    pods is shorter.
    """
    return _Bounds(
        leaving=since_s > 2 * leave_s,
        ending=since_s > 3 * leave_s,
        deleting=since_s > _deletion_bound_s(leave_s),
    )


def _names(workers: Iterable[WorkerObserved]) -> str:
    return comma_list(worker.name for worker in workers)


def _stop_workers(drains: Drains, over: _Bounds, *, is_patient: bool) -> tuple[list[Action], str]:
    """``is_patient``: an unavailable log service has not been so for long."""
    if isinstance(drains.service, Unavailable):
        if is_patient and not over.leaving:
            return [], "waiting for an answer of the log service"
        return [RemoveWorkers()], "stopping the workers; the log service is unavailable"
    staying = [
        worker
        for worker in drains.workers
        if not (worker.drain_requested and drains.has_left(worker)) and not drains.waited_enough(worker)
    ]
    replaced = [drains.names.of(ordinal) for ordinal in drains.pending_replacements()]
    names = [worker.name for worker in staying] + replaced
    if not names or over.leaving:
        return [RemoveWorkers()], "stopping the workers"
    highest_first = sorted(staying, key=lambda worker: -worker.ordinal)
    requests: list[Action] = [
        DrainWorker(worker.name) for worker in highest_first if drains.must_be_asked(worker)
    ]
    return requests, f"waiting for {comma_list(names)} to leave"


def _unrest(service: LogServiceObserved, stillness: Stillness | None, now: float) -> str:
    """Why it is not sure that no consumer is live, where the endpoint does not list consumers; "" if it is. A
    consumer with the name of one of our workers may be the worker of a copy of the object in another cluster.
    """
    if stillness is None or not isinstance(service, Available) or service.consumers is not None:
        return ""
    saved = (shard.checkpoint_unix_s for shard in service.shards)
    if now - stillness.since_unix_s >= STILL_S or all(at is None or now - at > RECENT_S for at in saved):
        return ""
    if stillness.moved_by:
        names = comma_list(stillness.moved_by)
        return f"its checkpoints still move, saved by consumers that are not workers of this object: {names}"
    return f"it was consumed a moment ago, and {STILL_S:.0f} s show whether its checkpoints still move"


def _end(subject: Subject, over: _Bounds, unrest: str, *, must_delete: bool) -> tuple[list[Action], str]:
    """No worker set exists, and no worker either, or the operator no longer waits for them."""
    resource, observed = subject.resource, subject.observed
    if not observed.has_finalizer:
        return [], "the operator is done; another finalizer holds the object"
    release = [*_orphaned_workers(observed.workers), RemoveFinalizer()]
    service = observed.service
    if not must_delete:
        return release, f"the {resource.consumed_kind} is kept"
    if isinstance(service, Available):
        missing, error = service.stored is None, observed.memory.service_error
    else:
        missing, error = service.reason in _DELETED_WITH_IT, service.message
    if missing:
        return release, f"the {resource.consumed_kind} does not exist any more"
    others = consumers_without_pods(service, observed.workers, subject.names, observed.at_unix_s)
    if others:
        error = f"it has consumers that are not workers of this object: {comma_list(others)}"
    elif unrest:
        error = unrest
    if error and over.deleting:
        message = f"{resource.consumed} was not deleted: {error}"
        return [_warning(GROUP_ORPHANED, message), *release], message
    if isinstance(service, Available) and not others and not unrest:
        return [DeleteGroup(), *release], f"deleting the {resource.consumed_kind}"
    hint = "set deletionPolicy: Retain to delete this object without it"
    if others:
        hint = f"stop them, or {hint}"
    return [], f"the {resource.consumed_kind} cannot be deleted yet: {error} ({hint})"


def _orphaned_workers(workers: tuple[WorkerObserved, ...]) -> list[Action]:
    if not workers:
        return []
    message = f"{_names(workers)} did not terminate; check their nodes and force-delete the pods"
    return [_warning("WorkersOrphaned", message)]


def _warning(reason: str, message: str) -> EmitEvent:
    return EmitEvent(type="Warning", reason=reason, message=message)


def _fate(resource: LogHubConsumerGroup, claimant: Peer | None, *, must_delete: bool) -> str:
    """What happens to the consumer group, and why; ``claimant`` is another object that uses it."""
    policy = resource.spec.deletion_policy
    if claimant is not None:
        other = named(claimant, resource.metadata.namespace)
        return f"{resource.consumed} is kept: {other} refers to it too"
    if must_delete:
        return f"{resource.consumed} is deleted once the workers have terminated (deletionPolicy {policy})"
    if policy == "Delete":
        return f"{resource.consumed} is kept: this object did not create it"
    return f"{resource.consumed} and its {resource.positions} are kept (deletionPolicy {policy})"


def _must_be_deleted(
    resource: LogHubConsumerGroup, record: GroupRecord | None, peers: Iterable[Peer]
) -> bool:
    """The group is deleted only if the policy is Delete, if this object created the group, or adopted it and
    carries the annotation that allows deleting an adopted one, and if no other object refers to it.
    """
    if remaining_claimants(peers):
        return False
    if record is None or not record.is_about_ours or resource.spec.deletion_policy != "Delete":
        return False
    allowed = resource.metadata.annotations.get(ANNOTATION_DELETE_ADOPTED) == "true"
    return allowed or record.origin == "Created"
