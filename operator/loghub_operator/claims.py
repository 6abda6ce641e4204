"""Which objects name which consumer group, as far as they were seen.

What for: `Observed.peers` without a question more per round. What it must not know: which of several
has the group. Read next: `loghub_operator.ownership` (decides), `loghub_operator.handlers` (tells what
is seen).

Filled by one list before the watch begins, so that no object of an earlier date is missed, then by the
watch. An operator that watches some namespaces only knows nothing of objects in others.
"""

from collections.abc import Mapping
from typing import Any

from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.kube import CONSUMER_GROUP, Kube
from loghub_operator.model import Peer
from loghub_operator.settings import Settings

Name = tuple[str, str]  # namespace and name of an object
Group = tuple[str, str, str, str]  # endpoint, project, logstore, consumer group


class Claims:
    """By object and by group; used in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._groups: dict[Name, Group] = {}
        self._peers: dict[Group, dict[Name, Peer]] = {}

    async def prime(self, kube: Kube) -> None:
        """Every object that is there now."""
        for namespace in self._settings.namespaces or ("",):
            for found in await kube.select(CONSUMER_GROUP, namespace, {}):
                self.seen(found)

    def seen(self, document: Mapping[str, Any]) -> tuple[Name, ...]:
        """It is so now; the others that this may concern. One that cannot be read claims nothing."""
        about, spec = document["metadata"], document.get("spec") or {}
        name, peer = (about["namespace"], about["name"]), _peer(about)
        group = self._group(spec, about["name"])
        before = self._groups.get(name)
        if group is not None and before == group and self._peers[group][name].leaving == peer.leaving:
            return ()
        concerned = self.gone(*name)
        if group is not None:
            self._groups[name] = group
            self._peers.setdefault(group, {})[name] = peer
        return concerned

    def gone(self, namespace: str, name: str) -> tuple[Name, ...]:
        """It is there no more; the others of its group."""
        group = self._groups.pop((namespace, name), None)
        if group is None:
            return ()
        rest = self._peers[group]
        del rest[namespace, name]
        if not rest:
            del self._peers[group]
        return tuple(rest)

    def peers_of(self, resource: LogHubConsumerGroup) -> tuple[Peer, ...]:
        """The others that name its group, oldest first."""
        about, spec = resource.metadata, resource.spec
        group = (self._endpoint(spec.endpoint), spec.project, spec.logstore, resource.group)
        others = self._peers.get(group, {}).items()
        return tuple(sorted(peer for name, peer in others if name != (about.namespace, about.name)))

    def _group(self, spec: Mapping[str, Any], name: str) -> Group | None:
        try:
            group = spec.get("consumerGroup") or name
            return self._endpoint(spec.get("endpoint", EMBEDDED)), spec["project"], spec["logstore"], group
        except (KeyError, AttributeError):
            return None

    def _endpoint(self, given: str) -> str:
        """The same log service is one, however its URL is spelled."""
        return self._settings.endpoint(given).lower().rstrip("/")


def _peer(about: Mapping[str, Any]) -> Peer:
    return Peer(
        created=about.get("creationTimestamp") or "",
        namespace=about["namespace"],
        name=about["name"],
        leaving=bool(about.get("deletionTimestamp")),
    )
