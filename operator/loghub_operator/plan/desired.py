"""What one reconcile works towards, worked out once from the object and the observation.

Decides whether there is a reason why no worker of a group should run now.

Four things stop all workers: another object that owns the group, a group that must not be adopted,
``spec.suspend``, and a checkpoint reset.
`loghub_operator.plan.replicas` decides how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, GroupSettings, ObservedState, Peer
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.ownership import adoption_refusal, foreign_consumers, named, owner_of
from loghub_operator.plan.subject import Subject
from loghub_operator.resources.worker_config import worker_config

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


def suspension_of(subject: Subject, owner: Peer | None, refusal: str | None) -> Suspension | None:
    """None if workers should run; ``owner`` is another object that owns the group, and ``refusal`` says why
    the group is not adopted.
    """
    resource = subject.resource
    if owner is not None:
        message = (
            f"consumer group {resource.group} is owned by {named(owner, resource)}, which proved access first"
        )
        return Suspension(reason=SuspendedReason.OWNERSHIP_CONFLICT, message=message)
    if refusal is not None:
        return Suspension(reason=SuspendedReason.ADOPTION_REFUSED, message=refusal)
    if resource.spec.suspend:
        return Suspension(reason=SuspendedReason.SUSPENDED, message="spec.suspend is true")
    message = _moves_checkpoints(subject)
    return Suspension(reason=SuspendedReason.RESETTING_CHECKPOINTS, message=message) if message else None


def _moves_checkpoints(subject: Subject) -> str:
    """How, or "" if they are not being moved: from the moment the reset is requested; it does not start while
    the log service is unavailable. In a phase of another release the checkpoints may have been moved in part,
    or the reset may be over, so workers stay as they are, stopped or not.
    """
    resource, observed = subject.resource, subject.observed
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """``group`` are the settings that the spec asks for, ``group_now`` those to set now. ``owner`` is another
    object that owns the group. ``refusal`` says why this object must not adopt the group; ``foreign`` are
    live consumers of it that are no workers of this object. ``suspension`` is the reason why no worker should
    run.
    """

    workers: WorkerSpec
    group: GroupSettings
    group_now: GroupSettings
    owner: Peer | None
    refusal: str | None
    foreign: tuple[str, ...]
    suspension: Suspension | None

    @property
    def may_change_group(self) -> bool:
        return self.owner is None and self.refusal is None

    @property
    def revision(self) -> Revision:
        return self.workers.revision


def desired_state(subject: Subject) -> Desired:
    """Pure; no time is involved."""
    resource, observed = subject.resource, subject.observed
    workers = desired_workers(resource, observed)
    group = GroupSettings(timeout_s=resource.spec.timeout_seconds, order=resource.spec.in_order)
    owner = owner_of(subject.own, observed.peers)
    foreign = foreign_consumers(subject)
    refusal = adoption_refusal(subject, foreign)
    return Desired(
        workers=workers,
        group=group,
        group_now=_group_now(group, observed, workers.revision),
        owner=owner,
        refusal=refusal,
        foreign=foreign,
        suspension=suspension_of(subject, owner, refusal),
    )


def desired_workers(resource: LogHubConsumerGroup, observed: ObservedState) -> WorkerSpec:
    """What the workers should run with, in pods or on this machine. A deletion applies nothing, so it never
    asks.
    """
    config = worker_config(resource, observed.placement, last_initial_shard=observed.last_initial_shard)
    return observed.environment.worker_spec(resource, config)


def _group_now(group: GroupSettings, observed: ObservedState, desired: Revision) -> GroupSettings:
    """A timeout is shortened only once every worker runs with it. A worker with the longer timeout would
    continue with shards that the log service has already reassigned, and its heartbeats would come too late
    for the shorter timeout.
    """
    existing = observed.service.group if isinstance(observed.service, Available) else None
    if existing is None or group.timeout_s >= existing.timeout_s:
        return group
    if all(worker.revision.settings == desired.settings for worker in observed.workers):
        return group
    return GroupSettings(timeout_s=existing.timeout_s, order=group.order)
