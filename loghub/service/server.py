"""The lifecycle of one service process: lock, recovery, listening, background tasks, clean shutdown.

This is the composition root: it connects the engine, the ASGI application and uvicorn.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import structlog
import uvicorn

from loghub.atomic_file import replace_file
from loghub.service import datadir
from loghub.service.credentials import CredentialsFolder, own_folder
from loghub.service.engine import Engine, open_engine
from loghub.service.faults import ServiceFault
from loghub.service.http.app import Application
from loghub.service.http.protocol import BoundedProtocol
from loghub.service.ports import Platform
from loghub.service.settings import ServiceSettings

_log = structlog.get_logger("loghub.service")
_CREDENTIALS_REFRESH_S = 1.0
_GRACEFUL_S = 10
_BACKLOG = 1024


class StorageStopped(ServiceFault):
    """The service stopped because its storage failed. A restart recovers everything that was acknowledged."""


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to `serve`: on SIGTERM the process closes its storage and exits
    with status 0."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()


async def serve(settings: ServiceSettings, platform: Platform) -> None:
    """Run the service until SIGTERM or SIGINT. Raises DataDirInUse, LogDamaged, CredentialsMissing, OSError,
    StorageStopped."""
    stop = _stop_on_signals()
    with datadir.owned(platform.disk, settings.data):
        folder = settings.credentials_dir or own_folder(settings.data, platform.dice)
        credentials = CredentialsFolder(folder)
        _log.info("access key read", folder=folder, generated=settings.credentials_dir is None)
        with contextlib.closing(_listen(settings)) as listener:
            await _run(settings, platform, credentials, listener, stop)


async def _run(
    settings: ServiceSettings,
    platform: Platform,
    credentials: CredentialsFolder,
    listener: socket.socket,
    stop: asyncio.Event,
) -> None:
    failed: list[BaseException] = []

    def on_failed(error: BaseException) -> None:
        _log.critical("storage failed, the service stops", error=str(error))
        failed.append(error)
        stop.set()

    engine = await open_engine(settings, platform, on_failed=on_failed)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        server = _Server(
            _config(settings, Application(engine, key=lambda: credentials.current)),
            on_started=lambda: _announce(settings, listener),
        )
        async with asyncio.TaskGroup() as tasks:
            upkeep = [tasks.create_task(loop) for loop in _upkeep(engine, credentials)]
            stopper = tasks.create_task(_end(server, stop))
            await server.serve(sockets=[listener])
            for task in (*upkeep, stopper):
                task.cancel()
    _log.info("stopped")
    if failed:
        raise StorageStopped(f"storage failed: {failed[0]}")


def _listen(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)


def _config(settings: ServiceSettings, application: Application) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="none",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=_GRACEFUL_S,
        backlog=_BACKLOG,
    )


def _announce(settings: ServiceSettings, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if settings.port_file is not None:
        replace_file(Path(settings.port_file), f"{address}\n".encode())
    _log.info("listening", address=address, data=settings.data)
    print(f"listening on {address}", flush=True)  # noqa: T201 - for the process that started the service


def _stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. Call it first, so that a signal during startup also causes a
    clean shutdown."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _end(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _upkeep(engine: Engine, credentials: CredentialsFolder) -> list[Coroutine[None, None, None]]:
    settings = engine.settings

    async def tick() -> None:
        engine.groups.tick()

    async def refresh() -> None:
        if await asyncio.to_thread(credentials.refresh):
            _log.info("access key changed", folder=credentials.folder)

    return [
        _every(settings.tick_interval_s, tick),
        _every(settings.retention_interval_s, engine.apply_retention),
        _every(_CREDENTIALS_REFRESH_S, refresh),
    ]


async def _every(interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call ``act`` at this interval, forever. A failed call is logged, and the next one follows as usual."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except Exception:  # noqa: BLE001 - it is logged, and the next call may succeed
            _log.exception("background task failed")
