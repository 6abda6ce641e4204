"""The label by which a Service selects the leader's pod.

Only the leader has the groups' metrics, so only it can serve KEDA and the external metrics API. The
label's value is the Lease's name, so that two releases in one namespace do not take the label from each
other's leader.
"""

import asyncio
from dataclasses import dataclass

import structlog

from loghub_operator.clients.kube import POD, Kube, KubeError
from loghub_operator.settings import LeaseRef

log = structlog.get_logger()

LABEL = "loghub.dev/leader"
MAX_VALUE = 63  # the limit of Kubernetes for the value of a label
RETRY_S = 10.0  # a Service that lost its pod has it again after this time; a look is one list


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLabel:
    """The label on this process's own pod."""

    kube: Kube
    lease: LeaseRef
    pod: str

    @property
    def value(self) -> str:
        """The value that the Services select."""
        return self.lease.name[:MAX_VALUE].rstrip("-.")

    async def remove_stale(self) -> None:
        """Remove a stale leader label: a restarted container keeps its pod's labels."""
        try:
            await self._set(self.pod, None)
        except KubeError as error:
            log.warning("leader label not removed", error=str(error))

    async def take(self) -> None:
        """Labels our pod, and removes the label from other pods that failed to remove it. Repeats the check
        forever, because users who may edit pods can remove the label."""
        while True:
            try:
                await self._take()
            except KubeError as error:
                log.error("leader label not set: Services do not reach this pod", error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _take(self) -> None:
        """Writes only if a label is wrong."""
        pods = await self.kube.list(POD, self.lease.namespace, {LABEL: self.value})
        names = {one["metadata"]["name"] for one in pods}
        for other in sorted(names - {self.pod}):
            await self._set(other, None)
        if self.pod not in names:
            await self._set(self.pod, self.value)

    async def _set(self, pod: str, value: str | None) -> None:
        """Does nothing if the pod does not exist, as outside a cluster."""
        await self.kube.patch(POD, self.lease.namespace, pod, {"metadata": {"labels": {LABEL: value}}})
