"""Decide what to do about a consumer group whose object is being deleted.

What for: leave, stop, delete or keep the group, let the object go, in this order and never
hanging for ever. What it must not know: how any of it is carried out. Read next:
`loghub_operator.plan.planner`.

Workers are told to leave and waited for, as long as one of them may take; where the log
service cannot be asked they are stopped at once, since they could not leave. Under Retain the
object is then let go. Under Delete the group's deletion is tried until `_bounds` has passed
since the deletion was asked for; then the object is let go, and an event says what is left
behind. So is a worker that does not end, say, on a node that is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from loghub_operator.api.labels import ANNOTATION_DELETE_ADOPTED
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.actions import (
    Action,
    AskLeave,
    DeleteGroup,
    EmitEvent,
    EnsureProjectAddress,
    ReleaseObject,
    RemoveWorkers,
)
from loghub_operator.model.observed import ObservedState, ServiceErrorReason, WorkerObserved
from loghub_operator.model.plan import Plan
from loghub_operator.plan.ownership import named, remaining_claimants
from loghub_operator.plan.replicas import has_left, pending_replacements, waited_enough
from loghub_operator.plan.status.builder import deleting_status
from loghub_operator.plan.status.last_failure import refusal
from loghub_operator.resources.worker_config import drain_timeout_s

DELETE_BOUND_S = 300.0
_GONE_WITH_IT = (ServiceErrorReason.PROJECT_NOT_FOUND, ServiceErrorReason.LOGSTORE_NOT_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """What has lasted too long since the deletion was asked for."""

    leaving: bool  # the workers are stopped, wherever they are with leaving
    ending: bool  # those that have not ended are left behind
    deleting: bool  # so is the group


def plan_deletion(resource: LogHubConsumerGroup, observed: ObservedState, now: float) -> Plan:
    """The next step towards letting the object go."""
    over = _bounds(resource, now)
    if observed.worker_set is not None:
        actions, waiting_for = _stop_workers(resource, observed, over, now)
    elif observed.workers and not over.ending:
        actions, waiting_for = [], f"waiting for {_names(observed.workers)} to terminate"
    else:
        actions, waiting_for = _end(resource, observed, over)
    fate = _fate(resource, observed)
    status = deleting_status(resource, observed, waiting_for=waiting_for, fate=fate, now=now)
    return Plan(tuple(actions), status)


def _bounds(resource: LogHubConsumerGroup, now: float) -> _Bounds:
    """One leave may have begun just before the deletion and one after it; the pods' grace is shorter."""
    deleted_at, leave_s = resource.metadata.deleted_at_unix_s(), drain_timeout_s(resource)
    since_s = 0.0 if deleted_at is None else now - deleted_at
    return _Bounds(
        leaving=since_s > 2 * leave_s,
        ending=since_s > 3 * leave_s,
        deleting=since_s > max(DELETE_BOUND_S, 4 * leave_s),
    )


def _names(workers: Iterable[WorkerObserved]) -> str:
    return _listed(worker.name for worker in workers)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(islice(names, 10))


def _stop_workers(
    resource: LogHubConsumerGroup, observed: ObservedState, over: _Bounds, now: float
) -> tuple[list[Action], str]:
    if observed.service.trouble is not None:
        return [RemoveWorkers()], "stopping the workers; the log service is unavailable"
    bound_s = drain_timeout_s(resource)
    staying = [
        worker
        for worker in observed.workers
        if not (worker.drain_requested and has_left(worker, observed.service))
        and not waited_enough(worker, bound_s=bound_s, now=now)
    ]
    names = [worker.name for worker in staying] + list(pending_replacements(resource, observed))
    if not names or over.leaving:
        return [RemoveWorkers()], "stopping the workers"
    highest_first = sorted(staying, key=lambda worker: -worker.ordinal)
    asks: list[Action] = [AskLeave(worker.name) for worker in highest_first if not worker.drain_requested]
    return asks, f"waiting for {_listed(names)} to leave the group"


def _end(resource: LogHubConsumerGroup, observed: ObservedState, over: _Bounds) -> tuple[list[Action], str]:
    """No worker set any more, and no worker that is waited for."""
    if not observed.held:
        return [], "the operator is done; another finalizer holds the object"
    release = [*_workers_left_behind(observed), ReleaseObject()]
    service = observed.service
    if not _is_to_go(resource, observed):
        return release, "the consumer group is kept"
    gone = service.group is None if service.trouble is None else service.trouble.reason in _GONE_WITH_IT
    if gone:
        return release, "the consumer group does not exist any more"
    in_the_way = refusal(resource) if service.trouble is None else service.trouble.message
    if in_the_way and over.deleting:
        message = f"consumer group {resource.group} was not deleted: {in_the_way}"
        return [_warning("ConsumerGroupOrphaned", message), *release], message
    if service.trouble is None:
        return [DeleteGroup(), *release], "deleting the consumer group"
    hint = "set deletionPolicy: Retain to delete this object without it"
    return _address(resource, observed), f"the consumer group cannot be deleted yet: {in_the_way} ({hint})"


def _workers_left_behind(observed: ObservedState) -> list[Action]:
    if not observed.workers:
        return []
    message = f"{_names(observed.workers)} did not terminate; check their nodes and force-delete the pods"
    return [_warning("WorkersOrphaned", message)]


def _warning(reason: str, message: str) -> EmitEvent:
    return EmitEvent(type="Warning", reason=reason, message=message)


def _address(resource: LogHubConsumerGroup, observed: ObservedState) -> list[Action]:
    """Somebody removed the project's name, and without it the group cannot be deleted."""
    missing = observed.site.needs_project_address and not observed.project_address
    return [EnsureProjectAddress(resource.spec.project)] if missing else []


def _fate(resource: LogHubConsumerGroup, observed: ObservedState) -> str:
    """What becomes of the group, and by whose word."""
    policy = resource.spec.deletion_policy
    heir = next(iter(remaining_claimants(observed.peers)), None)
    if heir is not None:
        return f"consumer group {resource.group} is kept: {named(heir, resource)} refers to it too"
    if _is_to_go(resource, observed):
        return (
            f"consumer group {resource.group} is deleted once the workers have terminated (deletionPolicy"
            f" {policy})"
        )
    if policy == "Delete":
        return f"consumer group {resource.group} is kept: this object did not create it"
    return f"consumer group {resource.group} and its checkpoints are kept (deletionPolicy {policy})"


def _is_to_go(resource: LogHubConsumerGroup, observed: ObservedState) -> bool:
    """Deleted only where the policy says so, where we made it or were told in so many words, and
    where no other object names it."""
    if remaining_claimants(observed.peers):
        return False
    told = resource.metadata.annotations.get(ANNOTATION_DELETE_ADOPTED) == "true"
    ours = observed.group_origin == "Created" or told
    return resource.spec.deletion_policy == "Delete" and ours
