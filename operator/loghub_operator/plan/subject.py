"""The group that a round is about, worked out once at its top.

What several decisions ask of the object and the observation depends on the two alone: which consumers have
names of workers, what is stored of the access to the group, how long a drain may take, what workers should
run with. A decision takes the values of it that it decides from, not the whole.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from loghub_operator.api.adoption import is_recorded_elsewhere, stored_ownership
from loghub_operator.api.status import OwnershipStatus, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.memory import FieldPath, Memory
from loghub_operator.model.observed import ObservedState, Peer
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.model.subscription import subscription_of
from loghub_operator.resources.worker_config import AFTER_DRAIN_S, DRAIN_TIMEOUT_S, worker_config


@dataclass(frozen=True, slots=True)
class WorkerNames:
    """The names that the workers of one object have as consumers; ``replicas`` of them should exist."""

    prefix: str
    replicas: int

    def of(self, ordinal: int) -> str:
        return f"{self.prefix}{ordinal}"

    def foreign(self, consumers: Iterable[str]) -> tuple[str, ...]:
        """The consumers whose names are no names of workers."""
        own = re.compile(re.escape(self.prefix) + "[0-9]+")
        return tuple(name for name in consumers if not own.fullmatch(name))

    def ordinals(self, consumers: Iterable[str]) -> tuple[int, ...]:
        """The ordinals of the consumers that have names of workers that should exist, in order."""
        own = re.compile(re.escape(self.prefix) + "(0|[1-9][0-9]{0,8})")
        matches = (own.fullmatch(name) for name in consumers)
        ordinals = (int(match[1]) for match in matches if match is not None)
        return tuple(sorted(ordinal for ordinal in ordinals if ordinal < self.replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """``own`` is the object as the others see it; ``ownership`` is what is stored of its access to the group.
    ``recorded_elsewhere``: what is recorded on it is about a group of another log service. A worker that was
    asked to drain is waited for at most ``drain_bound_s``. ``executed`` are the nonces of checkpoint resets
    that have changed checkpoints before.

    Workers should run with ``workers``. It is None exactly while the object is being deleted: a deletion
    applies nothing, so it does not depend on what would be applied. ``drift`` are the fields of it that
    another client has changed; there are none unless the StatefulSet has the revision of ``workers``, since
    any other difference is a change of ours.
    """

    resource: LogHubConsumerGroup
    observed: ObservedState
    own: Peer
    names: WorkerNames
    ownership: OwnershipStatus | None
    recorded_elsewhere: bool
    drain_bound_s: float
    executed: tuple[str, ...]
    workers: WorkerSpec | None
    drift: tuple[FieldPath, ...] = ()

    @property
    def has_record(self) -> bool:
        """Whether the object has created or adopted the group."""
        record = self.observed.group_record
        return record is not None and record.is_about_ours

    @property
    def runs_workers(self) -> bool:
        """Whether workers of this group exist, or were requested."""
        return bool(self.observed.replicas or self.observed.workers) and not self.recorded_elsewhere


def subject_of(
    resource: LogHubConsumerGroup, observed: ObservedState, memory: Memory | None = None
) -> Subject:
    """Pure; no time is involved. ``memory`` is what the previous reconcile remembered, None in the first."""
    if memory is not None:
        observed = replace(observed, memory=memory)
    own, bound_s = peer(resource), drain_bound_s(resource)
    names = WorkerNames(resource.consumer(0).removesuffix("0"), observed.replicas)
    ownership, elsewhere = stored_ownership(resource), is_recorded_elsewhere(resource)
    executed = executed_nonces(resource.status)
    workers = None if own.leaving else desired_workers(resource, observed)
    return Subject(
        resource=resource,
        observed=observed,
        own=own,
        names=names,
        ownership=ownership,
        recorded_elsewhere=elsewhere,
        drain_bound_s=bound_s,
        executed=executed,
        workers=workers,
    )


def desired_workers(resource: LogHubConsumerGroup, observed: ObservedState) -> WorkerSpec:
    """What the workers should run with, in pods or on this machine."""
    config = worker_config(resource, observed.placement, last_initial_shard=observed.last_initial_shard)
    return observed.environment.worker_spec(resource, config)


def drain_bound_s(resource: LogHubConsumerGroup) -> float:
    """How long the operator waits for a worker that was asked to drain.

    That is its drain, then the group's timeout (after which its shards are free in any case), then some time
    for the calls.
    """
    return DRAIN_TIMEOUT_S + resource.spec.timeout_seconds + AFTER_DRAIN_S


def peer(resource: LogHubConsumerGroup) -> Peer:
    """This object as the others see it."""
    metadata, stored = resource.metadata, stored_ownership(resource)
    return Peer(
        created=metadata.creation_timestamp or "",
        namespace=metadata.namespace,
        name=metadata.name,
        access_since=(stored.access_since if stored else None) or "",
        leaving=metadata.deletion_timestamp is not None,
        subscription=subscription_of(resource.spec.subscription),
    )
