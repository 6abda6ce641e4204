"""The lifecycle of one service process: lock, listening, recovery, background tasks, clean shutdown.

This is the composition root: it connects the engine, the ASGI application and uvicorn.

A lock that gives one process exclusive ownership of the data directory, for as long as it has its name.

Two services that write to the same files would corrupt them, so the second one fails at startup. The lock
moves with the directory: once it has another name, a second service may use a new directory of the old one.
So `OwnedDisk` changes nothing by a name that does not lead to the locked directory any more.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from loghub.atomic_file import replace_file
from loghub.listening import listen
from loghub.wire import names
from loghub_service.access_keys import CredentialsFolder, own_folder
from loghub_service.engine import Engine
from loghub_service.errors import ServiceFault
from loghub_service.http import routes
from loghub_service.http.app import Application
from loghub_service.http.gate import AdminApplication, StartGate
from loghub_service.http.metrics import ProcessFacts, RequestMetrics, ServiceExposition, Serving
from loghub_service.http.server import HttpServer, ServerTls, Shared
from loghub_service.kafka.store.endpoint import KafkaEndpoint, endpoint_of
from loghub_service.log_setup import LogLines
from loghub_service.ports import Disk, File, Platform
from loghub_service.pulsar.store.endpoint import PulsarEndpoint, pulsar_endpoint_of
from loghub_service.retention import Retention
from loghub_service.settings import EndpointSettings, ServiceSettings
from loghub_service.start import RecoveryProgress, StartCancelled, open_engine

LOCK_NAME = "lock"


class DataDirInUse(ServiceFault):
    """Another process holds the lock; the message names the folder and that process."""


class OwnedDisk:
    """The disk of the process that holds the lock of ``data``.

    What creates, renames or removes something raises OSError if the directory was moved or removed meanwhile;
    ``directory`` is its open descriptor.
    """

    def __init__(self, disk: Disk, data: str, directory: int) -> None:
        self._disk, self._data, self._directory = disk, data, directory
        self.open = disk.open
        self.list_names = disk.list_names
        self.list_tree = disk.list_tree
        self.free_bytes = disk.free_bytes
        self.sync_dir = disk.sync_dir

    def check(self) -> None:
        """Raises OSError if the path does not lead to the locked directory any more."""
        try:
            if os.path.samestat(os.stat(self._data), os.fstat(self._directory)):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return  # says nothing about the directory
        raise OSError(
            errno.ESTALE,
            "the data directory was moved, removed or replaced while it was in use; what was acknowledged is "
            "where it was moved to",
            self._data,
        )

    def create(self, path: str) -> File:
        self.check()
        return self._disk.create(path)

    def rename(self, old: str, new: str) -> None:
        self.check()
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self.check()
        self._disk.remove(path)

    def remove_dir(self, path: str) -> None:
        self.check()
        self._disk.remove_dir(path)

    def make_dirs(self, path: str) -> None:
        self.check()
        self._disk.make_dirs(path)


@contextmanager
def owned(disk: Disk, data: str) -> Iterator[OwnedDisk]:
    """Hold the lock for the duration of the block. Raises DataDirInUse.

    The kernel releases the lock when the process ends, even if it crashes.
    """
    disk.make_dirs(data)
    fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, data)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield OwnedDisk(disk, data, directory)
        finally:
            os.close(directory)
    finally:
        os.close(fd)


@contextmanager
def unused(data: str) -> Iterator[None]:
    """Keep a service from using the folder for the duration of the block, without writing to the folder.

    Raises DataDirInUse.
    """
    try:
        fd = os.open(os.path.join(data, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield  # no service was ever started on it
        return
    try:
        _lock(fd, data)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, data: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise DataDirInUse(f"data directory {data} is in use by process {holder}") from error


_log = structlog.get_logger("loghub_service")
_REFRESH_S = 1.0  # a changed file of keys, names or certificates counts after this time; a look is a `stat`
_PRODUCERS_S = 10.0  # a restart reads again what producers wrote since
_BACKLOG = 1024  # clients that come at once after a restart; the kernel bounds it by `somaxconn`
_THREADS = 8  # their number bounds how many responses are built at once, on a machine of any size
_ADMIN_CONNECTIONS = 64  # kubelet and Prometheus have a few each


class StorageStopped(ServiceFault):
    """The service stopped because its storage failed. A restart recovers everything that was acknowledged."""


async def serve(settings: ServiceSettings, platform: Platform, lines: LogLines) -> None:
    """Run the service until SIGTERM or SIGINT. Raises DataDirInUse, DataRefused, CredentialsMissing, OSError,
    StorageStopped."""
    stop = _stop_on_signals()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    with owned(platform.disk, settings.data) as disk, ExitStack() as stack:
        folder = settings.credentials_dir or own_folder(settings.data, platform.random)
        files = _Files(credentials=CredentialsFolder(folder), tls=_tls(settings))
        _log.info("access keys read", folder=folder, generated=settings.credentials_dir is None)
        listener = stack.enter_context(contextlib.closing(_listen((settings.host, settings.port))))
        admin_listener = None
        if settings.admin is not None:
            admin_listener = stack.enter_context(contextlib.closing(_listen(settings.admin)))
        kafka, pulsar = (
            None if endpoint is None else stack.enter_context(_listening(endpoint))
            for endpoint in (settings.kafka, settings.pulsar)
        )
        listeners = _Listeners(api=listener, admin=admin_listener, kafka=kafka, pulsar=pulsar)
        process = _Process(stop=stop, check_owned=disk.check, lines=lines)
        await _run(settings, replace(platform, disk=disk), files, listeners, process)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What is read again when it changes."""

    credentials: CredentialsFolder
    tls: ServerTls | None

    def by_name(self) -> dict[str, CredentialsFolder | ServerTls]:
        return {"access keys": self.credentials} | ({"TLS certificate": self.tls} if self.tls else {})

    def problems(self) -> dict[str, str]:
        return {name: files.problem for name, files in self.by_name().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """``check_owned`` raises OSError if the data directory was moved."""

    stop: asyncio.Event
    check_owned: Callable[[], None]
    lines: LogLines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listeners:
    api: socket.socket
    admin: socket.socket | None
    kafka: socket.socket | None
    pulsar: socket.socket | None


async def _run(
    settings: ServiceSettings,
    platform: Platform,
    files: _Files,
    listeners: _Listeners,
    process: "_Process",
) -> None:
    stop = process.stop
    failed: list[BaseException] = []

    def on_failed(error: BaseException) -> None:
        _log.critical("storage failed, the service stops", error=str(error))
        failed.append(error)
        stop.set()

    async def check_folder() -> None:
        try:
            await asyncio.to_thread(process.check_owned)
        except OSError as error:
            if not failed:
                on_failed(error)

    progress = RecoveryProgress()
    ports = _ports(settings, platform, files, listeners, progress, process.lines)
    serving = asyncio.gather(*(server.serve() for server in ports.servers))
    stopper = asyncio.create_task(_end(ports.servers, stop, progress))
    try:
        engine = await open_engine(settings, platform, on_failed=on_failed, progress=progress)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            ports.open(engine, files)
            for endpoint in _endpoints(engine, files, listeners):
                stack.push_async_callback(endpoint.close)
                endpoint.start()
                ports.exposition.endpoints.append(endpoint)
            _announce_endpoints(settings, listeners)
            _log.info("serving", shards=progress.shards)
            upkeep = [*_upkeep(engine, files), _every(_REFRESH_S, check_folder)]
            await _serve_until_the_end(engine, upkeep, serving, stop)
    except StartCancelled:
        pass  # by the signal, which also ends the servers
    finally:
        for server in ports.servers:
            server.should_exit = True
        await serving
        stopper.cancel()
    _log.info("stopped")
    if failed:
        raise StorageStopped(f"storage failed: {failed[0]}")


def _endpoints(
    engine: Engine, files: _Files, listeners: _Listeners
) -> Iterator[KafkaEndpoint | PulsarEndpoint]:
    """The endpoints of other protocols in the settings, not started yet."""
    settings = engine.settings
    shared = Shared(find_key=files.credentials.find, tls=files.tls.context if files.tls else None)
    if settings.kafka is not None and listeners.kafka is not None:
        yield endpoint_of(engine, settings.kafka, listeners.kafka, shared)
    if settings.pulsar is not None and listeners.pulsar is not None:
        yield pulsar_endpoint_of(engine, settings.pulsar, listeners.pulsar, shared)


async def _serve_until_the_end(
    engine: Engine,
    upkeep: Iterable[Coroutine[None, None, None]],
    serving: "asyncio.Future[list[None]]",
    stop: asyncio.Event,
) -> None:
    async def end_polls() -> None:
        await stop.wait()
        engine.polls.close()  # the servers wait for requests in progress

    async with asyncio.TaskGroup() as tasks:
        loops = [tasks.create_task(loop) for loop in (*upkeep, end_polls())]
        await serving
        for loop in loops:
            loop.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """The API's port and perhaps the admin port. Both listen at once; the recovery opens the API."""

    servers: list[HttpServer]
    api: HttpServer
    gate: StartGate
    metrics: RequestMetrics
    exposition: ServiceExposition

    def open(self, engine: Engine, files: _Files) -> None:
        application = Application(engine, find_key=files.credentials.find, metrics=self.metrics)
        self.exposition.serving = Serving(engine=engine, budgets=application.budgets)
        self.gate.open(application)
        self.api.direct = application.direct


def _ports(
    settings: ServiceSettings,
    platform: Platform,
    files: _Files,
    listeners: _Listeners,
    progress: RecoveryProgress,
    lines: LogLines,
) -> _Ports:
    gate = StartGate(progress=lambda: str(progress), limits=settings.limits, random=platform.random)
    api = HttpServer(
        gate,
        listeners.api,
        limits=settings.limits,
        keep_alive_s=settings.keep_alive_s,
        tls=files.tls.context if files.tls else None,
        on_started=lambda: _announce(settings, listeners.api, lines),
    )
    metrics = RequestMetrics(routes.NAMES)
    exposition = ServiceExposition(
        metrics,
        ProcessFacts(
            progress=progress,
            connections=api.connections,
            problems=files.problems,
            lost_lines=lines.lost,
        ),
    )
    servers = [api]
    if listeners.admin is not None:
        admin = HttpServer(
            AdminApplication(exposition, data=settings.data, api=gate),
            listeners.admin,
            limits=replace(settings.limits, connections=_ADMIN_CONNECTIONS),
            keep_alive_s=settings.keep_alive_s,
        )
        servers.append(admin)
        _log.info("admin port", address=_address_of(listeners.admin))
    return _Ports(servers=servers, api=api, gate=gate, metrics=metrics, exposition=exposition)


def _listening(endpoint: EndpointSettings) -> contextlib.closing[socket.socket]:
    return contextlib.closing(_listen((endpoint.host, endpoint.port)))


def _listen(address: tuple[str, int]) -> socket.socket:
    return listen(*address, backlog=_BACKLOG)


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{names.bracketed(host)}:{port}"


def _announce(settings: ServiceSettings, listener: socket.socket, lines: LogLines) -> None:
    address = _address_of(listener)
    if settings.port_file is not None:
        replace_file(Path(settings.port_file), f"{address}\n".encode())
    _log.info("listening", address=address, data=settings.data)
    lines.announcements.write(f"listening on {address}")


def _announce_endpoints(settings: ServiceSettings, listeners: _Listeners) -> None:
    for name, endpoint, listener in (
        ("Kafka", settings.kafka, listeners.kafka),
        ("Pulsar", settings.pulsar, listeners.pulsar),
    ):
        if endpoint is not None and listener is not None:
            address = _address_of(listener)
            if endpoint.port_file is not None:
                replace_file(Path(endpoint.port_file), f"{address}\n".encode())
            _log.info(f"{name} clients are served", address=address)


def _stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. Call it first, so that a signal during startup also causes a
    clean shutdown."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _end(servers: Iterable[HttpServer], stop: asyncio.Event, progress: RecoveryProgress) -> None:
    await stop.wait()
    progress.cancelled = True
    for server in servers:
        server.should_exit = True


def _tls(settings: ServiceSettings) -> ServerTls | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return ServerTls(settings.tls_certificate, settings.tls_key)


def _upkeep(engine: Engine, files: _Files) -> list[Coroutine[None, None, None]]:
    settings = engine.settings
    retention = Retention(engine)

    async def tick() -> None:
        engine.groups.tick()

    async def refresh() -> None:
        known = files.problems()
        for name, read in files.by_name().items():
            if await asyncio.to_thread(read.refresh):
                _log.info(f"{name} changed")
            if read.problem not in ("", known[name]):
                _log.warning(f"{name} not read, the previous content stays in use", problem=read.problem)

    return [
        _every(settings.tick_interval_s, tick),
        _every(settings.retention_interval_s, retention.look),
        _every(settings.ends_interval_s, engine.ends.save),
        _every(_REFRESH_S, refresh),
        engine.removals.run(),
        engine.kafka_groups.run(),
        engine.producers.run(_PRODUCERS_S),
    ]


async def _every(interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call ``act`` at this interval, forever. A failed call is logged, and the next one follows as usual."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except Exception:  # noqa: BLE001 - it is logged, and the next call may succeed
            _log.exception("background task failed")
