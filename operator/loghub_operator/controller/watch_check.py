"""Ask the apiserver now and then which groups there are, and compare with what the watch told.

What for: a watch that has gone silent is found out, and no group waits for it. What it must not
know: kopf, rounds. Read next: `loghub_operator.controller.liveness` (what follows from a silent watch),
`loghub_operator.controller.handlers` (where the watch tells), `loghub_operator.observe.group_index`.

A version that was listed at one call, and of which the watch has told nothing until the next, was
not told: a minute lies between two calls, and an event is late by milliseconds. What is not listed
at two calls in a row is gone: a watch that was begun anew lists what is there, and so tells nothing
of what went in between. An object that was made anew is another one, so all is told by its uid.
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
    """What the list has and the watch has not told, with what it told last."""
    return {name: told.get(name) for name, version in listed.items() if told.get(name) != version}


def silent_about(
    before: Mapping[Incarnation, str | None], now: Mapping[Incarnation, str | None]
) -> tuple[Incarnation, ...]:
    """Missed at two calls, and nothing told in between."""
    return tuple(sorted(name for name, last in now.items() if name in before and before[name] == last))


class WatchCheck:
    """What the watch told, and what a list showed beside it."""

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
        """The watch told of this version."""
        self._told[one] = version

    def told_gone(self, one: Incarnation) -> None:
        """The watch told that it is gone."""
        self._told.pop(one, None)

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """For ever; an apiserver that does not answer is asked again later."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.call()
            except KubeError as error:
                log.warning("groups not listed", error=str(error))

    async def call(self) -> None:
        """One list of each namespace; one that may not be listed tells nothing. Raises `KubeError`."""
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
        """Forget what was absent before too; who waited for its group looks again."""
        for one in self._absent & absent:
            namespace, name, _ = one
            log.warning("gone, and the watch did not tell", namespace=namespace, name=name)
            self._told.pop(one, None)
            for concerned in ((namespace, name), *self._claims.gone(*one)):
                self._wake(concerned)
        self._absent = absent
