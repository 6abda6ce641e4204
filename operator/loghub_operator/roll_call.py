"""Ask the apiserver now and then which groups there are, and compare with what the watch told.

What for: a watch that has gone silent is found out, and no group waits for it. What it must not
know: kopf, rounds. Read next: `loghub_operator.liveness` (what follows from a silent watch),
`loghub_operator.handlers` (where the watch tells).

A version that was listed at one call, and of which the watch has told nothing until the next, was
not told: minutes lie between two calls, and an event is late by milliseconds.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from loghub_operator.kube import CONSUMER_GROUP, Kube, KubeError

log = structlog.get_logger()

EVERY_S = 60.0
Name = tuple[str, str]  # namespace, name
Versions = Mapping[Name, str]


def missed(listed: Versions, told: Versions) -> dict[Name, str | None]:
    """What the list has and the watch has not told, with what it told last."""
    return {name: told.get(name) for name, version in listed.items() if told.get(name) != version}


def silent_about(before: Mapping[Name, str | None], now: Mapping[Name, str | None]) -> tuple[Name, ...]:
    """Missed at two calls, and nothing told in between."""
    return tuple(sorted(name for name, last in now.items() if name in before and before[name] == last))


class RollCall:
    """What the watch told, and what a list showed beside it."""

    def __init__(self, *, kube: Kube, namespaces: Sequence[str], wake: Callable[[Name], None]) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces) or ("",)
        self._wake = wake
        self._told: dict[Name, str] = {}
        self._missed: dict[Name, str | None] = {}
        self.silent_about: tuple[Name, ...] = ()

    def told(self, name: Name, version: str) -> None:
        """The watch told of this version."""
        self._told[name] = version

    def told_gone(self, name: Name) -> None:
        """The watch told that it is gone."""
        self._told.pop(name, None)

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """For ever; an apiserver that does not answer is asked again later."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.call()
            except KubeError as error:
                log.warning("groups not listed", error=str(error))

    async def call(self) -> None:
        """One list. Raises `KubeError`."""
        listed: dict[Name, str] = {}
        for namespace in self._namespaces:
            listed |= await self._kube.versions(CONSUMER_GROUP, namespace)
        found = missed(listed, self._told)
        self.silent_about = silent_about(self._missed, found)
        self._missed = found
        for name in self.silent_about:
            log.error("the watch is silent", namespace=name[0], name=name[1])
            self._wake(name)
