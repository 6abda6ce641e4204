"""Detects drift: fields of our objects that no longer have the values that we applied.

The result is `loghub_operator.plan.subject.Subject.drift`; `loghub_operator.resources.diff` makes the
comparison. The StatefulSet is compared in every round, as it was observed. Its dependencies are read only to
be compared, and less often, to spare the API server. A field that the API server or an admission webhook
changes is recorded when we write it: such a field is not drift, otherwise we would write it forever. An
annotation of the object has a hash of these fields, so that a restarted operator recognizes them.
"""

import asyncio
from collections import OrderedDict
from typing import TypeVar

from loghub.clock import Clock
from loghub_operator.api.labels import ANNOTATION_REVISION, MANAGER
from loghub_operator.clients.kube import KINDS, STATEFUL_SET, Kube
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import ObservedStatefulSet
from loghub_operator.model.revision import Document, Revision, WorkerSpec
from loghub_operator.resources.diff import (
    changed_fields,
    differences,
    fingerprint,
    left_to_others,
    object_name,
    replicas_taken,
)

# 500 groups have 2,500 objects and 500 StatefulSets; what is evicted is only compared again.
MAX_REMEMBERED = 20_000
# Of a revision, as parts of the path to its annotation.
_REVISIONS = ((), ("spec", "template"))
Name = tuple[str, str, str]
K = TypeVar("K")
V = TypeVar("V")


class DriftDetector:
    """Records for each object the fields that our last write left different, and for each group when its
    dependencies were last compared."""

    def __init__(self, *, kube: Kube, clock: Clock, every_s: float) -> None:
        self._kube = kube
        self._clock = clock
        self._every_s = every_s
        self._accepted: OrderedDict[Name, frozenset[FieldPath]] = OrderedDict()
        self._compared_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def wrote(self, document: Document, answer: Document) -> None:
        """Records that ``document`` was applied and ``answer`` is the result. The dependencies of a
        StatefulSet are written just before it, so they need no comparison yet."""
        self._accepted[_name(document)] = frozenset(changed_fields(document, answer))
        _bounded(self._accepted)
        if document["kind"] == STATEFUL_SET.kind:
            self._note_comparison(document)

    async def drift(
        self, desired: WorkerSpec | None, worker_set: ObservedStatefulSet | None
    ) -> tuple[FieldPath, ...]:
        """Returns the drifted fields; none unless the StatefulSet has the ``desired`` revision, since any
        other difference is a change of ours. Raises `KubeError`.
        """
        if desired is None or worker_set is None or worker_set.revision != desired.revision:
            return ()
        wanted, existing = desired.stateful_set, worker_set.document
        fields = list(self._new(wanted, existing))
        if replicas_taken(existing, MANAGER):
            fields.append(FieldPath(object=object_name(wanted), path=FieldPath.REPLICAS))
        # NB: this is why the comparison is a step of its own and no part of `plan`: what is read depends on
        # what differs. With a watch on the dependencies, observing could read all, and `plan` compare.
        if self._is_due(wanted) or fields:  # a correction writes all objects, so it reports all drift
            fields += await self._of_dependencies(desired.dependencies)
        return tuple(fields)

    async def _of_dependencies(self, dependencies: tuple[Document, ...]) -> list[FieldPath]:
        kinds = (KINDS[wanted["kind"]] for wanted in dependencies)
        names = ((wanted["metadata"]["namespace"], wanted["metadata"]["name"]) for wanted in dependencies)
        reads = (self._kube.get(kind, *name) for kind, name in zip(kinds, names, strict=True))
        all_existing = await asyncio.gather(*reads)
        pairs = zip(dependencies, all_existing, strict=True)
        return [field for wanted, existing in pairs for field in self._new(wanted, existing)]

    def _new(self, wanted: Document, existing: Document | None) -> tuple[FieldPath, ...]:
        differing = {
            field: value
            for field, value in differences(wanted, existing).items()
            if existing is None or not _same(field.path, wanted, existing)
        }
        name = _name(wanted)
        if name not in self._accepted and fingerprint(differing) == left_to_others(existing):
            self._accepted[name] = frozenset(differing)
            _bounded(self._accepted)
        return tuple(field for field in differing if field not in self._accepted.get(name, frozenset()))

    def _is_due(self, wanted: Document) -> bool:
        last_s = self._compared_s.get(_group(wanted), float("-inf"))
        if self._clock.monotonic_s() - last_s < self._every_s:
            return False
        self._note_comparison(wanted)
        return True

    def _note_comparison(self, worker_set: Document) -> None:
        self._compared_s[_group(worker_set)] = self._clock.monotonic_s()
        _bounded(self._compared_s)


def _same(path: str, wanted: Document, existing: Document) -> bool:
    """Whether the field is a revision that is equal as such: its text may have an earlier generation, or what
    another release has added."""
    for parents in _REVISIONS:
        if path == ".".join((*parents, "metadata.annotations", ANNOTATION_REVISION)):
            return _revision(wanted, parents) == _revision(existing, parents)
    return False


def _revision(document: Document, parents: tuple[str, ...]) -> Revision:
    for part in (*parents, "metadata", "annotations"):
        document = document.get(part) or {}
    return Revision.parse(document.get(ANNOTATION_REVISION, ""))


def _name(document: Document) -> Name:
    metadata = document["metadata"]
    return document["kind"], metadata["namespace"], metadata["name"]


def _group(worker_set: Document) -> tuple[str, str]:
    metadata = worker_set["metadata"]
    return metadata["namespace"], metadata["name"]


def _bounded(remembered: OrderedDict[K, V]) -> None:
    """Evicts the oldest entries; an evicted object is compared again."""
    while len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)
