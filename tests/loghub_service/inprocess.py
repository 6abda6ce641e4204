"""The service's ASGI application over an engine in this process, without a network.

The test chooses limits, what arrives of a body and when, and when a client disconnects.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from loghub.client.port import Credentials
from loghub_service.access_keys import AccessKey
from loghub_service.engine import Engine
from loghub_service.http import routes
from loghub_service.http.app import Application
from loghub_service.http.gate import Asgi
from loghub_service.http.metrics import RequestMetrics
from loghub_service.ports import Disk, OsDisk, OsRandom, Platform
from loghub_service.settings import Limits, ServiceSettings
from loghub_service.start import open_engine
from loghub_service.storage.group_commit import StartBatches, ThreadedBatches
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.rawclient import Reply, signed_headers

KEY = Credentials(access_key_id="testKeyId", access_key_secret="testKeySecret")


# Bytes of a body, and whether more follow; None if the client disconnects.
Part = tuple[bytes, bool] | None


@dataclass(slots=True)
class Exchange:
    """One request in progress: what the application requested and sent."""

    arriving: "asyncio.Queue[Part]" = field(default_factory=asyncio.Queue)
    asked: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        part = await self.arriving.get()
        if part is None:
            return {"type": "http.disconnect"}
        body, more = part
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def reply(self) -> Reply | None:
        """The response; None if the application sent none."""
        assert self.task is not None
        await self.task
        if not self.messages:
            return None
        start, *rest = self.messages
        headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        body = b"".join(message["body"] for message in rest)
        return Reply(status=start["status"], headers=headers, body=body)


class InProcess:
    """A running application, with a key for everything."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine = engine
        self.clock = clock
        key = AccessKey(key_id=KEY.access_key_id, secret=KEY.access_key_secret)
        self.metrics = RequestMetrics(routes.NAMES)
        self.app = Application(engine, find_key={key.key_id: key}.get, metrics=self.metrics)

    def begin(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        arrive: Iterable[Part] | None = None,
    ) -> Exchange:
        """Send a signed request. ``arrive`` is what arrives of its body; by default, all of it at once."""
        scope = self.scope(method, path, query, body=body, headers=headers)
        return self.begin_scope(scope, ((body, False),) if arrive is None else arrive)

    def scope(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The ASGI scope of a signed request."""
        query = query or {}
        raw_path = quote(path)
        sent = signed_headers(
            method,
            raw_path,
            query,
            body=body,
            headers={"Host": "demo.127.0.0.1"} | (headers or {}),
            key=KEY,
            unix_s=self.clock.unix_s(),
        )
        return {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": raw_path.encode(),
            "query_string": urlencode(query, quote_via=quote).encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()
            ],
        }

    def begin_scope(
        self, scope: dict[str, Any], arrive: Iterable[Part], *, app: Asgi | None = None
    ) -> Exchange:
        """Send anything, perhaps to another application."""
        exchange = Exchange()
        for part in arrive:
            exchange.arriving.put_nowait(part)
        exchange.task = asyncio.get_running_loop().create_task(
            (app or self.app)(scope, exchange.receive, exchange.send)
        )
        return exchange

    async def ok(self, method: str, path: str, query: dict[str, str] | None = None, **more: Any) -> Reply:
        reply = await self.begin(method, path, query, **more).reply()
        assert reply is not None
        assert reply.status == 200, reply
        return reply

    @property
    def memory_in_use(self) -> tuple[int, ...]:
        """Of PutLogs, of JSON requests, of responses, and of requests that wait for news."""
        return tuple(budget.used for budget in self.app.budgets)


@asynccontextmanager
async def in_process(
    data: Path,
    *,
    limits: Limits | None = None,
    disk: Disk | None = None,
    start_batches: StartBatches = ThreadedBatches,
) -> AsyncIterator[InProcess]:
    """An application whose project ``demo`` has the logstore ``access``, one shard, and the group ``g``."""
    clock = ManualClock()
    failed: list[BaseException] = []
    data.mkdir(exist_ok=True)
    engine = await open_engine(
        ServiceSettings(
            data=str(data), host="127.0.0.1", port=0, segment_bytes=4096, limits=limits or Limits()
        ),
        Platform(clock=clock, disk=disk or OsDisk(), random=OsRandom()),
        on_failed=failed.append,
        start_batches=start_batches,
    )
    try:
        service = InProcess(engine, clock)
        await service.ok("POST", "/", body=b"{}")
        await service.ok("POST", "/logstores", body=b'{"logstoreName":"access","shardCount":1}')
        group = b'{"consumerGroup":"g","timeout":30}'
        await service.ok("POST", "/logstores/access/consumergroups", body=group)
        yield service
    finally:
        await engine.close()
    assert failed == []
