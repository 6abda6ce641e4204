"""Periodically lists the groups and compares the list with what the watch has reported.

The check detects a watch that has gone silent, so that no group waits for it;
`loghub_operator.controller.liveness` then reports the process as unhealthy. Missed events of StatefulSets and
pods need no such check: the next resync of their group observes them.

A version that one check lists and that the watch has not reported by the next check was missed: a minute
passes between two checks, and an event is late by milliseconds. An object that two checks in a row do not
list has been deleted: a restarted watch lists what exists, and so does not report what was deleted in the
meantime. Objects are identified by UID, because a recreated object is a different object.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from loghub_operator.clients.kube import CONSUMER_GROUP, FORBIDDEN, Kube, KubeError
from loghub_operator.observe.group_index import GroupIndex, Incarnation, Name

log = structlog.get_logger()

EVERY_S = 60.0  # far longer than an event is late; a silent watch is noticed after two of these
Versions = Mapping[Incarnation, str]


def missed(listed: Versions, reported: Versions) -> dict[Incarnation, str | None]:
    """The listed versions that the watch has not reported; the value is the version that it reported last."""
    changed = (name for name, version in listed.items() if reported.get(name) != version)
    return {name: reported.get(name) for name in changed}


def missed_twice(
    before: Mapping[Incarnation, str | None], now: Mapping[Incarnation, str | None]
) -> tuple[Incarnation, ...]:
    """The objects that the watch missed at two checks, without any event in between."""
    return tuple(sorted(known for known, last in now.items() if known in before and before[known] == last))


class WatchCheck:
    """Compares what the watch reported with what the API server lists."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespaces: Sequence[str],
        group_index: GroupIndex,
        enqueue: Callable[[Name], None],
    ) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces) or ("",)
        self._group_index = group_index
        self._enqueue = enqueue
        self._reported: dict[Incarnation, str] = {}
        self._missed: dict[Incarnation, str | None] = {}
        self._absent: frozenset[Incarnation] = frozenset()
        self.unreported: tuple[Incarnation, ...] = ()

    def reported(self, incarnation: Incarnation, version: str) -> None:
        """The watch reported this version."""
        self._reported[incarnation] = version

    def deletion_reported(self, incarnation: Incarnation) -> None:
        """The watch reported the deletion of this object."""
        self._reported.pop(incarnation, None)

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """Runs forever; if the API server does not answer, the next check tries again."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.check()
            except KubeError as error:
                log.warning("groups not listed", error=str(error))

    async def check(self) -> None:
        """Makes one check of each namespace; skips one that may not be listed. Raises `KubeError`."""
        listed: dict[Incarnation, str] = {}
        forbidden = set()
        for namespace in self._namespaces:
            try:
                listed |= await self._kube.versions(CONSUMER_GROUP, namespace)
            except KubeError as error:
                if error.status != FORBIDDEN:
                    raise
                log.warning("namespace not listed", namespace=namespace, error=str(error))
                forbidden.add(namespace)
        self._compare(missed(listed, self._reported))
        indexed = self._group_index.known() | self._reported.keys()
        self._forget(frozenset(one for one in indexed - listed.keys() if not {"", one[0]} & forbidden))

    def _compare(self, missing: dict[Incarnation, str | None]) -> None:
        self.unreported = missed_twice(self._missed, missing)
        self._missed = missing
        for namespace, name, _ in self.unreported:
            log.error("change not reported by the watch", namespace=namespace, name=name)
            self._enqueue((namespace, name))

    def _forget(self, absent: frozenset[Incarnation]) -> None:
        """Removes objects that are absent for the second time, and enqueues the objects that wait for their
        groups."""
        for incarnation in self._absent & absent:
            namespace, name, _ = incarnation
            log.warning("deletion not reported by the watch", namespace=namespace, name=name)
            self._reported.pop(incarnation, None)
            for affected in ((namespace, name), *self._group_index.remove(*incarnation)):
                self._enqueue(affected)
        self._absent = absent
