"""Decide what to do about a consumer group whose object is being deleted.

What for: leave, stop, delete or keep the group, let the object go, in this order and never
hanging for ever. What it must not know: how any of it is carried out. Read next:
`loghub_operator.plan`.

Workers are told to leave and waited for, as long as one of them may take; where the log
service cannot be asked they are stopped at once, since they could not leave. Under Retain the
object is then let go. Under Delete the group's deletion is tried for `DELETE_BOUND_S` after
the deletion was asked for; then the object is let go, and an event says what is left behind.
"""

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model import (
    Action,
    AskLeave,
    DeleteGroup,
    EmitEvent,
    Observed,
    Plan,
    ReleaseObject,
    RemoveWorkers,
    ServiceTrouble,
)
from loghub_operator.names import ANNOTATION_DELETE_ADOPTED
from loghub_operator.sizing import has_left, waited_enough
from loghub_operator.telling import deleting_status
from loghub_operator.workers import leave_bound_s

DELETE_BOUND_S = 300.0
_GONE_WITH_IT = (ServiceTrouble.PROJECT_NOT_FOUND, ServiceTrouble.LOGSTORE_NOT_FOUND)


def plan_deletion(resource: LogHubConsumerGroup, observed: Observed, now: float) -> Plan:
    """The next step towards letting the object go."""
    if observed.worker_set is not None:
        actions, waiting_for = _stop_workers(resource, observed, now)
    elif observed.workers:
        actions, waiting_for = [], "waiting until the workers have ended"
    else:
        actions, waiting_for = _end(resource, observed, now)
    return Plan(tuple(actions), deleting_status(resource, observed, waiting_for, now))


def _stop_workers(resource: LogHubConsumerGroup, observed: Observed, now: float) -> tuple[list[Action], str]:
    if observed.service.trouble is not None:
        return [RemoveWorkers()], "stopping the workers; the log service cannot be asked"
    bound_s = leave_bound_s(resource)
    staying = [
        worker
        for worker in observed.workers
        if not (worker.seat_leave and has_left(worker, observed.service))
        and not waited_enough(worker, bound_s=bound_s, now=now)
    ]
    deleted_at = resource.metadata.deleted_at_unix_s()
    late = deleted_at is not None and now - deleted_at > 2 * bound_s
    if not staying or late:
        return [RemoveWorkers()], "stopping the workers"
    highest_first = sorted(staying, key=lambda worker: -worker.ordinal)
    asks: list[Action] = [AskLeave(worker.name) for worker in highest_first if not worker.seat_leave]
    return asks, f"waiting until {', '.join(worker.name for worker in staying[:10])} left the group"


def _end(resource: LogHubConsumerGroup, observed: Observed, now: float) -> tuple[list[Action], str]:
    if not _is_to_go(resource, observed):
        return [ReleaseObject()], "the group is kept"
    trouble = observed.service.trouble
    if trouble is None and observed.service.group is not None:
        return [DeleteGroup(), ReleaseObject()], "deleting the group"
    if trouble is None or trouble.reason in _GONE_WITH_IT:
        return [ReleaseObject()], "the group is gone"
    deleted_at = resource.metadata.deleted_at_unix_s() or now
    if now - deleted_at > DELETE_BOUND_S:
        message = f"consumer group {resource.group} is left behind: {trouble.message}"
        return [
            EmitEvent(type="Warning", reason="GroupLeftBehind", message=message),
            ReleaseObject(),
        ], message
    return [], f"the group cannot be deleted yet: {trouble.message}"


def _is_to_go(resource: LogHubConsumerGroup, observed: Observed) -> bool:
    """Deleted only where the policy says so, and where we made it or were told in so many words."""
    told = resource.metadata.annotations.get(ANNOTATION_DELETE_ADOPTED) == "true"
    ours = observed.group_origin == "Created" or told
    return resource.spec.deletion_policy == "Delete" and ours
