"""Index of the LogHubConsumerGroup objects by the consumer group that they refer to.

The index provides `ObservedState.peers` without a further request in each reconcile;
`loghub_operator.plan.ownership` decides which of several objects owns the group. One list before the watch
begins fills the index, so that no earlier object is missed; after that the watch updates it through
`loghub_operator.controller.handlers`, and `loghub_operator.controller.watch_check` finds objects whose
deletion the watch missed. A recreated object is a different object, identified by its UID. An operator that
watches only some namespaces does not know the objects of other namespaces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from loghub.wire import names as hosts
from loghub_operator.api.adoption import SUBSCRIPTION, group_path
from loghub_operator.api.labels import FINALIZER
from loghub_operator.api.subscription import GroupSubscription
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.clients.kube import CONSUMER_GROUP, FORBIDDEN, Kube, KubeError
from loghub_operator.model.observed import Peer
from loghub_operator.model.subscription import SubscriptionKind, subscription_of
from loghub_operator.settings import Settings

log = structlog.get_logger()

Name = tuple[str, str]  # namespace and name of an object
Incarnation = tuple[str, str, str]  # namespace, name and UID of an object
# Endpoint, project, logstore, consumer group; of a subscription, `SUBSCRIPTION` before its name.
Group = tuple[str, ...]
_PROJECTS = (
    ("project",),
    ("pipeline", "sink", "logstore", "project"),
    ("pipeline", "onFailure", "deadLetter", "logstore", "project"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """The consumer group that an object refers to."""

    uid: str
    group: Group
    peer: Peer
    projects: frozenset[str]  # also the projects that the object writes to
    former: str = field(default="", compare=False)  # UID of the previous object of that name

    def is_newer_than(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the event is a late event of a previous object of that name."""
        uid, created = metadata.get("uid", ""), metadata.get("creationTimestamp") or ""
        return uid != self.uid and (uid == self.former or created < self.peer.created)


def _is_released(metadata: Mapping[str, Any]) -> bool:
    """Whether the operator is done with the object, and the finalizer of another controller holds it."""
    return bool(metadata.get("deletionTimestamp")) and FINALIZER not in (metadata.get("finalizers") or ())


class GroupIndex:
    """Indexes the objects by name and by group; used in a single event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._claims: dict[Name, _Claim] = {}
        self._peers: dict[Group, dict[Name, Peer]] = {}

    async def initial_list(self, kube: Kube) -> dict[str, KubeError]:
        """Lists every existing object; returns the error for each namespace whose objects may not be listed.

        Raises `KubeError`, also if no namespace may be listed.
        """
        forbidden: dict[str, KubeError] = {}
        namespaces = self._settings.namespaces or ("",)
        for namespace in namespaces:
            try:
                listed = await kube.list(CONSUMER_GROUP, namespace, {})
            except KubeError as error:
                if error.status != FORBIDDEN or len(forbidden) + 1 == len(namespaces):
                    raise
                forbidden[namespace] = error
                continue
            for document in listed:
                self.update(document)
        return forbidden

    def update(self, document: Mapping[str, Any]) -> tuple[Name, ...]:
        """Records the object's current content; returns the other objects that this may affect. An object
        that cannot be parsed claims no group."""
        metadata = document["metadata"]
        name = metadata["namespace"], metadata["name"]
        before = self._claims.get(name)
        if before is not None and before.is_newer_than(metadata):
            return ()
        claim = self._claim_or_none(document, before)
        if claim == before:
            return ()
        affected = self._remove_claim(name)
        if claim is not None:
            self._claims[name] = claim
            self._peers.setdefault(claim.group, {})[name] = claim.peer
        return affected

    def remove(self, namespace: str, name: str, uid: str) -> tuple[Name, ...]:
        """Removes a deleted object, unless it has been recreated; returns the other objects of its group."""
        claim = self._claims.get((namespace, name))
        return () if claim is None or claim.uid != uid else self._remove_claim((namespace, name))

    def known(self) -> frozenset[Incarnation]:
        """Every object that refers to a group."""
        return frozenset((*name, claim.uid) for name, claim in self._claims.items())

    def names(self, namespace: str) -> frozenset[str]:
        """The objects of a namespace that refer to a group and are not being deleted."""
        return frozenset(
            name
            for (space, name), claim in self._claims.items()
            if space == namespace and not claim.peer.leaving
        )

    def projects(self) -> frozenset[str]:
        """Every project that an object names."""
        return frozenset(project for claim in self._claims.values() for project in claim.projects)

    def uids_at(self, endpoint: str) -> tuple[str, ...]:
        """The UIDs of the objects that use this log service."""
        log_service = hosts.log_service(endpoint)
        return tuple(claim.uid for claim in self._claims.values() if claim.group[0] == log_service)

    def _remove_claim(self, name: Name) -> tuple[Name, ...]:
        claim = self._claims.pop(name, None)
        if claim is None:
            return ()
        rest = self._peers[claim.group]
        del rest[name]
        if not rest:
            del self._peers[claim.group]
        return tuple(rest)

    def peers_of(self, resource: LogHubConsumerGroup) -> tuple[Peer, ...]:
        """The other objects that refer to its group, first in rank first."""
        metadata = resource.metadata
        group = (self._endpoint(resource.spec.endpoint), *group_path(resource).split("/"))
        others = self._peers.get(group, {}).items()
        own = metadata.namespace, metadata.name
        return tuple(sorted((peer for name, peer in others if name != own), key=lambda one: one.rank))

    def _claim_or_none(self, document: Mapping[str, Any], before: _Claim | None) -> _Claim | None:
        """A fault that one object brings out is reported when it is reconciled; the others are listed."""
        try:
            return self._claim(document, before)
        except Exception:
            log.exception("object not indexed", name=document["metadata"]["name"])
            return None

    def _claim(self, document: Mapping[str, Any], before: _Claim | None) -> _Claim | None:
        metadata = document["metadata"]
        group, uid = self._group(document.get("spec") or {}, metadata["name"]), metadata.get("uid", "")
        if group is None or _is_released(metadata):
            return None
        peer = self._peer(document, group)
        former = "" if before is None else before.former if before.uid == uid else before.uid
        projects = frozenset(_projects(document["spec"]))
        return _Claim(uid=uid, group=group, peer=peer, projects=projects, former=former)

    def _group(self, spec: Mapping[str, Any], name: str) -> Group | None:
        try:
            group = spec.get("consumerGroup") or name
            kind = () if spec.get("subscription") is None else (SUBSCRIPTION,)
            endpoint = self._endpoint(spec.get("endpoint", EMBEDDED))
            parts = (endpoint, spec["project"], spec["logstore"], *kind, group)
        except (KeyError, AttributeError, TypeError, ValueError):
            return None
        return parts if all(isinstance(part, str) for part in parts) else None

    def _endpoint(self, endpoint: str) -> str:
        """Normalizes the endpoint, so that different spellings of a URL identify the same log service."""
        return hosts.log_service(self._settings.endpoint(endpoint))

    def _peer(self, document: Mapping[str, Any], group: Group) -> Peer:
        metadata = document["metadata"]
        return Peer(
            created=metadata.get("creationTimestamp") or "",
            namespace=metadata["namespace"],
            name=metadata["name"],
            access_since=self._access_since(document, group),
            leaving=bool(metadata.get("deletionTimestamp")),
            subscription=_subscription(document["spec"]),
        )

    def _access_since(self, document: Mapping[str, Any], group: Group) -> str:
        """Read from the stored status; a proof about another object or group counts as none."""
        stored = (document.get("status") or {}).get("ownership") or {}
        about = (stored.get("uid"), stored.get("group"), self._endpoint(stored.get("endpoint", "")))
        endpoint, *path = group
        is_about_it = about == (document["metadata"].get("uid", ""), "/".join(path), endpoint)
        return (stored.get("accessSince") or "") if is_about_it else ""


def _subscription(spec: Mapping[str, Any]) -> SubscriptionKind | None:
    """Raises ValueError for one that this release cannot parse: the object then claims nothing."""
    given = spec.get("subscription")
    if given is None:
        return None
    return subscription_of(GroupSubscription.model_validate(given, strict=False))


def _projects(spec: Mapping[str, Any]) -> Iterator[str]:
    """The projects that the spec names; it need not be one that this release can parse."""
    for path in _PROJECTS:
        value: Any = spec
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            yield value
