"""The other groups of this machine that refer to the same consumer group, as a cluster's index of objects
knows them. One that is stopped counts too: its workers go on with the checkpoints at the next `loghub up`.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup
from loghub_operator.local.embedded_service import service_meant
from loghub_operator.local.object_store import Record
from loghub_operator.local.paths import GroupFolder, Root
from loghub_operator.model.observed import Peer
from loghub_operator.plan.ownership import peer


def peers_of(resource: LogHubConsumerGroup, folder: GroupFolder) -> tuple[Peer, ...]:
    """First in rank first, as `loghub_operator.observe.group_index` has them; `folder` is its own."""
    service = Root(folder.folder.parents[1]).service
    group = _group(resource, service)
    others = (other for other in _beside(folder) if _group(other, service) == group)
    return tuple(sorted((peer(other) for other in others), key=lambda one: one.rank))


def _beside(folder: GroupFolder) -> Iterator[LogHubConsumerGroup]:
    """A record that cannot be read is reported where its own group is started or shown."""
    for path in folder.folder.parent.glob("*"):
        record = None if path == folder.folder else Record.load(GroupFolder(path))
        if record is not None:
            with suppress(InvalidResourceError):
                yield record.resource()


def _group(resource: LogHubConsumerGroup, service: Path) -> tuple[str, str, str, str]:
    spec = resource.spec
    return (service_meant(spec.endpoint, service), spec.project, spec.logstore, resource.group)
