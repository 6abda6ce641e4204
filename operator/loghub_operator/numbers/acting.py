"""The label by which a Service finds the one operator that acts.

What for: only that one has readings, so only it can be asked for them; of two replicas the other
waits. What it must not know: how a lease is had, servers. Read next: `loghub_operator.__main__`.

The label's value is the Lease's name, so that two releases in one namespace, each with one that
acts, do not take it from each other.
"""

import asyncio
from dataclasses import dataclass

import structlog

from loghub_operator.kube import POD, Kube, KubeError
from loghub_operator.lease import Place

log = structlog.get_logger()

LABEL = "loghub.dev/acting"
LONGEST_VALUE = 63
AGAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingLabel:
    """On our own pod."""

    kube: Kube
    lease: Place
    pod: str

    @property
    def value(self) -> str:
        """As the Services have it."""
        return self.lease.name[:LONGEST_VALUE].rstrip("-.")

    async def give_back(self) -> None:
        """Not ours: a container that was started anew is in the pod of the one before."""
        try:
            await self._set(self.pod, None)
        except KubeError as error:
            log.warning("label of the one who acts not removed", error=str(error))

    async def take(self) -> None:
        """Ours, and taken from pods that could not give it back; looked at for ever, since anybody who
        may change a pod can take it away."""
        while True:
            try:
                await self._take()
            except KubeError as error:
                log.error("no label for the one who acts: Services do not lead here", error=str(error))
            await asyncio.sleep(AGAIN_S)

    async def _take(self) -> None:
        """Written only where it is not so."""
        found = await self.kube.select(POD, self.lease.namespace, {LABEL: self.value})
        names = {one["metadata"]["name"] for one in found}
        for other in sorted(names - {self.pod}):
            await self._set(other, None)
        if self.pod not in names:
            await self._set(self.pod, self.value)

    async def _set(self, pod: str, value: str | None) -> None:
        """Where there is no such pod (outside of a cluster) there is nothing to label."""
        await self.kube.merge(POD, self.lease.namespace, pod, {"metadata": {"labels": {LABEL: value}}})
