"""The operator in this process over a real apiserver, with simulated workers.

Stories of a whole group take seconds, without nodes (`tests.apiserver.test_lifecycle`).
"""

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.errors import LogHubException
from loghub.wire.loggroup import Log, LogGroup
from loghub.worker_contract import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    AioKube,
    Kind,
    KubeError,
    configured,
)
from loghub_operator.controller import app as program
from loghub_operator.model.revision import Revision
from loghub_operator.settings import Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.retrying_kube import Insistent

GUARD_S = 120.0
LOGSTORE = "access"
GROUP = "access"
PROJECT = "demo"
ONE_GROUP = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("line", "x"),)),)))


class Player:
    """The StatefulSet controller, the kubelet and the workers, as far as the operator can see."""

    def __init__(self, kube: AioKube, client: LogHub, namespace: str) -> None:
        self._kube = kube
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
            await asyncio.sleep(0.05)

    async def turn(self) -> None:
        owner = await self._kube.get(STATEFUL_SET, self._namespace, GROUP)
        pods = await self._kube.list(POD, self._namespace, worker_selector(GROUP))
        existing = {pod["metadata"]["name"]: pod for pod in pods}
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
        await self._kube.create(pod)

    async def _stop(self, name: str) -> None:
        if name not in self._left:
            self.stopped_without_leaving.append(name)
        await self._kube.delete(POD, self._namespace, name)

    async def _replace_one(self, owner: Document, existing: dict[str, Document], wanted: list[str]) -> None:
        """As the rolling update does: highest first, and not past one that is not ready."""
        current = owner["spec"]["template"]["metadata"]["annotations"][ANNOTATION_REVISION]
        for name in reversed(wanted):
            pod = existing.get(name)
            if pod is None:
                return
            if pod["metadata"]["annotations"].get(ANNOTATION_REVISION) != current:
                await self._kube.delete(POD, self._namespace, name)
                return
            if not pod.get("status", {}).get("containerStatuses"):
                return
            if not pod["status"]["containerStatuses"][0]["ready"]:
                return

    async def _work(self, pod: Document) -> int:
        name, annotations = pod["metadata"]["name"], pod["metadata"]["annotations"]
        config = await self._kube.get(
            CONFIG_MAP,
            self._namespace,
            f"{GROUP}-{Revision.parse(annotations[ANNOTATION_REVISION]).settings}",
        )
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
        await self._kube.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}, subresource="status"
        )

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


class Stage:
    """A namespace of its own, the operator over it, and the simulated workers."""

    def __init__(self, kube: AioKube, namespace: str, *, player: type[Player] = Player) -> None:
        self.kube = kube
        self.namespace = namespace
        self.server = MemoryServer()
        self.client: LogHub = self.server.client(PROJECT)
        self.player = player(kube, self.client, namespace)
        self.rounds = 0
        self._operator: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def settings(self) -> Settings:
        return Settings(embedded_endpoint="http://127.0.0.1:1", namespaces=(self.namespace,), resync_s=0.5)

    def connect(self, _endpoint: str, project: str, _credentials: Credentials) -> LogHub:
        return _Counted(self, self.server.client(project))

    def start_operator(self) -> None:
        self._stop = asyncio.Event()
        running = program.run(self.settings, self._stop, connect=self.connect)
        self._operator = asyncio.create_task(running)

    async def stop_operator(self) -> None:
        """The one of `start_operator`, if there is one."""
        self._stop.set()
        if self._operator is not None:
            await asyncio.wait_for(self._operator, GUARD_S)

    async def apply(self, spec: Document | None = None) -> None:
        await self.kube.apply(document({"project": PROJECT, **(spec or {})}, namespace=self.namespace))

    def put(self, groups: int, *, hash_key: str | None = None) -> None:
        """Log groups of one log each, to each shard in turn, or to that of a key."""
        for _ in range(groups):
            self.client.put_logs(LOGSTORE, ONE_GROUP, hash_key=hash_key)

    async def remove(self) -> None:
        await self.kube.delete(CONSUMER_GROUP, self.namespace, GROUP)

    async def make_secret(self) -> None:
        data = {key: base64.b64encode(b"x").decode() for key in ("accessKeyId", "accessKeySecret")}
        metadata = {"name": "loghub-credentials", "namespace": self.namespace}
        await self.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    async def get(self, kind: Kind = CONSUMER_GROUP, name: str = GROUP) -> Document | None:
        return await self.kube.get(kind, self.namespace, name)

    async def status(self) -> Document:
        document_ = await self.get()
        return {} if document_ is None else document_.get("status", {})

    async def condition(self, kind: str) -> Document:
        conditions = (await self.status()).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    async def versions(self) -> dict[str, Any]:
        """The resource versions of every object that the operator writes, Events apart."""
        others = (SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, SERVICE_ACCOUNT)
        kinds = (CONSUMER_GROUP, STATEFUL_SET, POD, *others)
        document_ = [one for kind in kinds for one in await self.kube.list(kind, self.namespace, {})]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in document_}

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition; the guard is for a hang, not a measure."""
        try:
            async with asyncio.timeout(GUARD_S):
                while not await holds():
                    if self._operator is not None and self._operator.done() and not self._stop.is_set():
                        self._operator.result()
                        pytest.fail("the operator ended")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"not seen: {what}; status: {await self.status()}")

    async def until_settled(self, rounds: int = 3) -> None:
        """Nothing was written during so many rounds."""

        async def holds() -> bool:
            before = await self.versions()
            await self.until_rounds(rounds)
            return await self.versions() == before

        await self.until("rest", holds)

    async def until_phase(self, phase: str, workers: str) -> None:
        async def holds() -> bool:
            document_ = await self.get() or {}
            status = document_.get("status", {})
            current = status.get("observedGeneration") == document_.get("metadata", {}).get("generation")
            return current and (status.get("phase"), status.get("workers")) == (phase, workers)

        await self.until(f"{phase} {workers}", holds)

    async def until_reason(self, kind: str, reason: str) -> Document:
        async def holds() -> bool:
            return (await self.condition(kind)).get("reason") == reason

        await self.until(f"{kind} {reason}", holds)
        return await self.condition(kind)

    async def until_deleted(self) -> None:
        async def holds() -> bool:
            return await self.get() is None

        await self.until("the object deleted", holds)

    async def until_rounds(self, more: int) -> None:
        """The operator has observed the log service so many times more."""
        target = self.rounds + more

        async def holds() -> bool:
            return self.rounds >= target

        await self.until(f"{more} rounds", holds)


class _Counted:
    """The in-memory client, counting the operator's rounds."""

    def __init__(self, on: Stage, client: LogHub) -> None:
        self._on = on
        self._client = client

    def has_extensions(self) -> bool:
        self._on.rounds += 1
        return self._on.player.extensions and self._client.has_extensions()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def make_namespace(server: Apiserver) -> str:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    server.must("create", "namespace", namespace)
    server.must("create", "serviceaccount", "default", "-n", namespace)
    return namespace


def stage(
    server: Apiserver,
    folder: Path,
    story: Callable[[Stage], Awaitable[None]],
    *,
    secret: bool = True,
    operator: bool = True,
    player: type[Player] = Player,
) -> None:
    """Play one story in a namespace of its own; without ``operator`` the story starts its own."""
    namespace = make_namespace(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(server.as_the_operator(folder)))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        playing = play(server.kubeconfig, namespace, story, secret=secret, operator=operator, player=player)
        asyncio.run(playing)


async def play(
    kubeconfig: Path,
    namespace: str,
    story: Callable[[Stage], Awaitable[None]],
    *,
    secret: bool = True,
    operator: bool = True,
    player: type[Player] = Player,
) -> None:
    async with Insistent(await configured(str(kubeconfig)), manager="a-user") as kube:
        on = Stage(kube, namespace, player=player)
        on.client.create_project()
        on.client.create_logstore(LOGSTORE, shards=4)
        if secret:
            await on.make_secret()
        playing = asyncio.create_task(on.player.play())
        if operator:
            on.start_operator()
        try:
            await story(on)
        finally:
            await on.stop_operator()
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing
