"""Everything that one reconcile decided, from which its events and its status are built.

Two of the decisions are worked out here. What a changed spec requires is one of: nothing, another number of
workers, a group update, or new pods. Workers restart only if a change requires it, and an event reports which
case applies. What two specs amount to is compared, not their fields. A worker reads its settings once, at
startup, so every changed setting of a worker causes a rolling restart. Two changes need no restart:
credentials, because a worker reads the mounted Secret again, and settings that only the log service needs to
know, such as the order of a group's shards.

How far a rollout is: a worker counts if its revision is the desired one and the StatefulSet has that revision
too, since while it still has another one, its controller may be about to replace the worker. The
StatefulSet's controller replaces the highest ordinal first and waits until it is ready, so a rollout waits
for the highest worker that is not both.
"""

from dataclasses import dataclass
from enum import StrEnum

from loghub_operator.api.conditions import ConditionUpdate
from loghub_operator.api.status import CheckpointResetStatus
from loghub_operator.model.observed import ObservedStatefulSet, Stored, WorkerNames, WorkerObserved
from loghub_operator.model.revision import Revision
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.drift import DriftBackoff
from loghub_operator.plan.replicas import ReplicaPlan
from loghub_operator.plan.scaling.autoscaler import ScalingDecision
from loghub_operator.plan.subject import Subject


class ChangeImpact(StrEnum):
    """From the cheapest to the most expensive.

    NONE: neither the workers nor the group change. SCALE: only the number of workers changes. RELOAD: the
    group is updated at the log service, and no worker restarts. ROLL: the workers restart one at a time, and
    each keeps its membership, so that no shard is reassigned if a restart takes less than the group's
    timeout.
    """

    NONE = "none"
    SCALE = "scale"
    RELOAD = "reload"
    ROLL = "roll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a spec amounts to for the workers and their group, as it runs or as it should run."""

    replicas: int
    stored: Stored | None
    revision: Revision


def change_impact(old: Running, new: Running) -> ChangeImpact:
    """The most expensive impact that is needed to get from ``old`` to ``new``."""
    if not old.revision.same_workers(new.revision):
        return ChangeImpact.ROLL
    if old.stored != new.stored:
        return ChangeImpact.RELOAD
    return ChangeImpact.NONE if old.replicas == new.replicas else ChangeImpact.SCALE


def impact_of(
    existing: ObservedStatefulSet | None, stored: Stored | None, desired: Desired, *, run: int
) -> ChangeImpact:
    """The impact of getting from what runs, with this ``stored`` at the log service, to ``run`` workers as
    ``desired``.
    """
    if existing is None:
        return ChangeImpact.NONE
    return change_impact(
        Running(replicas=existing.replicas, stored=stored, revision=existing.revision),
        Running(replicas=run, stored=desired.stored if stored else None, revision=desired.revision),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """``updated``: workers that run with the desired revision; ``current`` of them are ready too and should
    run. ``waits_for`` is the worker that comes next, "" if none does. ``rolling``: workers run, and one that
    should has another revision, or the StatefulSet has, or its controller has not observed the last change.

    Invariant: ``current`` <= ``updated``, and ``waits_for`` is "" exactly if all that should run are current.
    """

    updated: int
    current: int
    waits_for: str
    rolling: bool


def rollout_of(
    existing: ObservedStatefulSet | None,
    workers: tuple[WorkerObserved, ...],
    names: WorkerNames,
    desired: Revision,
    *,
    run: int,
) -> Rollout:
    """How far the rollout is, if ``run`` workers should run with the ``desired`` revision."""
    applied = existing is not None and existing.revision.same_workers(desired)
    updated = tuple(worker for worker in workers if applied and worker.revision.same_workers(desired))
    current = frozenset(worker.ordinal for worker in updated if worker.ready and worker.ordinal < run)
    missing = next((ordinal for ordinal in reversed(range(run)) if ordinal not in current), None)
    observed_by_controller = applied and existing is not None and existing.observed
    running = [worker for worker in workers if worker.ordinal < run]
    all_updated = all(worker in updated for worker in running)
    return Rollout(
        updated=len(updated),
        current=len(current),
        waits_for="" if missing is None else names.of(missing),
        rolling=bool(running) and not (observed_by_controller and all_updated),
    )


def message_of(name: str, workers: tuple[WorkerObserved, ...]) -> str:
    """What a worker or its pod reports of itself, after its name."""
    message = next((worker.message for worker in workers if worker.name == name), "")
    return f"{name}: {message}" if message else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """``group`` is condition GroupSynced, and ``reset`` how far a checkpoint reset is now. ``impact`` is what
    it takes to get from what runs to what should run.
    """

    subject: Subject
    desired: Desired
    scaling: ScalingDecision
    replicas: ReplicaPlan
    rollout: Rollout
    impact: ChangeImpact
    drift: DriftBackoff
    group: ConditionUpdate
    reset: CheckpointResetStatus | None
