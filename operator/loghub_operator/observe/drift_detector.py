"""Detects drift: fields of our objects that no longer have the values that we applied.

The result is `ObservedState.worker_set.drift`; `loghub_operator.resources.diff` makes the comparison. The
StatefulSet is compared in every observation, since it is fetched anyway. Its dependencies are compared less
often, to spare the API server. A field that the API server or an admission webhook changes is recorded when
we write it: such a field is not drift, otherwise we would write it forever.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from loghub.clock import Clock
from loghub_operator.api.labels import MANAGER
from loghub_operator.clients.kube import KINDS, STATEFUL_SET, Kube
from loghub_operator.resources.diff import changed_fields, replicas_taken
from loghub_operator.resources.metadata import Document

MOST_REMEMBERED = 20_000
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
        self._left: OrderedDict[Name, frozenset[str]] = OrderedDict()
        self._looked: OrderedDict[tuple[str, str], float] = OrderedDict()

    def wrote(self, document: Document, answer: Document) -> None:
        """Records that ``document`` was applied and ``answer`` is the result. The dependencies of a
        StatefulSet are written just before it, so they need no comparison yet."""
        self._left[_name(document)] = frozenset(changed_fields(document, answer))
        _bounded(self._left)
        if document["kind"] == STATEFUL_SET.kind:
            self._look(document)

    async def seen(self, wanted: Document, found: Document, beside: Iterable[Document]) -> tuple[str, ...]:
        """Returns the drifted fields; ``wanted`` is the desired StatefulSet without its replicas."""
        paths = list(self._new(wanted, found))
        if replicas_taken(found, MANAGER):
            paths.append(f"{wanted['kind']} {wanted['metadata']['name']} spec.replicas")
        if self._is_due(wanted) or paths:  # a correction writes all objects, so it reports all drift
            paths += await self._beside(beside)
        return tuple(paths)

    async def _beside(self, wanted: Iterable[Document]) -> list[str]:
        objects = tuple(wanted)
        found = await asyncio.gather(*(self._get(one) for one in objects))
        return [path for one, there in zip(objects, found, strict=True) for path in self._new(one, there)]

    async def _get(self, document: Document) -> Document | None:
        about = document["metadata"]
        return await self._kube.get(KINDS[document["kind"]], about["namespace"], about["name"])

    def _new(self, wanted: Document, found: Document | None) -> tuple[str, ...]:
        left = self._left.get(_name(wanted), frozenset())
        return tuple(path for path in changed_fields(wanted, found) if path not in left)

    def _is_due(self, wanted: Document) -> bool:
        last_s = self._looked.get(_group(wanted), float("-inf"))
        if self._clock.monotonic_s() - last_s < self._every_s:
            return False
        self._look(wanted)
        return True

    def _look(self, worker_set: Document) -> None:
        self._looked[_group(worker_set)] = self._clock.monotonic_s()
        _bounded(self._looked)


def _name(document: Document) -> Name:
    about = document["metadata"]
    return document["kind"], about["namespace"], about["name"]


def _group(worker_set: Document) -> tuple[str, str]:
    about = worker_set["metadata"]
    return about["namespace"], about["name"]


def _bounded(remembered: OrderedDict[K, V]) -> None:
    """Evicts the oldest entries; an evicted object is compared again."""
    while len(remembered) > MOST_REMEMBERED:
        remembered.popitem(last=False)
