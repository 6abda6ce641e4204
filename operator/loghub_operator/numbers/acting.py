"""The label by which a Service finds the one operator that acts.

What for: only that one has readings, so only it can be asked for them; of two replicas the other
waits. What it must not know: leases, servers. Read next: `loghub_operator.__main__`.
"""

import asyncio
from dataclasses import dataclass

import structlog

from loghub_operator.kube import POD, Kube, KubeError

log = structlog.get_logger()

LABEL = "loghub.dev/acting"
YES = "true"
AGAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingLabel:
    """On our own pod."""

    kube: Kube
    namespace: str
    pod: str

    async def give_back(self) -> None:
        """Not ours: a container that was started anew is in the pod of the one before."""
        try:
            await self._set(self.pod, None)
        except KubeError as error:
            log.warning("label of the one who acts not removed", error=str(error))

    async def take(self) -> None:
        """Ours, and taken from pods that could not give it back. Then waits for ever."""
        while True:
            try:
                await self._take()
                await asyncio.Event().wait()
            except KubeError as error:
                log.error("no label for the one who acts: Services do not lead here", error=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _take(self) -> None:
        for found in await self.kube.select(POD, self.namespace, {LABEL: YES}):
            if found["metadata"]["name"] != self.pod:
                await self._set(found["metadata"]["name"], None)
        await self._set(self.pod, YES)

    async def _set(self, pod: str, value: str | None) -> None:
        """Where there is no such pod (outside of a cluster) there is nothing to label."""
        await self.kube.merge(POD, self.namespace, pod, {"metadata": {"labels": {LABEL: value}}})
