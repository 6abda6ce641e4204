"""The operator in this process over a real apiserver, with simulated workers.

Stories of a whole group take seconds, without nodes (`tests.apiserver.test_lifecycle`).
"""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    EVENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    AioKube,
    Kind,
    configured,
)
from loghub_operator.controller import app as program
from loghub_operator.settings import Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.live_objects import LiveObjects
from tests.loghub_operator.support.player import GROUP, LOGSTORE, Player
from tests.loghub_operator.support.retrying_kube import Insistent

GUARD_S = 120.0
LOOK_S = 0.25  # where nothing tells of a change: in the log service, in objects that are not watched
PROJECT = "demo"
# What is awaited has been asked of the apiserver once: from then on the watched objects answer.
_LOOKING = ContextVar("looking", default=False)
ONE_GROUP = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("line", "x"),)),)))


class Stage:
    """A namespace of its own, the operator over it, and the simulated workers."""

    def __init__(self, kube: AioKube, live: LiveObjects, namespace: str, player: type[Player]) -> None:
        self.kube = kube
        self._live = live
        self._loop = asyncio.get_running_loop()
        self.namespace = namespace
        self.server = MemoryServer()
        self.client: LogHub = self.server.client(PROJECT)
        self.player = player(kube, live, self.client, namespace)
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
        group = document({"project": PROJECT, **(spec or {})}, namespace=self.namespace)
        self._live.written(CONSUMER_GROUP, await self.kube.apply(group))

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
        """From the apiserver; a condition that is looked at again reads the watched objects, which are no
        older than the first look at it."""
        if not self._live.follows(kind):
            return await self.kube.get(kind, self.namespace, name)
        if not _LOOKING.get():
            answer = await self.kube.get(kind, self.namespace, name)
            if answer is None:
                return None
            self._live.written(kind, answer)
        return self._live.get(kind, name)

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
        before = _LOOKING.set(False)
        try:
            async with asyncio.timeout(GUARD_S):
                while True:
                    change = self._live.next()
                    if await holds():
                        return
                    _LOOKING.set(True)
                    if self._operator is not None and self._operator.done() and not self._stop.is_set():
                        self._operator.result()
                        pytest.fail("the operator ended")
                    # No `wait_for`: Kopf, when it ends, cancels the younger tasks of its loop.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await change.wait()
        except TimeoutError:
            pytest.fail(f"not seen: {what}; status: {await self.status()}")
        finally:
            _LOOKING.reset(before)

    def count_round(self) -> None:
        """In any thread."""
        self.rounds += 1
        self._loop.call_soon_threadsafe(self._live.notify)

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
        self._on.count_round()
        return self._on.player.extensions and self._client.has_extensions()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def make_namespace(server: Apiserver) -> str:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    server.create_namespace(namespace)
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
    async with (
        Insistent(await configured(str(kubeconfig)), manager="a-user") as kube,
        LiveObjects(kube, namespace, CONSUMER_GROUP, STATEFUL_SET, POD, CONFIG_MAP, EVENT).watching() as live,
    ):
        on = Stage(kube, live, namespace, player)
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
