"""Finds or starts the embedded LogHub service of this user.

The service provides `endpoint: embedded` on one machine, as a separate process with durable data (see
``python -m loghub_service --help``). It keeps its port across restarts, so that the endpoint of running
workers remains valid. It listens at once and may then recover its data for a while, which is shown and waited
for. Clients of Kafka and Pulsar are served if `loghub up` or `loghub serve` was asked to (docs/kafka.md,
docs/pulsar.md).
"""

import asyncio
import contextlib
import http.client
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.client.port import Timeouts
from loghub.wire import names
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_cli.up.client_endpoint import (
    PROTOCOLS,
    AddressInUse,
    ClientProtocol,
    EndpointOptions,
    host_and_port,
)
from loghub_cli.up.credentials import without_keys
from loghub_cli.up.paths import InUseError, Root, locked, process_that_uses
from loghub_cli.up.process_plan import restart_pause_s
from loghub_cli.up.service_options import ServiceOptions, address_file, known_address
from loghub_cli.up.worker_process import ChildProgram
from loghub_operator.api.v1alpha1 import EMBEDDED

HOST = "127.0.0.1"
START_GUARD_S = 60.0  # a guard: a start takes a second, and ten on a machine with too much to do
# A guard: after a power cut the service checks its data folder before it answers.
RECOVERY_GUARD_S = 3600.0
HEALTH_TIMEOUT_S = 2.0
STOP_GRACE_S = 20.0  # the service ends its requests and syncs what it has
POLL_S = 0.05
RECOVERY_POLL_S = 0.5
CHECK_INTERVAL_S = 2.0
KEYS = Path("data", "credentials")
STARTING = "starting"  # the lock of who starts a service on the folder
_LOG_TAIL_CHARS = 2000
_LOG_BYTES = 16 << 20  # beyond this size a start begins a new one


class ServiceStartError(Exception):
    """The service did not start, or not as it was asked to; the message says why."""


class EmbeddedService:
    """A service process, started by us or by another process. Belongs to one event loop.

    ``say`` shows a line to the user. ``endpoints`` has the addresses at which clients of other protocols are
    served, by the name of the protocol. ``addresses`` has these once the service runs, with the port that was
    chosen for port 0.
    """

    def __init__(
        self, root: Root, *, say: Callable[[str], None], endpoints: Mapping[str, str] | None = None
    ) -> None:
        self._folder = root.service
        self._say = say
        self._endpoints = endpoints or {}
        self.addresses: dict[str, str] = {}
        self._child: ChildProgram | None = None
        self.endpoint = ""

    @property
    def credentials_dir(self) -> Path:
        """The folder of the service's own access key, which it creates at its first start."""
        return self._folder / KEYS

    @property
    def log(self) -> Path:
        return self._folder / "log"

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def ours(self) -> bool:
        """Whether we started the service and it is running."""
        return self._child is not None and self._child.alive

    async def ensure(self) -> None:
        """Returns once the service answers. Raises `ServiceStartError`."""
        async with self._exclusive():
            endpoint = known_endpoint(self._folder)
            if endpoint and await self._is_usable(endpoint):
                self.endpoint = endpoint
                for protocol in PROTOCOLS:
                    if protocol.name in self._endpoints:
                        await self._find(protocol, self._endpoints[protocol.name])
                return
            options = ServiceOptions(
                endpoints={
                    name: EndpointOptions(address=address) for name, address in self._endpoints.items()
                }
            )
            port = int(endpoint.rpartition(":")[2] or 0)
            try:
                await self._start(port, options)
            except ServiceStartError:
                if port == 0:
                    raise
                await self._start(0, options)  # another process uses the port by now

    async def keep_running(self) -> None:
        """Runs forever: restarts the service on its port whenever it has ended, even if another process had
        started it."""
        failures, said = 0, ""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S + (restart_pause_s(failures) if failures else 0.0))
            try:
                if not (self.ours or await self._is_usable(self.endpoint)):
                    await self._restart()
                failures, said = 0, ""
            except (ServiceStartError, OSError) as error:
                failures += 1
                if str(error) != said:
                    self._say(f"the embedded service is not running, and is tried again: {error}")
                said = str(error)

    async def end(self) -> None:
        """Stops the service if we started it."""
        if self._child is not None:
            await self._child.end(STOP_GRACE_S)

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Serializes all processes that start a service on this data."""
        with contextlib.ExitStack() as stack:
            try:
                async with asyncio.timeout(2 * START_GUARD_S + RECOVERY_GUARD_S):
                    while not _try_lock(stack, self._folder / STARTING):
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                raise ServiceStartError("another process does not come to an end of starting it") from None
            yield

    async def _is_usable(self, endpoint: str) -> bool:
        """Whether the service of our data answers there, after it has recovered the data."""
        await self._recovery(endpoint, lambda: True)
        return await asyncio.to_thread(_is_reachable, endpoint, self.credentials_dir)

    async def _recovery(self, endpoint: str, alive: Callable[[], bool]) -> None:
        """Return once the service there does not recover its data any more; show its progress meanwhile."""
        shown = None
        try:
            async with asyncio.timeout(RECOVERY_GUARD_S):
                while alive():
                    message = await asyncio.to_thread(_recovery_message, endpoint)
                    if message is None:
                        return
                    if message != shown:
                        self._say(f"the embedded log service is {message}")
                        shown = message
                    await asyncio.sleep(POLL_S if shown is None else RECOVERY_POLL_S)
        except TimeoutError:
            raise ServiceStartError(f"the embedded service has not recovered: {shown}") from None

    async def _restart(self) -> None:
        """Restarts it on its port, unless another process did so while we waited for the lock."""
        async with self._exclusive():
            if not await self._is_usable(self.endpoint):
                host, port = host_and_port(self.endpoint.partition("://")[2])
                await self._start(port, self._as_before(), host=host)

    def _as_before(self) -> ServiceOptions:
        """The options of the last start, with the ports that were chosen for clients of other protocols."""
        options = ServiceOptions.read(self._folder)
        chosen = {
            protocol.name: replace(
                endpoint, address=_read(protocol.address_file(self._folder)) or endpoint.address
            )
            for protocol, endpoint in options.served()
        }
        return replace(options, endpoints=chosen)

    async def _find(self, protocol: ClientProtocol, wanted: str) -> None:
        """The endpoint of the service that runs already. Raises `ServiceStartError` if it has none, or one at
        another port."""
        remedy = f"end the `loghub up` or `loghub serve` that started it, or leave out {protocol.flag()}"
        if protocol.name not in ServiceOptions.read(self._folder).endpoints:
            raise ServiceStartError(
                f"the embedded service at {self.endpoint} runs without a {protocol.title} endpoint: {remedy}"
            )
        address = await self._announced(protocol, lambda: True)
        if host_and_port(wanted)[1] not in (0, host_and_port(address)[1]):
            raise ServiceStartError(
                f"the embedded service serves {protocol.title} clients at {address}, not at {wanted}:"
                f" {remedy}"
            )
        self.addresses[protocol.name] = address

    async def _announced(self, protocol: ClientProtocol, alive: Callable[[], bool]) -> str:
        """The address, which the service writes once it accepts such clients."""
        try:
            async with asyncio.timeout(START_GUARD_S):
                while alive():
                    address = _read(protocol.address_file(self._folder))
                    if address:
                        return address
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            pass
        raise ServiceStartError(
            f"the embedded service does not serve {protocol.title} clients (log: {self.log})"
        )

    async def _start(self, port: int, options: ServiceOptions, *, host: str = HOST) -> None:
        # 1. Two services on one data folder, or a port in use, are reported before anything starts.
        process = process_that_uses(self.data)
        if process:
            raise ServiceStartError(
                f"process {process} runs a service on {self.data} that does not answer at"
                f" {known_endpoint(self._folder)}: end it, or let SSL_CERT_FILE name the authority of its"
                " certificate"
            )
        try:
            options.prepare(self._folder)
        except AddressInUse as error:
            raise ServiceStartError(str(error)) from None
        # 2. The service writes to a file of its own first, so that the address in the final file is valid.
        new_address = self._folder / "address.new"
        new_address.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-P", "-m", "loghub_service"),
            *("--data", str(self.data), "--listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
            *("--port-file", str(new_address)),
            *options.arguments(self._folder),
        ]
        _rotate(self.log)
        self._child = child = ChildProgram(
            command, environment=without_keys(os.environ), log=self.log, on_exit=lambda _: None
        )
        # 3. It has an address before its data is recovered, and is usable afterwards.
        try:
            async with asyncio.timeout(START_GUARD_S):
                while child.alive and not new_address.exists():
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            await child.end(0)
        if child.alive:
            # Before the recovery, so that others wait for it instead of starting a second service.
            new_address.replace(address_file(self._folder))
            self.endpoint = known_endpoint(self._folder)
            await self._recovery(self.endpoint, lambda: child.alive)
        for protocol, _ in options.served():
            if child.alive:
                self.addresses[protocol.name] = await self._announced(protocol, lambda: child.alive)
        if not child.alive:
            last_line = _last_words(self.log)
            raise ServiceStartError(f"the embedded service did not start: {last_line} (log: {self.log})")


def known_endpoint(folder: Path) -> str:
    """The URL at which the service of a folder ran last; "" if none has run there."""
    address = known_address(folder)
    return f"{ServiceOptions.read(folder).scheme}://{address}" if address else ""


def service_meant(endpoint: str, folder: Path) -> str:
    """The key of the log service (`hosts.log_service`) that an endpoint means where `folder` is the folder of
    the embedded service: no other URL means one that has not run there yet."""
    return names.log_service(known_endpoint(folder) or endpoint if endpoint == EMBEDDED else endpoint)


def running_at(folder: Path) -> str:
    """The URL of the service of a folder; "" if it does not run. It may recover its data."""
    endpoint = known_endpoint(folder)
    if not endpoint or (_recovery_message(endpoint) is None and not _is_reachable(endpoint, folder / KEYS)):
        return ""
    return endpoint


def running_endpoints(folder: Path) -> Mapping[ClientProtocol, str]:
    """Where the service of a folder serves clients of other protocols; empty if it does not run."""
    options = ServiceOptions.read(folder)
    addresses = {
        protocol: endpoint.advertise or address
        for protocol, endpoint in options.served()
        if (address := _read(protocol.address_file(folder)))
    }
    return addresses if addresses and running_at(folder) else {}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _rotate(log: Path) -> None:
    """One older log is kept, as of a worker."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".1"))


def _last_words(log: Path) -> str:
    return _read(log)[-_LOG_TAIL_CHARS:].strip().rpartition("\n")[2]


def _try_lock(stack: contextlib.ExitStack, lock: Path) -> bool:
    try:
        stack.enter_context(locked(lock))
    except InUseError:
        return False
    return True


def _recovery_message(endpoint: str) -> str | None:
    """How far the recovery of the service there is; None if it does not recover, or nothing answers."""
    scheme, _, address = endpoint.partition("://")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(address, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        health = json.loads(answer.read()) if answer.status == http.client.SERVICE_UNAVAILABLE else {}
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return str(health["message"]) if health.get("status") == "recovering" else None


def _is_reachable(endpoint: str, key_folder: Path) -> bool:
    """Whether the service of this data folder answers: an address of a copied folder is not known here
    (`known_address`), and any other service rejects the key in the folder."""
    try:
        key = read_key(key_folder)
    except OSError:
        return False
    timeouts = Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0)
    with contextlib.closing(HttpLogHub(endpoint, "any", credentials=key, timeouts=timeouts)) as client:
        try:
            return client.has_extensions() and _accepts_key(client)
        except LogHubException:
            return False


def _accepts_key(client: HttpLogHub) -> bool:
    """Whether the service accepts the key: it verifies the signature before it looks up the project."""
    try:
        client.list_logstores()
    except LogHubError as error:
        return error.code == Code.PROJECT_NOT_EXIST
    return True
