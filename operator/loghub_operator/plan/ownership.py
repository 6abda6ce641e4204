"""Which of several objects that name one consumer group may run its workers.

What for: two objects on one group would each give it their settings and their workers. What it
must not know: how the others are found. Read next: `loghub_operator.observe.group_index`.

The oldest has it: by creation, then namespace, then name. The others hold only their object until
it is gone. Two are of one group if endpoint, project, logstore and group are the same.
"""

from collections.abc import Iterable

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Peer


def owner_of(resource: LogHubConsumerGroup, peers: Iterable[Peer]) -> Peer | None:
    """The one that has the group; None: this object itself."""
    oldest = min(peers, default=None)
    return oldest if oldest is not None and oldest < peer(resource) else None


def named(owner: Peer, resource: LogHubConsumerGroup) -> str:
    """As a reader of this object may know it: what stands in another namespace is not theirs to see."""
    if owner.namespace == resource.metadata.namespace:
        return f"LogHubConsumerGroup {owner.name}"
    return "a LogHubConsumerGroup of another namespace"


def peer(resource: LogHubConsumerGroup) -> Peer:
    """This object as the others see it."""
    about = resource.metadata
    return Peer(
        created=about.creation_timestamp or "",
        namespace=about.namespace,
        name=about.name,
        leaving=about.deletion_timestamp is not None,
    )


def remaining_claimants(peers: Iterable[Peer]) -> tuple[Peer, ...]:
    """Those that will use the group when this object is gone."""
    return tuple(sorted(one for one in peers if not one.leaving))
