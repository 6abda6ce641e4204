"""Is there a reason why no worker of a group should run now?

What for: the one question that stops all workers: another object's group, suspend, a reposition.
What it must not know: how they are stopped. Read next: `loghub_operator.plan.replicas`.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.ownership import named, owner_of

_WORKERS_AWAY = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Why, in a word and for a person."""

    reason: SuspendedReason
    message: str


def suspension_of(resource: LogHubConsumerGroup, observed: ObservedState) -> Suspension | None:
    """None: workers should run."""
    owner = owner_of(resource, observed.peers)
    if owner is not None:
        message = f"consumer group {resource.group} is owned by {named(owner, resource)}, which is older"
        return Suspension(reason=SuspendedReason.OWNERSHIP_CONFLICT, message=message)
    if resource.spec.suspend:
        return Suspension(reason=SuspendedReason.SUSPENDED, message="spec.suspend is true")
    if _moves_checkpoints(resource, observed):
        message = f"checkpoints are being reset (spec.resetCheckpoints, nonce {resource.spec.reset_nonce})"
        return Suspension(reason=SuspendedReason.RESETTING_CHECKPOINTS, message=message)
    return None


def _moves_checkpoints(resource: LogHubConsumerGroup, observed: ObservedState) -> bool:
    """From the moment it is ordered; not begun while the log service cannot be asked."""
    done = resource.status.checkpoint_reset
    if resource.spec.reset_checkpoints is None or resource.is_new:
        return False
    if done is None or done.nonce != resource.spec.reset_nonce:
        return observed.service.trouble is None
    return done.phase in _WORKERS_AWAY
