"""An HTTP server in place of a worker's ``/status``, for tests of the operator's requests over real
connections.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from loghub.contract.worker import STATUS_PATH, ShardProgress, WorkerStatus

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, path: str = STATUS_PATH) -> AsyncIterator[str]:
    """The ``host:port`` of a server with this one route."""
    app = web.Application()
    app.router.add_get(path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


def returning(status: WorkerStatus) -> Handler:
    """Always returns this status."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(status))

    return handler


def shard(number: int, *, draining: bool = False) -> ShardProgress:
    return ShardProgress(shard=number, cursor=None, checkpoint=None, logs=0, lag_s=None, draining=draining)


def worker_status(*shards: ShardProgress, **changed: Any) -> WorkerStatus:
    """The status of a member of the group that holds these shards."""
    status = WorkerStatus(
        consumer="access-0",
        phase="running",
        reason="",
        message="",
        rows_written=0,
        last_heartbeat_age_s=1.0,
        shards=list(shards),
        written_at=5.0,
    )
    return msgspec.structs.replace(status, **changed)
