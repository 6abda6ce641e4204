"""An operator that is killed at a chosen call, before it or after it took effect.

This proves that a kill -9 between any two calls reaches the same end. From the moment of its death no request
of the operator gets through any more, neither to the apiserver nor to the log service, whatever its tasks and
threads still do, as with a process.
"""

import builtins
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol, cast

from loghub.client.port import Credentials, LogHub
from loghub_operator.clients.kube import Kind, Kube
from loghub_operator.clients.log_service import Connect
from loghub_operator.leader.fencing import READS
from tests.loghub_operator.support.examples import Document

When = Literal["before", "after"]


class Killed(BaseException):
    """No handler of exceptions lives on after this."""


class Doom(Protocol):
    """Chooses the moment."""

    def strikes(self, site: str, when: When, *, write: bool) -> bool: ...


class Never:
    """Records the calls, and kills nothing."""

    def __init__(self) -> None:
        self.sites: list[str] = []
        self.writes: list[str] = []

    def strikes(self, site: str, when: When, *, write: bool) -> bool:
        if when == "before":
            self.sites.append(site)
            if write:
                self.writes.append(site)
        return False


class EachSiteOnce:
    """Every kind of write: before it, and, when it is tried again, after it. Reads: before."""

    def __init__(self) -> None:
        self.struck: list[tuple[str, When]] = []

    def strikes(self, site: str, when: When, *, write: bool) -> bool:
        due: list[tuple[str, When]] = [(site, "before"), (site, "after")] if write else [(site, "before")]
        still = [one for one in due if one not in self.struck]
        if not still or still[0] != (site, when):
            return False
        self.struck.append((site, when))
        return True


class AtCall:
    """The n-th call, or the n-th write, from 0."""

    def __init__(self, number: int, when: When) -> None:
        self._left = number
        self._when = when
        self.struck = ""

    def strikes(self, site: str, when: When, *, write: bool) -> bool:
        if self.struck or when != self._when or (when == "after" and not write):
            return False
        self._left -= 1
        if self._left < 0:
            self.struck = f"{when} {site}"
        return bool(self.struck)


class Fate:
    """One life of the operator. ``died`` is called once, from whatever thread it happens in."""

    def __init__(self, doom: Doom, died: Callable[[], None]) -> None:
        self._doom = doom
        self._died = died
        self._lock = threading.Lock()
        self._dead = False

    @contextmanager
    def around(self, site: str, *, write: bool) -> Any:
        self._pass(site, "before", write=write)
        yield
        self._pass(site, "after", write=write)

    def _pass(self, site: str, when: When, *, write: bool) -> None:
        with self._lock:
            if not self._dead and self._doom.strikes(site, when, write=write):
                self._dead = True
                self._died()
            if self._dead:
                raise Killed(f"{when} {site}")


class MortalKube:
    """The Kubernetes port of one life."""

    def __init__(self, kube: Kube, fate: Fate) -> None:
        self._kube = kube
        self._fate = fate

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        with self._fate.around(f"get {kind.kind}", write=False):
            return await self._kube.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> builtins.list[Document]:
        with self._fate.around(f"select {kind.kind}", write=False):
            return await self._kube.list(kind, namespace, labels)

    async def versions(self, kind: Kind, namespace: str) -> dict[tuple[str, str, str], str]:
        with self._fate.around(f"versions {kind.kind}", write=False):
            return await self._kube.versions(kind, namespace)

    async def warnings(self, namespace: str, uid: str) -> builtins.list[Document]:
        return await self._kube.warnings(namespace, uid)  # a read like the others, but not in every life

    async def create(self, document: Document) -> Document:
        with self._fate.around(f"create {document['kind']}", write=True):
            return await self._kube.create(document)

    async def apply(self, document: Document, *, subresource: str = "") -> Document:
        site = f"apply {document['kind']} {subresource or _parts(document)}"
        with self._fate.around(site, write=True):
            return await self._kube.apply(document, subresource=subresource)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None:
        with self._fate.around(f"merge {kind.kind} {_parts(patch)}", write=True):
            return await self._kube.patch(kind, namespace, name, patch)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str = "") -> bool:
        with self._fate.around(f"delete {kind.kind}", write=True):
            return await self._kube.delete(kind, namespace, name, uid=uid)


def _parts(document: Document) -> str:
    """The parts that are written distinguish calls of the same verb and kind."""
    metadata = set(document.get("metadata", {})) - {"name", "namespace", "uid", "resourceVersion"}
    return ",".join(sorted(metadata | (set(document) - {"apiVersion", "kind", "metadata"})))


class _MortalClient:
    def __init__(self, client: LogHub, fate: Fate) -> None:
        self._client = client
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def mortal(*args: Any, **kwargs: Any) -> Any:
            with self._fate.around(f"log service {name}", write=name not in READS):
                return call(*args, **kwargs)

        return call if name == "close" else mortal


def mortal_connect(connect: Connect, fate: Fate) -> Connect:
    def opened(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(LogHub, _MortalClient(connect(endpoint, project, credentials), fate))

    return opened
