"""A group of 16 shards, of which so many workers exist or are left, as an observation."""

import dataclasses

from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    ObservedState,
    ObservedStatefulSet,
    ShardObserved,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.plan.subject import desired_workers
from tests.loghub_operator.support.golden import EPOCH, FOLDER, SameWorkers, steps


def observed(
    *, pods: int = 0, replicas: int | None = None, lag: int = 1000, left: bool = False
) -> ObservedState:
    """16 shards with lag; ``replicas`` of the StatefulSet, None: it is gone."""
    step = next(
        one for one in steps(FOLDER / "first-start.yaml") if isinstance(one.observed.service, Available)
    )
    spec = desired_workers(step.resource, step.observed)
    workers = tuple(
        WorkerObserved(
            name=f"access-{ordinal}",
            ordinal=ordinal,
            phase=WorkerPhase.LEFT if left else WorkerPhase.RUNNING,
            ready=not left,
            revision=spec.revision,
            drain_requested=left,
            drain_requested_at_unix_s=EPOCH if left else None,
        )
        for ordinal in range(pods)
    )
    shards = tuple(
        ShardObserved(
            shard=number,
            state="already_alloc" if pods and not left else "not_alloc",
            holder=f"access-{number % pods}" if pods and not left else "",
            lag_groups=lag,
            checkpoint="MA==",
        )
        for number in range(16)
    )
    consumers = () if left else tuple(worker.name for worker in workers)
    group = GroupSettings(timeout_s=30, order=False)
    return dataclasses.replace(
        step.observed,
        at_unix_s=EPOCH,
        environment=SameWorkers(spec),
        service=Available(group=group, shards=shards, consumers=consumers),
        worker_set=None
        if replicas is None
        else ObservedStatefulSet(replicas=replicas, revision=spec.revision),
        workers=workers,
        memory=NO_MEMORY,
    )
