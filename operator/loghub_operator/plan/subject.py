"""The group that a round is about, worked out once at its top.

What several decisions ask of the object and the observation depends on the two alone: what the round works
towards (`loghub_operator.plan.desired`), which names the workers have as consumers, what is stored of the
access to the group, how long a drain may take. A decision takes the values that it decides from, not the
whole.
"""

from dataclasses import dataclass, replace

from loghub_operator.api.adoption import endpoint_left_behind, is_recorded_elsewhere, stored_ownership
from loghub_operator.api.status import OwnershipStatus, executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.memory import FieldPath, Memory
from loghub_operator.model.observed import ObservedState, Peer, WorkerNames
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.model.subscription import subscription_of
from loghub_operator.plan.desired import Desired, desired_state
from loghub_operator.plan.ownership import evaluate_ownership, must_store_proof
from loghub_operator.resources.worker_config import AFTER_DRAIN_S, DRAIN_TIMEOUT_S, worker_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """``own`` is the object as the others see it, and ``names`` are the names of its workers. What is stored
    of its access to the group is ``ownership``, and ``proven`` is what to store after this observation;
    ``must_store_proof``: it may not act before that is stored. ``recorded_elsewhere``: what is recorded on it
    is about a group of another log service; ``left_behind`` is the endpoint at which it had a group before,
    None if there is none. A worker that was asked to drain is waited for at most ``drain_bound_s``.
    ``executed`` are the nonces of checkpoint resets that have changed checkpoints before.

    ``desired`` is what the round works towards. It is None exactly while the object is being deleted: a
    deletion applies nothing, so it does not depend on what would be applied. ``drift`` are the fields of the
    desired workers that another client has changed; there are none unless the StatefulSet has the revision
    of these workers, since any other difference is a change of ours.
    """

    resource: LogHubConsumerGroup
    observed: ObservedState
    own: Peer
    names: WorkerNames
    ownership: OwnershipStatus | None
    proven: OwnershipStatus
    must_store_proof: bool
    recorded_elsewhere: bool
    left_behind: str | None
    drain_bound_s: float
    executed: tuple[str, ...]
    desired: Desired | None
    drift: tuple[FieldPath, ...] = ()

    @property
    def workers(self) -> WorkerSpec | None:
        """What the workers should run with; None while the object is being deleted."""
        return None if self.desired is None else self.desired.workers


def subject_of(
    resource: LogHubConsumerGroup, observed: ObservedState, memory: Memory | None = None
) -> Subject:
    """Pure; the time is the time of the observation. ``memory`` is what the previous reconcile remembered,
    None in the first.
    """
    if memory is not None:
        observed = replace(observed, memory=memory)
    own, elsewhere, ownership = peer(resource), is_recorded_elsewhere(resource), stored_ownership(resource)
    names = WorkerNames(resource.consumer(0).removesuffix("0"), observed.replicas)
    desired = None
    if not own.leaving:
        workers = desired_workers(resource, observed)
        runs_workers = bool(observed.replicas or observed.workers) and not elsewhere
        desired = desired_state(resource, observed, workers, own=own, names=names, runs_workers=runs_workers)
    return Subject(
        resource=resource,
        observed=observed,
        own=own,
        names=names,
        ownership=ownership,
        proven=evaluate_ownership(resource, observed, ownership),
        must_store_proof=must_store_proof(own, observed.peers, observed.service),
        recorded_elsewhere=elsewhere,
        left_behind=endpoint_left_behind(resource),
        drain_bound_s=drain_bound_s(resource),
        executed=executed_nonces(resource.status),
        desired=desired,
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
