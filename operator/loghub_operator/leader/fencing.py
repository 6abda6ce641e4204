"""Prevents writes by an operator that is no longer the leader.

The fence wraps both ways to change something, the Kubernetes port and the log-service clients, so that each
write checks the leader's deadline first. `loghub_operator.leader.elector` extends that deadline. A write that
begins before the deadline may run until ``end_s``; a Kubernetes write that has not ended by then is
abandoned, before another operator begins.
"""

import asyncio
import builtins
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast

from loghub.client.port import Credentials, LogHub
from loghub.clock import Clock
from loghub_operator.clients.kube import Document, Kind, Kube, KubeError
from loghub_operator.clients.log_service import Connect
from loghub_operator.model.actions import ActionRefused

T = TypeVar("T")
NOT_OURS = "this operator does not hold the lease (any more)"
# Every other method changes something.
READS = frozenset(
    {
        "list_projects", "get_project", "get_logstore",
        "project_exists", "logstore_exists", "list_logstores", "list_shards", "get_cursor", "get_cursor_time",
        "pull_logs", "pull_packed", "list_groups", "get_checkpoints", "has_extensions", "group_status",
        "list_kafka_groups", "close",
        "has_polls", "await_ends", "await_group",
        "has_subscriptions", "list_subscriptions", "subscription_status",
    }
)  # fmt: skip


class WriteFence:
    """The time until which writes are allowed. Used from the event loop and from the log-service threads."""

    def __init__(
        self, clock: Clock, *, deadline_s: float = float("-inf"), end_s: float | None = None
    ) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._end_s = deadline_s if end_s is None else end_s
        self._lock = threading.Lock()
        self._under_way = 0

    def extend(self, *, deadline_s: float, end_s: float) -> None:
        """Both in monotonic seconds: no write begins after ``deadline_s`` or continues after ``end_s``."""
        self._deadline_s, self._end_s = deadline_s, end_s

    def close(self) -> None:
        """From now on, no write begins."""
        self._deadline_s = float("-inf")

    @property
    def open(self) -> bool:
        return self._clock.monotonic_s() < self._deadline_s

    @property
    def left_s(self) -> float:
        """Seconds that a write may take if it begins now."""
        return self._end_s - self._clock.monotonic_s()

    @property
    def under_way(self) -> int:
        """Number of writes that have begun and not ended, in threads too."""
        return self._under_way

    def __enter__(self) -> None:
        with self._lock:
            self._under_way += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._under_way -= 1


def unfenced(clock: Clock) -> WriteFence:
    """A fence for a single operator without leader election: it has no deadline."""
    return WriteFence(clock, deadline_s=float("inf"))


class FencedKube:
    """A `Kube` that writes only while the fence allows it."""

    def __init__(self, kube: Kube, fence: WriteFence) -> None:
        self._kube = kube
        self._fence = fence

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        return await self._kube.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> builtins.list[Document]:
        return await self._kube.list(kind, namespace, labels)

    async def versions(self, kind: Kind, namespace: str) -> dict[tuple[str, str, str], str]:
        return await self._kube.versions(kind, namespace)

    async def warnings(self, namespace: str, uid: str) -> builtins.list[Document]:
        return await self._kube.warnings(namespace, uid)

    async def create(self, document: Document) -> Document:
        return await self._write(lambda: self._kube.create(document))

    async def apply(self, document: Document, *, subresource: str = "") -> Document:
        return await self._write(lambda: self._kube.apply(document, subresource=subresource))

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None:
        return await self._write(lambda: self._kube.patch(kind, namespace, name, patch))

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str = "") -> bool:
        return await self._write(lambda: self._kube.delete(kind, namespace, name, uid=uid))

    async def _write(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._fence.open:
            raise KubeError(0, "NotLeading", NOT_OURS)
        left_s = self._fence.left_s
        try:
            with self._fence:
                async with asyncio.timeout(None if left_s == float("inf") else left_s):
                    return await call()
        except TimeoutError as error:
            raise KubeError(0, "NotLeading", NOT_OURS) from error


class _FencedClient:
    """A `LogHub` that writes only while the fence allows it. Its calls have their own time limits."""

    def __init__(self, client: LogHub, fence: WriteFence) -> None:
        self._client = client
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return call if name in READS else self._checked(call)

    def _checked(self, call: Callable[..., T]) -> Callable[..., T]:
        def checked(*args: Any, **kwargs: Any) -> T:
            with self._fence:
                if not self._fence.open:
                    raise ActionRefused(NOT_OURS)
                return call(*args, **kwargs)

        return checked


def fenced_connect(connect: Connect, fence: WriteFence) -> Connect:
    """Wraps ``connect`` so that its clients write only while the fence allows it."""

    def fenced(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(LogHub, _FencedClient(connect(endpoint, project, credentials), fence))

    return fenced
