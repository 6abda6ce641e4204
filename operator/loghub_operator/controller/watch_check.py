"""Periodically lists the groups and compares the list with what the watch has reported.

The check detects a watch that has gone silent, so that no group waits for it;
`loghub_operator.controller.liveness` then reports the process as unhealthy.

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

EVERY_S = 60.0
Versions = Mapping[Incarnation, str]


def missed(listed: Versions, told: Versions) -> dict[Incarnation, str | None]:
    """The listed versions that the watch has not reported; the value is the version that it reported last."""
    return {name: told.get(name) for name, version in listed.items() if told.get(name) != version}


def silent_about(
    before: Mapping[Incarnation, str | None], now: Mapping[Incarnation, str | None]
) -> tuple[Incarnation, ...]:
    """The objects that the watch missed at two checks, without any event in between."""
    return tuple(sorted(name for name, last in now.items() if name in before and before[name] == last))


class WatchCheck:
    """Compares what the watch reported with what the API server lists."""

    def __init__(
        self, *, kube: Kube, namespaces: Sequence[str], claims: GroupIndex, wake: Callable[[Name], None]
    ) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces) or ("",)
        self._claims = claims
        self._wake = wake
        self._told: dict[Incarnation, str] = {}
        self._missed: dict[Incarnation, str | None] = {}
        self._absent: frozenset[Incarnation] = frozenset()
        self.silent_about: tuple[Incarnation, ...] = ()

    def told(self, one: Incarnation, version: str) -> None:
        """The watch reported this version."""
        self._told[one] = version

    def told_gone(self, one: Incarnation) -> None:
        """The watch reported the deletion of this object."""
        self._told.pop(one, None)

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """Runs forever; if the API server does not answer, the next check tries again."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.call()
            except KubeError as error:
                log.warning("groups not listed", error=str(error))

    async def call(self) -> None:
        """Makes one check of each namespace; skips one that may not be listed. Raises `KubeError`."""
        listed: dict[Incarnation, str] = {}
        refused = set()
        for namespace in self._namespaces:
            try:
                listed |= await self._kube.versions(CONSUMER_GROUP, namespace)
            except KubeError as error:
                if error.status != FORBIDDEN:
                    raise
                log.warning("namespace not listed", namespace=namespace, error=str(error))
                refused.add(namespace)
        self._silent(missed(listed, self._told))
        known = self._claims.known() | self._told.keys()
        self._gone(frozenset(one for one in known - listed.keys() if not {"", one[0]} & refused))

    def _silent(self, found: dict[Incarnation, str | None]) -> None:
        self.silent_about = silent_about(self._missed, found)
        self._missed = found
        for namespace, name, _ in self.silent_about:
            log.error("the watch is silent", namespace=namespace, name=name)
            self._wake((namespace, name))

    def _gone(self, absent: frozenset[Incarnation]) -> None:
        """Removes objects that are absent for the second time, and enqueues the objects that wait for their
        groups."""
        for one in self._absent & absent:
            namespace, name, _ = one
            log.warning("gone, and the watch did not tell", namespace=namespace, name=name)
            self._told.pop(one, None)
            for concerned in ((namespace, name), *self._claims.gone(*one)):
                self._wake(concerned)
        self._absent = absent
