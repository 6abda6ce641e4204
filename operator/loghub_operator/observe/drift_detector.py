"""Look whether our objects are still as we wrote them.

What for: `ObservedState.worker_set.drift`. What it must not know: what is done about it. Read next:
`loghub_operator.resources.diff` (the comparison), `loghub_operator.plan.planner`.

The StatefulSet is compared at every look, since it is fetched anyway; what stands beside it only so
often, to spare the apiserver. What the apiserver, or an admission webhook, makes of our words is
remembered when we write: such a field is no drift, else we would write it for ever.
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
    """Remembers, per object, what our last write left different, and per group the last look beside."""

    def __init__(self, *, kube: Kube, clock: Clock, every_s: float) -> None:
        self._kube = kube
        self._clock = clock
        self._every_s = every_s
        self._left: OrderedDict[Name, frozenset[str]] = OrderedDict()
        self._looked: OrderedDict[tuple[str, str], float] = OrderedDict()

    def wrote(self, document: Document, answer: Document) -> None:
        """This was applied, and the apiserver made that of it. What stands beside a StatefulSet was
        written just before it, so a look at that is not due."""
        self._left[_name(document)] = frozenset(changed_fields(document, answer))
        _bounded(self._left)
        if document["kind"] == STATEFUL_SET.kind:
            self._look(document)

    async def seen(self, wanted: Document, found: Document, beside: Iterable[Document]) -> tuple[str, ...]:
        """``wanted`` is the StatefulSet as we would write it, without its number."""
        paths = list(self._new(wanted, found))
        if replicas_taken(found, MANAGER):
            paths.append(f"{wanted['kind']} {wanted['metadata']['name']} spec.replicas")
        if self._is_due(wanted) or paths:  # mending writes all of it, so all of it is told
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
    """What is forgotten is looked at once more."""
    while len(remembered) > MOST_REMEMBERED:
        remembered.popitem(last=False)
