"""Decides whether there is a reason why no worker of a group should run now.

Four things stop all workers: another object that owns the group, a group that must not be adopted,
``spec.suspend``, and a checkpoint reset.
`loghub_operator.plan.scaling_steps` decides how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState, Peer
from loghub_operator.plan.ownership import named

_WORKERS_AWAY = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)
_KNOWN = frozenset(CheckpointResetPhase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Why no worker should run: a reason, and a message for users."""

    reason: SuspendedReason
    message: str

    @property
    def by_spec(self) -> bool:
        """Whether the spec requests it, so that a group without workers is as its spec says."""
        return self.reason is SuspendedReason.SUSPENDED


def suspension_of(
    resource: LogHubConsumerGroup, observed: ObservedState, owner: Peer | None, refusal: str | None
) -> Suspension | None:
    """None if workers should run; ``owner`` is another object that owns the group, and ``refusal`` says why
    the group is not adopted.
    """
    if owner is not None:
        message = (
            f"consumer group {resource.group} is owned by {named(owner, resource)}, which proved access first"
        )
        return Suspension(reason=SuspendedReason.OWNERSHIP_CONFLICT, message=message)
    if refusal is not None:
        return Suspension(reason=SuspendedReason.ADOPTION_REFUSED, message=refusal)
    if resource.spec.suspend:
        return Suspension(reason=SuspendedReason.SUSPENDED, message="spec.suspend is true")
    message = _moves_checkpoints(resource, observed)
    return Suspension(reason=SuspendedReason.RESETTING_CHECKPOINTS, message=message) if message else None


def _moves_checkpoints(resource: LogHubConsumerGroup, observed: ObservedState) -> str:
    """How, or "" if they are not being moved: from the moment the reset is requested; it does not start while
    the log service is unavailable. In a phase of another release the checkpoints may have been moved in part,
    or the reset may be over, so workers stay as they are, stopped or not.
    """
    done, nonce = resource.status.checkpoint_reset, resource.spec.reset_nonce
    message = f"checkpoints are being reset (spec.resetCheckpoints, nonce {nonce})"
    if nonce is None or resource.is_new:
        return ""
    if done is None or done.nonce != nonce:
        if nonce in executed_nonces(resource.status):
            return ""
        return message if isinstance(observed.service, Available) else ""
    if done.phase in _KNOWN:
        return message if done.phase in _WORKERS_AWAY else ""
    unknown = (
        f"another release of the operator left the checkpoint reset with nonce {nonce} in phase {done.phase},"
        " which this release does not know; run that release again, change the nonce, or remove"
        " spec.resetCheckpoints"
    )
    return unknown if observed.replicas == 0 else ""
