"""Whether workers should run at all.

Five things stop all workers: another object that owns the group, a group that must not be adopted,
``spec.suspend``, a checkpoint reset, and a change of a subscription. `loghub_operator.plan.replicas` decides
how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import GroupReason, SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState

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
    resource: LogHubConsumerGroup, observed: ObservedState, *, conflict: str, refusal: str | None, change: str
) -> Suspension | None:
    """None if workers should run; ``conflict`` says why another object prevents it, ``refusal`` why the group
    is not adopted, and ``change`` how the subscription changes; all as messages for users.
    """
    if conflict:
        return Suspension(reason=SuspendedReason(_conflict_reason(resource)), message=conflict)
    if refusal is not None:
        return Suspension(reason=SuspendedReason.ADOPTION_REFUSED, message=refusal)
    if resource.spec.suspend:
        return Suspension(reason=SuspendedReason.SUSPENDED, message="spec.suspend is true")
    if change:
        return Suspension(reason=SuspendedReason.SUBSCRIPTION_CHANGES, message=change)
    is_available = isinstance(observed.service, Available)
    message = _moved_checkpoints(resource, replicas=observed.replicas, is_available=is_available)
    return Suspension(reason=SuspendedReason.RESETTING_CHECKPOINTS, message=message) if message else None


def _moved_checkpoints(resource: LogHubConsumerGroup, *, replicas: int, is_available: bool) -> str:
    """How the checkpoints are being moved, or "" if they are not. They are from the moment a reset is
    requested, but a reset does not start while the log service is unavailable. In a phase of another release
    they may have been moved in part, or the reset may be over, so workers stay as they are, stopped or not.
    """
    done, nonce = resource.status.checkpoint_reset, resource.spec.reset_nonce
    message = f"checkpoints are being reset (spec.resetCheckpoints, nonce {nonce})"
    if nonce is None or resource.is_new:
        return ""
    if done is None or done.nonce != nonce:
        if nonce in executed_nonces(resource.status):
            return ""
        return message if is_available else ""
    if done.phase in _KNOWN:
        return message if done.phase in _WORKERS_AWAY else ""
    unknown = (
        f"another release of the operator left the checkpoint reset with nonce {nonce} in phase {done.phase},"
        " which this release does not know; run that release again, change the nonce, or remove"
        " spec.resetCheckpoints"
    )
    return unknown if replicas == 0 else ""


def _conflict_reason(resource: LogHubConsumerGroup) -> str:
    """The reason of a conflict with another object."""
    of_group = resource.spec.subscription is None
    return GroupReason.OWNERSHIP_CONFLICT if of_group else GroupReason.SUBSCRIPTION_CONFLICT
