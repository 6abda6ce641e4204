"""What one reconcile works towards: the settings of the group, and whether workers should run at all.

Five things stop all workers: another object that owns the group, a group that must not be adopted,
``spec.suspend``, a checkpoint reset, and a change of a subscription. `loghub_operator.plan.replicas` decides
how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import GroupReason, SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState, Peer, Stored, WorkerNames
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.consumption import changing, connected, stored_now, stored_of, without_partners
from loghub_operator.plan.ownership import adoption_refusal, foreign_consumers, named, owner_of

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


def _suspension(
    resource: LogHubConsumerGroup, observed: ObservedState, *, conflict: str, refusal: str | None, change: str
) -> Suspension | None:
    """None if workers should run; ``conflict`` says why another object prevents it, ``refusal`` why the group
    is not adopted, and ``change`` how the subscription changes; all as messages for users.
    """
    if conflict:
        return Suspension(reason=SuspendedReason(conflict_reason(resource)), message=conflict)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """``stored`` is what the log service should store by the spec, ``stored_now`` what it should store now.
    ``owner`` is another object that owns the group, and ``conflict`` says so to users, "" if there is none.
    ``refusal`` says why this object must not adopt the group; ``foreign`` are live consumers
    of it that are no workers of this object. ``suspension`` is the reason why no worker should run.
    """

    workers: WorkerSpec
    stored: Stored
    stored_now: Stored
    owner: Peer | None
    conflict: str
    refusal: str | None
    foreign: tuple[str, ...]
    suspension: Suspension | None

    @property
    def may_change_group(self) -> bool:
        return self.owner is None and self.refusal is None

    @property
    def revision(self) -> Revision:
        return self.workers.revision


def desired_state(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    workers: WorkerSpec,
    *,
    own: Peer,
    names: WorkerNames,
    runs_workers: bool,
) -> Desired:
    """Pure; the time is the time of the observation. ``workers`` is what the workers should run with, and
    ``names`` are their names. ``own`` is the object as the others see it; ``runs_workers``: workers of its
    group exist, or were requested.
    """
    wanted, existing = stored_of(resource), observed.stored
    # 1. Whether the group is this object's, and who else consumes it.
    owner = owner_of(own, observed.peers)
    conflict = "" if owner is None else _conflict(resource, own, owner)
    ours = names if observed.has_record or runs_workers else None
    live = foreign_consumers(observed.service, ours, observed.at_unix_s)
    foreign = without_partners(live, own, observed.peers)
    # A group that does not exist is created, and one that is recorded was adopted before.
    is_adopted = existing is not None and not observed.has_record
    refusal = adoption_refusal(resource.spec.adoption, resource.consumed, foreign) if is_adopted else None
    # 2. What follows for the workers, and for what the log service stores.
    consumers = connected(observed.service)
    change = changing(resource.consumed, wanted, existing, names.foreign(consumers))
    is_connected = runs_workers or bool(consumers)
    return Desired(
        workers=workers,
        stored=wanted,
        stored_now=stored_now(
            wanted, existing, observed.workers, workers.revision, is_connected=is_connected
        ),
        owner=owner,
        conflict=conflict,
        refusal=refusal,
        foreign=foreign,
        suspension=_suspension(resource, observed, conflict=conflict, refusal=refusal, change=change),
    )


def conflict_reason(resource: LogHubConsumerGroup) -> str:
    """The reason of a conflict with another object, which several conditions name."""
    of_group = resource.spec.subscription is None
    return GroupReason.OWNERSHIP_CONFLICT if of_group else GroupReason.SUBSCRIPTION_CONFLICT


def _conflict(resource: LogHubConsumerGroup, own: Peer, owner: Peer) -> str:
    """Why this object must not consume while ``owner`` does, as a message for users."""
    name = named(owner, resource.metadata.namespace)
    if own.subscription is None or owner.subscription is None:
        return f"{name} owns {resource.consumed}, because it proved access to it first"
    if owner.subscription == own.subscription:
        return (
            f"{name} shares {resource.consumed} and has the name of this object, so their workers would have"
            " the same names; give one of the objects another name"
        )
    return (
        f"{name} consumes {resource.consumed} as {owner.subscription}, and this object as"
        f" {own.subscription}; give both the same type, key and inOrder, or choose another consumerGroup"
    )
