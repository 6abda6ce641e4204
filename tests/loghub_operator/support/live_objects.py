"""The objects of a namespace as a controller's cache has them: kept current by watches, read without a call.

A story looks at its objects many times a second; a call for each look would cost more than the operator does.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Self

import aiohttp

from loghub_operator.clients.kube import AioKube, Document, Kind, KubeError

WATCH_S = 3600.0
AGAIN_S = 0.5  # after an apiserver that is gone


class LiveObjects:
    """Of these kinds; `watching` follows them."""

    def __init__(self, kube: AioKube, namespace: str, *kinds: Kind) -> None:
        self._kube = kube
        self._namespace = namespace
        self._kinds = kinds
        self._objects: dict[Kind, dict[str, Document]] = {}
        self._gone: set[str] = set()
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Self]:
        """Every object that exists is there from the beginning of the block."""
        listed = {kind: await self._list(kind) for kind in self._kinds}
        # Older than the operator of the story: Kopf, when it ends, cancels the younger tasks of its loop.
        tasks = [asyncio.create_task(self._follow(kind, version)) for kind, version in listed.items()]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def follows(self, kind: Kind) -> bool:
        return kind in self._objects

    def get(self, kind: Kind, name: str) -> Document | None:
        return self._objects[kind].get(name)

    def labelled(self, kind: Kind, labels: Mapping[str, str]) -> dict[str, Document]:
        """By name."""
        return {
            name: found
            for name, found in self._objects[kind].items()
            if labels.items() <= found["metadata"].get("labels", {}).items()
        }

    def written(self, kind: Kind, answer: Document) -> None:
        """What the apiserver answered; the watch reports the same a little later."""
        self._keep(kind, answer)

    def deleted(self, kind: Kind, name: str) -> None:
        found = self._objects[kind].pop(name, None)
        if found is not None:
            self._gone.add(found["metadata"]["uid"])

    def notify(self) -> None:
        """Ends every wait of `next`."""
        self._changed.set()
        self._changed = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Set at the next change. Take it before you look, so that no change is missed."""
        return self._changed

    async def _list(self, kind: Kind) -> str:
        answer = await self._kube._call("GET", self._path(kind))
        self._objects[kind] = {one["metadata"]["name"]: one for one in answer.get("items") or []}
        self.notify()
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, kind: Kind, version: str) -> None:
        while True:
            with contextlib.suppress(KubeError, aiohttp.ClientError, OSError, TimeoutError):
                await self._watch(kind, version)
            await asyncio.sleep(AGAIN_S)
            with contextlib.suppress(KubeError):
                version = await self._list(kind)

    async def _watch(self, kind: Kind, version: str) -> None:
        client = self._kube._client
        prepared = await client.param_serialize(
            "GET",
            self._path(kind),
            query_params=[("watch", "true"), ("resourceVersion", version)],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = (await client.call_api(*prepared, _request_timeout=WATCH_S)).response
        try:
            if answer.status != 200:  # while the apiserver starts
                return
            while line := await answer.content.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._observe(kind, event["type"], event["object"])
        finally:
            answer.close()

    def _observe(self, kind: Kind, change: str, found: Document) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        if change != "DELETED":
            self._keep(kind, found)
        else:
            self._gone.add(uid)
            if (held := self._objects[kind].get(name)) and held["metadata"]["uid"] == uid:
                del self._objects[kind][name]
        self.notify()

    def _keep(self, kind: Kind, found: Document) -> None:
        """Unless it is gone, or a later one is known. Resource versions are compared as numbers:
        https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions"""
        name = found["metadata"]["name"]
        held = self._objects[kind].get(name)
        is_later = held is None or _version(held) <= _version(found)
        if is_later and found["metadata"]["uid"] not in self._gone:
            self._objects[kind][name] = found

    def _path(self, kind: Kind) -> str:
        root = "/apis" if "/" in kind.api_version else "/api"
        return f"{root}/{kind.api_version}/namespaces/{self._namespace}/{kind.plural}"


def _version(found: Document) -> int:
    return int(found["metadata"]["resourceVersion"])
