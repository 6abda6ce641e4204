"""The StatefulSet controller, the kubelet and the workers of a story over a real apiserver without nodes."""

import asyncio
import contextlib
import json

from loghub.client.port import LogHub
from loghub.contract.worker import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import LogHubException
from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.clients.kube import CONFIG_MAP, POD, STATEFUL_SET, AioKube, KubeError
from loghub_operator.model.revision import Revision
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.live_objects import LiveObjects

LOGSTORE = "access"
GROUP = "access"
TURN_S = 0.05


class Player:
    """The StatefulSet controller, the kubelet and the workers, as far as the operator can see."""

    def __init__(self, kube: AioKube, live: LiveObjects, client: LogHub, namespace: str) -> None:
        self._kube = kube
        self._live = live
        self._client = client
        self._namespace = namespace
        self._held: dict[str, tuple[int, ...]] = {}
        self._left: set[str] = set()
        self._reported: Document = {}
        self.stopped_without_leaving: list[str] = []
        self.groups_at_once = 0  # of each shard, in one turn; 0: workers only send heartbeats

    extensions = True  # of the log service; without them it is as the real SLS

    def pod_ip(self, name: str) -> str | None:
        """The address in the pod's status."""
        return None

    forgiven = (404, 409)  # what existed when the turn began may be deleted by now, and the reverse

    async def play(self) -> None:
        while True:
            try:
                await self.turn()
            except KubeError as error:
                if error.status not in self.forgiven:
                    raise
            await asyncio.sleep(TURN_S)

    async def turn(self) -> None:
        owner = self._live.get(STATEFUL_SET, GROUP)
        existing = self._live.labelled(POD, worker_selector(GROUP))
        wanted = [] if owner is None else [f"{GROUP}-{n}" for n in range(owner["spec"]["replicas"])]
        for name in set(existing) - set(wanted):
            await self._stop(name)
        if owner is None:
            return
        for name in wanted:
            if name not in existing:
                await self._start(name, owner["spec"]["template"])
        await self._replace_one(owner, existing, wanted)
        ready = 0
        for name in wanted:
            if name in existing:
                ready += await self._work(existing[name])
        await self._report(owner, ready)

    async def _start(self, name: str, template: Document) -> None:
        metadata = {"name": name, "namespace": self._namespace, **template["metadata"]}
        self._left.discard(name)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._live.written(POD, await self._kube.create(pod))

    async def _stop(self, name: str) -> None:
        if name not in self._left:
            self.stopped_without_leaving.append(name)
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        await self._kube.delete(POD, self._namespace, name)
        self._live.deleted(POD, name)

    async def _replace_one(self, owner: Document, existing: dict[str, Document], wanted: list[str]) -> None:
        """As the rolling update does: highest first, and not past one that is not ready."""
        current = owner["spec"]["template"]["metadata"]["annotations"][ANNOTATION_REVISION]
        for name in reversed(wanted):
            pod = existing.get(name)
            if pod is None:
                return
            if pod["metadata"]["annotations"].get(ANNOTATION_REVISION) != current:
                await self._delete(name)
                return
            if not pod.get("status", {}).get("containerStatuses"):
                return
            if not pod["status"]["containerStatuses"][0]["ready"]:
                return

    async def _work(self, pod: Document) -> int:
        name, annotations = pod["metadata"]["name"], pod["metadata"]["annotations"]
        settings_name = f"{GROUP}-{Revision.parse(annotations[ANNOTATION_REVISION]).settings}"
        config = self._live.get(CONFIG_MAP, settings_name)
        if config is None:  # just created, or deleted
            config = await self._kube.get(CONFIG_MAP, self._namespace, settings_name)
        if config is None:
            assert await self._kube.get(STATEFUL_SET, self._namespace, GROUP) is None, (
                "settings are deleted last"
            )
            return 0
        settings = json.loads(config["data"]["worker.json"])
        broken = self.fails(name, settings["pipeline"].get("text", "SELECT "))
        if not broken:
            with contextlib.suppress(LogHubException):
                self._heartbeat(name, leave=annotations.get(DRAIN_ANNOTATION) == DRAIN_REQUESTED)
        ready = not broken and name not in self._left
        await self._report_pod(pod, broken=broken, ready=ready)
        return ready

    def fails(self, _name: str, sql: str) -> bool:
        return not sql.startswith("SELECT ")

    def _heartbeat(self, name: str, *, leave: bool) -> None:
        if leave:
            if name not in self._left:
                self._leave(name)
                self._left.add(name)
            return
        held = self._held.get(name, ())
        self._held[name] = self._client.heartbeat(LOGSTORE, GROUP, consumer=name, held=held)
        if self.groups_at_once:
            for shard in self._held[name]:
                self._consume(name, shard)

    def _leave(self, name: str) -> None:
        """Without extensions it only stops its heartbeats."""
        self._held.pop(name, None)
        if self.extensions:
            self._client.leave(LOGSTORE, GROUP, consumer=name)

    def _consume(self, name: str, shard: int) -> None:
        """Save a checkpoint so many log groups further, as far as there are any."""
        (saved,) = self._client.get_checkpoints(LOGSTORE, GROUP, shard)
        begin = saved.cursor or self._client.get_cursor(LOGSTORE, shard, "begin")
        end = wire_cursor.decode(self._client.get_cursor(LOGSTORE, shard, "end"))
        target = min(end, wire_cursor.decode(begin) + self.groups_at_once)
        if not saved.cursor or target > wire_cursor.decode(saved.cursor):
            cursor = wire_cursor.encode(target)
            self._client.update_checkpoint(
                LOGSTORE, GROUP, shard=shard, cursor=cursor, consumer=name, force=False
            )

    async def _report_pod(self, pod: Document, *, broken: bool, ready: bool) -> None:
        state: Document = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if broken:
            message = "InvalidPipeline: [PARSE_SYNTAX_ERROR] near 'SELEC'"
            state = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
        container = {
            "name": "worker", "started": not broken, "ready": ready, "restartCount": 0, "state": state,
            "image": "i", "imageID": "i",
        }  # fmt: skip
        reported = pod.get("status", {}).get("containerStatuses")
        if reported and (reported[0]["ready"], reported[0]["started"]) == (ready, not broken):
            return
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [container],
        }
        if address := self.pod_ip(pod["metadata"]["name"]):
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        metadata = {"name": pod["metadata"]["name"], "namespace": self._namespace}
        answer = await self._kube.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}, subresource="status"
        )
        self._live.written(POD, answer)

    async def _report(self, owner: Document, ready: int) -> None:
        status = {"replicas": ready, "observedGeneration": owner["metadata"]["generation"]}
        if status == self._reported:
            return
        self._reported = status
        metadata = {"name": GROUP, "namespace": self._namespace}
        await self._kube.apply(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "status": status},
            subresource="status",
        )
