"""What one reconcile works towards: the settings of the group, and whether workers should run at all.

Four things stop all workers: another object that owns the group, a group that must not be adopted,
``spec.suspend``, and a checkpoint reset. `loghub_operator.plan.replicas` decides how they stop.
"""

from dataclasses import dataclass

from loghub_operator.api.conditions import SuspendedReason
from loghub_operator.api.status import CheckpointResetPhase
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, GroupSettings, Peer, WorkerObserved
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.ownership import adoption_refusal, foreign_consumers, named, owner_of
from loghub_operator.plan.subject import Subject

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


def suspension_of(subject: Subject, owner: str, refusal: str | None) -> Suspension | None:
    """None if workers should run; ``owner`` names another object that owns the group, and ``refusal`` says
    why the group is not adopted.
    """
    resource, observed = subject.resource, subject.observed
    if owner:
        message = f"consumer group {resource.group} is owned by {owner}, which proved access first"
        return Suspension(reason=SuspendedReason.OWNERSHIP_CONFLICT, message=message)
    if refusal is not None:
        return Suspension(reason=SuspendedReason.ADOPTION_REFUSED, message=refusal)
    if resource.spec.suspend:
        return Suspension(reason=SuspendedReason.SUSPENDED, message="spec.suspend is true")
    is_available = isinstance(observed.service, Available)
    executed, replicas = subject.executed, observed.replicas
    message = _moved_checkpoints(resource, executed, replicas=replicas, is_available=is_available)
    return Suspension(reason=SuspendedReason.RESETTING_CHECKPOINTS, message=message) if message else None


def _moved_checkpoints(
    resource: LogHubConsumerGroup, executed: tuple[str, ...], *, replicas: int, is_available: bool
) -> str:
    """How the checkpoints are being moved, or "" if they are not. They are from the moment a reset is
    requested, but a reset does not start while the log service is unavailable. In a phase of another release
    they may have been moved in part, or the reset may be over, so workers stay as they are, stopped or not.
    """
    done, nonce = resource.status.checkpoint_reset, resource.spec.reset_nonce
    message = f"checkpoints are being reset (spec.resetCheckpoints, nonce {nonce})"
    if nonce is None or resource.is_new:
        return ""
    if done is None or done.nonce != nonce:
        if nonce in executed:
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
    """``group`` are the settings that the spec asks for, ``group_now`` the settings to set now. ``owner`` is
    another object that owns the group, and ``owner_name`` what a reader of this object may know of it, "" if
    there is none. ``refusal`` says why this object must not adopt the group; ``foreign`` are live consumers
    of it that are no workers of this object. ``suspension`` is the reason why no worker should run.
    """

    workers: WorkerSpec
    group: GroupSettings
    group_now: GroupSettings
    owner: Peer | None
    owner_name: str
    refusal: str | None
    foreign: tuple[str, ...]
    suspension: Suspension | None

    @property
    def may_change_group(self) -> bool:
        return self.owner is None and self.refusal is None

    @property
    def revision(self) -> Revision:
        return self.workers.revision


def desired_state(subject: Subject, workers: WorkerSpec) -> Desired:
    """Pure; no time is involved. ``workers`` is what the workers should run with."""
    resource, observed = subject.resource, subject.observed
    wanted = GroupSettings(timeout_s=resource.spec.timeout_seconds, order=resource.spec.in_order)
    now = _group_now(wanted, observed.group, observed.workers, workers.revision)
    owner = owner_of(subject.own, observed.peers)
    owner_name = "" if owner is None else named(owner, resource.metadata.namespace)
    ours = subject.names if subject.has_record or subject.runs_workers else None
    foreign = foreign_consumers(observed.service, ours, observed.at_unix_s)
    # A group that does not exist is created, and one that is recorded was adopted before.
    is_adopted = observed.group is not None and not subject.has_record
    refusal = adoption_refusal(resource.spec.adoption, resource.group, foreign) if is_adopted else None
    suspension = suspension_of(subject, owner_name, refusal)
    return Desired(
        workers=workers,
        group=wanted,
        group_now=now,
        owner=owner,
        owner_name=owner_name,
        refusal=refusal,
        foreign=foreign,
        suspension=suspension,
    )


def _group_now(
    wanted: GroupSettings,
    existing: GroupSettings | None,
    workers: tuple[WorkerObserved, ...],
    desired: Revision,
) -> GroupSettings:
    """A timeout is shortened only once every worker runs with it. A worker with the longer timeout would
    continue with shards that the log service has already reassigned, and its heartbeats would come too late
    for the shorter timeout.
    """
    if existing is None or wanted.timeout_s >= existing.timeout_s:
        return wanted
    if all(worker.revision.settings == desired.settings for worker in workers):
        return wanted
    return GroupSettings(timeout_s=existing.timeout_s, order=wanted.order)
