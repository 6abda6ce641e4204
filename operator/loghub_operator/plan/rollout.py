"""Determines how far the workers are with the settings of the present generation.

A worker counts if its revision is the desired one and the StatefulSet has that revision too: while it still
has another one, its controller may be about to replace the worker. The StatefulSet's controller replaces the
highest ordinal first and waits until it is ready, so the highest worker that is not both is the one that a
rollout waits for.
"""

from dataclasses import dataclass

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState, WorkerObserved
from loghub_operator.plan.desired import desired_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """``updated``: workers that run with the desired revision; ``current`` of those that should run also are
    ready. ``waits_for`` is the worker that comes next, "" if none does. ``rolling``: workers run, and one
    that should has another revision, or the StatefulSet has, or its controller has not observed the last
    change.
    """

    updated: int
    current: int
    waits_for: str
    rolling: bool


def rollout_of(resource: LogHubConsumerGroup, observed: ObservedState, *, run: int) -> Rollout:
    """How far it is, if ``run`` workers should run."""
    desired, existing = desired_spec(observed).revision, observed.worker_set
    applied = existing is not None and existing.revision.same_workers(desired)
    updated = tuple(one for one in observed.workers if applied and one.revision.same_workers(desired))
    current = frozenset(one.ordinal for one in updated if one.ready and one.ordinal < run)
    missing = next((ordinal for ordinal in reversed(range(run)) if ordinal not in current), None)
    observed_by_controller = applied and existing is not None and existing.observed
    running = [one for one in observed.workers if one.ordinal < run]
    return Rollout(
        updated=len(updated),
        current=len(current),
        waits_for="" if missing is None else resource.consumer(missing),
        rolling=bool(running) and not (observed_by_controller and all(one in updated for one in running)),
    )


def message_of(name: str, workers: tuple[WorkerObserved, ...]) -> str:
    """What a worker or its pod reports of itself, after its name."""
    message = next((one.message for one in workers if one.name == name), "")
    return f"{name}: {message}" if message else name
