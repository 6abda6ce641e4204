"""The group that a round is about, with what several decisions ask of it, worked out once at the top.

Names of its own workers, how long a drain may take, and what is stored of the object's access to the group
depend on the object and the observation alone, so no decision works them out from the two again.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loghub_operator.api.adoption import is_recorded_elsewhere, stored_ownership
from loghub_operator.api.status import OwnershipStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState, Peer
from loghub_operator.resources.worker_config import AFTER_DRAIN_S, DRAIN_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """``own`` is the object as the others see it; ``ownership`` is what is stored of its access to the group.
    ``recorded_elsewhere``: what is recorded on it is about a group of another log service. A worker that was
    asked to drain is waited for at most ``drain_bound_s``.
    """

    resource: LogHubConsumerGroup
    observed: ObservedState
    own: Peer
    ownership: OwnershipStatus | None
    recorded_elsewhere: bool
    drain_bound_s: float

    @property
    def has_record(self) -> bool:
        """Whether the object has created or adopted the group."""
        record = self.observed.group_record
        return record is not None and record.is_about_ours

    @property
    def runs_workers(self) -> bool:
        """Whether workers of this group exist, or were requested."""
        return bool(self.observed.replicas or self.observed.workers) and not self.recorded_elsewhere

    def foreign(self, names: Iterable[str]) -> tuple[str, ...]:
        """The consumers whose names are no names of workers."""
        own = re.compile(re.escape(self.resource.metadata.name) + "-[0-9]+")
        return tuple(name for name in names if not own.fullmatch(name))

    def ordinals(self, names: Iterable[str]) -> Iterator[int]:
        """The ordinals of the consumers that have names of workers that should exist."""
        own = re.compile(re.escape(self.resource.consumer(0).removesuffix("0")) + "(0|[1-9][0-9]{0,8})")
        for name in names:
            found = own.fullmatch(name)
            if found and int(found[1]) < self.observed.replicas:
                yield int(found[1])


def subject_of(resource: LogHubConsumerGroup, observed: ObservedState) -> Subject:
    """Pure; no time is involved."""
    return Subject(
        resource=resource,
        observed=observed,
        own=peer(resource),
        ownership=stored_ownership(resource),
        recorded_elsewhere=is_recorded_elsewhere(resource),
        drain_bound_s=drain_bound_s(resource),
    )


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
    )
