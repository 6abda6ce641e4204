"""Decides whether there is a reason why no worker of a group should run now.

Three things stop all workers: an older object that owns the group, ``spec.suspend``, and a checkpoint reset.
`loghub_operator.plan.scaling_steps` decides how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState, Peer
from loghub_operator.plan.ownership import named

_WORKERS_AWAY = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Why no worker should run: a reason, and a message for users."""

    reason: SuspendedReason
    message: str


def suspension_of(
    resource: LogHubConsumerGroup, observed: ObservedState, owner: Peer | None
) -> Suspension | None:
    """None if workers should run; ``owner`` is another object that owns the group."""
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
    """From the moment the reset is requested; it does not start while the log service is unavailable."""
    done = resource.status.checkpoint_reset
    if resource.spec.reset_checkpoints is None or resource.is_new:
        return False
    if done is None or done.nonce != resource.spec.reset_nonce:
        return isinstance(observed.service, Available)
    return done.phase in _WORKERS_AWAY
