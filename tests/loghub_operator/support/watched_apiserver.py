"""A small API server that lists and watches, for the real Kopf and the real client; it records each request.

It holds any objects of the kinds in `KINDS`, selects by labels as a real one does, accepts only the tokens
that are valid now, and sends an object that stops matching a selector as deleted. It validates nothing.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from loghub_operator.clients.kube import CONSUMER_GROUP, POD, STATEFUL_SET, Kind
from tests.loghub_operator.support.examples import Document

KINDS = (CONSUMER_GROUP, STATEFUL_SET, POD)
# Kopf waits until it knows these kinds, although it neither lists nor watches them here.
_KNOWN = (
    *KINDS,
    Kind("v1", "Namespace", "namespaces"),
    Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
)
_PLURALS = {kind.kind: kind.plural for kind in KINDS}
VERBS = ["get", "list", "watch", "patch"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server."""

    plural: str
    watch: bool
    selector: str
    authorization: str


@dataclass(frozen=True, slots=True)
class _Watcher:
    plural: str
    selector: str
    events: "asyncio.Queue[Document]"


class WatchedApiserver:
    """The objects by plural and name, all in the namespace ``ns``."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = set(tokens)
        self.requests: list[Request] = []
        self.sent: list[tuple[str, str, str]] = []  # watch events: plural, type, name
        self.rejected = 0
        self._objects: dict[tuple[str, str], Document] = {}
        self._watchers: list[_Watcher] = []
        self._version = 0

    def put(self, kind: Kind, name: str, **fields: Any) -> str:
        """Creates or replaces an object; its labels are the field ``labels``. Returns its version."""
        before = self._objects.get((kind.plural, name))
        self._version += 1
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{kind.plural}-{name}",
            "resourceVersion": str(self._version),
            "labels": fields.pop("labels", {}),
            **fields.pop("metadata", {}),
        }
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        self._objects[kind.plural, name] = document
        for watcher in self._watchers:
            had = before is not None and _matches(before, watcher)
            has = _matches(document, watcher)
            if had or has:
                type_ = "DELETED" if not has else "MODIFIED" if had else "ADDED"
                watcher.events.put_nowait({"type": type_, "object": document if has else before})
        return str(self._version)

    def delete(self, kind: Kind, name: str) -> None:
        """Deletes an object."""
        document = self._objects.pop((kind.plural, name))
        for watcher in self._watchers:
            if _matches(document, watcher):
                watcher.events.put_nowait({"type": "DELETED", "object": document})

    def cut(self) -> None:
        """Ends every watch that is open."""
        for watcher in self._watchers:
            watcher.events.put_nowait({})

    async def until_watched(self, *, times: int = 1) -> None:
        """Waits until each kind has been watched so often."""
        while any(self.count(kind, watch=True) < times for kind in KINDS):
            await asyncio.sleep(0.01)

    def count(self, kind: Kind, *, watch: bool) -> int:
        """The requests for this kind."""
        return sum(one.plural == kind.plural and one.watch == watch for one in self.requests)

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Yields the port of 127.0.0.1."""
        app = web.Application()
        app.add_routes([web.get("/{path:.*}", self._answer)])
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        if authorization.lower() not in {f"bearer {token}" for token in self.tokens}:
            self.rejected += 1
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        result = discovery(request.path)
        if result is not None:
            return web.json_response(result)
        plural, selector = request.path.rpartition("/")[2], request.query.get("labelSelector", "")
        watch = request.query.get("watch") == "true"
        self.requests.append(Request(plural, watch, selector, authorization))
        watcher = _Watcher(plural, selector, asyncio.Queue())
        if watch:
            return await self._watch(request, watcher)
        items = [one for one in self._objects.values() if _matches(one, watcher)]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.Request, watcher: _Watcher) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion", "0"))
        for one in self._objects.values():
            if _matches(one, watcher) and int(one["metadata"]["resourceVersion"]) > since:
                watcher.events.put_nowait({"type": "MODIFIED", "object": one})
        self._watchers.append(watcher)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while event := await watcher.events.get():
                self.sent.append((watcher.plural, event["type"], event["object"]["metadata"]["name"]))
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watchers.remove(watcher)
        return response


def discovery(path: str) -> Document | None:
    """The documents from which a client learns the kinds; None for the path of a kind."""
    names = {kind.api_version for kind in _KNOWN}
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        return {"groups": [_group(name) for name in sorted(names - {"v1"})]}
    for name in names:
        if path == (f"/apis/{name}" if "/" in name else f"/api/{name}"):
            return {"resources": list(_resources(name))}
    return None


def _group(name: str) -> Document:
    version = {"groupVersion": name, "version": name.partition("/")[2]}
    return {"name": name.partition("/")[0], "versions": [version], "preferredVersion": version}


def _resources(api_version: str) -> Iterator[Document]:
    for kind in _KNOWN:
        if kind.api_version == api_version:
            yield {
                "name": kind.plural,
                "kind": kind.kind,
                "namespaced": True,
                "verbs": VERBS,
                "singularName": "",
            }


def _matches(document: Document, watcher: _Watcher) -> bool:
    labels = document["metadata"]["labels"]
    terms = [term.partition("=") for term in watcher.selector.split(",") if term]
    wanted = all(key in labels and (not equal or labels[key] == value) for key, equal, value in terms)
    return wanted and _PLURALS[document["kind"]] == watcher.plural
