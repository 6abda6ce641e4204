"""The commands `loghub up`, `down` and `serve`.

`up` validates the object, locks its folder, cleans up after an earlier run that was killed, finds or starts
the log service, creates the project and the logstores if asked to (`--create-logstore`), runs the group
(`loghub_cli.up.runner`), and stops it.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loghub.client import target
from loghub.client.port import LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import SystemClock
from loghub.near_names import did_you_mean
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_cli.up.backend import reject_cluster_references
from loghub_cli.up.client_endpoint import PROTOCOLS, AddressInUse
from loghub_cli.up.credentials import missing_keys, read_folder, remove_folder, write_folder
from loghub_cli.up.embedded_service import KEYS, STARTING, EmbeddedService, known_endpoint, service_meant
from loghub_cli.up.folder_identity import Ownership
from loghub_cli.up.live_view import Screen
from loghub_cli.up.manifest import CrFile, apiserver_message
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import GroupFolder, InUseError, Root, is_locked, locked, process_that_uses
from loghub_cli.up.runner import LocalGroup, RunContext, connect
from loghub_cli.up.service_options import ServiceOptions, address_file
from loghub_cli.up.stopping import Interrupted, Stopping, stopped_by_signals
from loghub_cli.up.supervisor import end_orphans
from loghub_cli.up.waiting import WaitingScreen
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, fields, parse_resource
from loghub_operator.api.v1alpha1 import EMBEDDED
from loghub_operator.logservice.access import LogServiceUnavailable, insecure_endpoint

_ALREADY_EXISTS = (Code.PROJECT_ALREADY_EXIST, Code.LOG_STORE_ALREADY_EXIST)


def create_sources(client: LogHub, resource: LogHubConsumerGroup, *, shards: int) -> tuple[str, ...]:
    """Returns a description of each created object; existing objects stay unchanged. Raises
    `LogHubException`."""
    created = []
    if not client.project_exists() and _create_if_missing(
        lambda: client.create_project("created by loghub up")
    ):
        created.append(f"project {client.project}")
    created += [
        f"logstore {logstore} with {shards} shards"
        for logstore in _logstores(client, resource)
        if not client.logstore_exists(logstore)
        and _create_if_missing(partial(client.create_logstore, logstore, shards=shards))
    ]
    return tuple(created)


def _logstores(client: LogHub, resource: LogHubConsumerGroup) -> tuple[str, ...]:
    spec, sink = resource.spec, resource.spec.pipeline.logstore_sink
    ours = sink is not None and (sink.project or spec.project) == client.project
    target = sink.name if sink is not None and ours else None
    named = (spec.logstore, target, spec.pipeline.retry_logstore, spec.dead_letter_logstore)
    return tuple(name for name in named if name is not None)


def _create_if_missing(create: Callable[[], None]) -> bool:
    try:
        create()
    except LogHubError as error:
        if error.code in _ALREADY_EXISTS:  # another client was faster
            return False
        raise
    return True


DONE, FAILED = 0, 1
POLL_S = 0.2  # an awaited condition takes seconds, and a look costs no request
_STOPPED = "stopped; the workers stay members of the group until its timeout"


class StartFailed(Exception):  # noqa: N818 - says what happened
    """A problem that the user must correct before anything can run."""


class Refused(Exception):  # noqa: N818 - says what happened
    """The object is invalid, or the change to it is forbidden; worded as by `kubectl apply`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """``endpoint`` is the URL that "embedded" refers to; None: an embedded service on this machine."""

    root: Root
    file: Path
    name: str | None
    endpoint: str | None
    allowed_http_hosts: tuple[str, ...]
    endpoints: Mapping[str, str]  # protocol -> HOST:PORT, of the embedded service
    create_logstore: bool
    shards: int
    wait_for: str | None  # ready | caught-up
    timeout: float | None  # seconds for wait_for
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOptions:
    """Exactly one of ``file`` and ``name`` is set. The group is at the log service where it was up; another
    ``endpoint`` is a mistake."""

    root: Root
    file: Path | None
    name: str | None
    endpoint: str | None
    allowed_http_hosts: tuple[str, ...]


async def up(options: UpOptions) -> int:
    """Runs until a signal, `loghub down`, or the state in ``wait_for``, without which it fails. Raises
    `InvalidResourceError`, `Refused`, `StartFailed`, `InUseError`, `ServiceStartError`."""
    # 1. Everything that can be wrong with the file is found before anything is written or started.
    file = CrFile(options.file, options.name, embedded=options.endpoint)
    document = file.read()
    folder = _checked_folder(options.root, document)
    _reject_cluster_references(file, document)
    options.root.use()
    _remove_forgotten_keys(options.root)
    # 2. The lock is held to the end, so that no other `up` or `down` runs the group meanwhile.
    with locked(folder.lock), stopped_by_signals() as stopping:
        _reject_copy(folder)
        record = _accept(folder, document)
        folder.down.unlink(missing_ok=True)
        title, clock = f"{record.document['metadata']['name']} on this machine", SystemClock()
        screen = WaitingScreen(
            title, wait_for=options.wait_for, live=options.live, clock=clock, stop=stopping.requested
        )
        if options.timeout is not None:
            asyncio.get_running_loop().call_later(options.timeout, stopping.requested.set)
        # 3. Workers that were left running would be consumers of the same names as the new ones.
        with screen:
            _end_orphans(screen, folder)
            try:
                released = await _run(options, record, file, screen, stopping)
                screen.say("taken down" if released else _STOPPED)
            except Interrupted as error:
                screen.say(str(error))
                if options.wait_for is None:
                    return FAILED
    if screen.failure:
        print(f"loghub: {screen.failure}", file=sys.stderr)  # noqa: T201 - the program's output
        return FAILED
    return DONE


async def _run(
    options: UpOptions, record: LocalObject, file: CrFile, screen: WaitingScreen, stopping: Stopping
) -> bool:
    """Whether the group was taken down. Raises `Interrupted`."""
    async with AsyncExitStack() as stack:
        context = await stopping.unless_requested(
            stack.enter_async_context(_context_of(options, record, screen.say, options.endpoints))
        )
        for protocol in PROTOCOLS:
            if protocol.name in context.endpoints:
                address = context.endpoints[protocol.name]
                screen.keep(protocol.how_to_log_in(address, context.credentials_dir, tls=context.tls))
        if options.create_logstore:
            await stopping.unless_requested(_create(record.resource(), context, options.shards, screen))
        group = LocalGroup(record, file=file, context=context, observer=screen)
        stopping.on_force(group.supervisor.kill)
        await group.run(stopping.requested)
    return group.rounds.released


async def down(options: DownOptions) -> int:
    """Takes a group down, through the process that runs it if there is one. Raises the errors of `up`."""
    folder = _named_folder(options)
    record = LocalObject.load(folder)
    if record is None:
        hint = did_you_mean(folder.folder.name, options.root.group_names())
        raise StartFailed(f"{folder.folder.name} is not up: no state found in {folder.folder}{hint}")
    _reject_another_endpoint(options, record.resource())
    _reject_copy(folder)
    released = await _taken_down_by_its_owner(folder) or await _take_down(options, folder)
    if released:
        print(f"{folder.folder.name} is taken down")  # noqa: T201 - the program's output
    return DONE if released else FAILED


@contextlib.contextmanager
def _recorded(folder: GroupFolder) -> Iterator[None]:
    """What will be deleted is on disk before anything is, so that a `down` that ends early is gone on with.
    Raises `StartFailed` where the disk does not take it, for example since it is full."""
    try:
        yield
    except OSError as error:
        raise StartFailed(
            f"{folder.folder.name} is not taken down, and nothing of it is changed: {folder.folder} takes no"
            f" note of it ({error.strerror or error}); make room there and run `loghub down` again"
        ) from None


async def _taken_down_by_its_owner(folder: GroupFolder) -> bool:
    """False if no process runs the group, or if that process stopped before it took the group down."""
    if not is_locked(folder.lock):
        return False
    with _recorded(folder):
        folder.down.touch()
    waits = f"loghub: the `loghub up` that runs {folder.folder.name} takes it down, and is waited for"
    print(waits, file=sys.stderr, flush=True)  # noqa: T201 - the program's output
    while is_locked(folder.lock):
        await asyncio.sleep(POLL_S)
    # An `up` that began just then has removed the request together with the requests of earlier runs, and not
    # the object.
    return not folder.down.exists() and not folder.object.exists()


async def _take_down(options: DownOptions, folder: GroupFolder) -> bool:
    with contextlib.ExitStack() as held:
        with _recorded(folder):
            held.enter_context(locked(folder.lock))
        stopping = held.enter_context(stopped_by_signals())
        record = LocalObject.load(folder)
        if record is None:  # the process that ran the group took it down after all
            return True
        _reject_another_policy(options, record.resource())
        clock = SystemClock()
        with _recorded(folder):
            record.set_deleted(clock.unix_s())
        with Screen(title=folder.folder.name, clock=clock, notes=tuple, live=False) as screen:
            _end_orphans(screen, folder)
            async with AsyncExitStack() as stack:
                context = await stopping.unless_requested(
                    stack.enter_async_context(_context_of(options, record, screen.say))
                )
                group = LocalGroup(record, file=None, context=context, observer=screen)
                stopping.on_force(group.supervisor.kill)
                await group.run(stopping.requested)
    return group.rounds.released


def serve(root: Root, listen: str, options: ServiceOptions) -> int:
    """Replaces this process with the embedded service. Raises `StartFailed` and `InUseError`."""
    root.use()
    folder = root.service
    folder.mkdir(exist_ok=True)
    data = folder / "data"
    with locked(folder / STARTING):
        process = process_that_uses(data)
        if process:
            where = known_endpoint(folder)
            raise StartFailed(f"a service runs on {data} already, at {where}: end process {process} first")
        try:
            options.prepare(folder)
        except AddressInUse as error:
            raise StartFailed(str(error)) from None
    command = [
        *(sys.executable, "-P", "-m", "loghub_service", "--data", str(data), "--listen", listen),
        *("--port-file", str(address_file(folder)), "--log-format", "console"),
        *options.arguments(folder),
    ]
    print(f"directory with data and access key: {data}", flush=True)  # noqa: T201 - the program's output
    for protocol, endpoint in options.served():
        address = endpoint.advertise or endpoint.address
        shown = protocol.how_to_log_in(address, folder / KEYS, tls=options.tls_cert is not None)
        print(shown, flush=True)  # noqa: T201 - the program's output
    os.execv(sys.executable, command)  # noqa: S606 - without a shell, on purpose


@asynccontextmanager
async def run_context(
    root: Root,
    resource: LogHubConsumerGroup,
    allowed_http_hosts: tuple[str, ...] = (),
    *,
    say: Callable[[str], None],
    endpoints: Mapping[str, str] | None = None,
) -> AsyncIterator[RunContext]:
    """Provides the log service and the access key; stops and removes at the end what it started or wrote.

    ``say`` shows a line to the user. ``endpoints`` are the addresses at which the embedded service serves
    clients of other protocols, by the name of the protocol.
    """
    clock = SystemClock()
    url = resource.spec.endpoint
    if url != EMBEDDED:
        if endpoints:
            flag = " and ".join(f"--{name}" for name in endpoints)
            raise StartFailed(f"{flag} is for the embedded service of this machine; the group is at {url}")
        _reject_insecure(url, allowed_http_hosts)
        folder = root.group(resource.metadata.name).credentials
        missing = missing_keys(os.environ)
        if missing is not None:
            raise StartFailed(f"{url} needs an access key: {missing.message}")
        write_folder(folder, os.environ)
        try:
            yield RunContext(root=root, endpoint=url, credentials_dir=folder, clock=clock)
        finally:
            remove_folder(folder)
        return
    service = EmbeddedService(root, say=say, endpoints=endpoints)
    try:
        await service.ensure()
        keeper = asyncio.create_task(service.keep_running())
        try:
            yield RunContext(
                root=root,
                endpoint=service.endpoint,
                credentials_dir=service.credentials_dir,
                clock=clock,
                endpoints=service.addresses,
            )
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
    finally:
        await service.end()


def _context_of(
    options: UpOptions | DownOptions,
    record: LocalObject,
    say: Callable[[str], None],
    endpoints: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[RunContext]:
    hosts = options.allowed_http_hosts
    return run_context(options.root, record.resource(), hosts, say=say, endpoints=endpoints)


def _reject_insecure(url: str, allowed_http_hosts: tuple[str, ...]) -> None:
    host = target.split_endpoint(url)[1]
    remedy = f"allow this host with --allow-http {host.strip('[]')}"
    why = insecure_endpoint(url, allowed_http_hosts, remedy=remedy)
    if why is not None:
        raise StartFailed(why.message)


def _accept(folder: GroupFolder, document: dict[str, Any]) -> LocalObject:
    """Accepts the object, which is also validated against the object of an earlier run."""
    try:
        return LocalObject.accept(folder, document)
    except InvalidResourceError as error:
        raise Refused(apiserver_message(document, error)) from None


def _checked_folder(root: Root, document: dict[str, Any]) -> GroupFolder:
    try:
        return root.group(parse_resource(document).metadata.name)
    except InvalidResourceError as error:
        raise Refused(apiserver_message(document, error)) from None


def _reject_cluster_references(file: CrFile, document: dict[str, Any]) -> None:
    resource = parse_resource(document)
    try:
        reject_cluster_references(resource, file.code(resource))
    except InvalidResourceError as error:
        raise Refused(apiserver_message(document, error)) from None


def _reject_another_endpoint(options: DownOptions, resource: LogHubConsumerGroup) -> None:
    requested, current, service = options.endpoint, resource.spec.endpoint, options.root.service
    if requested is not None and service_meant(requested, service) != service_meant(current, service):
        where = "the embedded service on this machine" if current == EMBEDDED else current
        raise StartFailed(
            f"{resource.metadata.name} is up at {where}, not at {requested}; leave out --endpoint"
        )


def _reject_another_policy(options: DownOptions, resource: LogHubConsumerGroup) -> None:
    """`up` applies what is saved while it runs. What was saved since then is not applied, and by this field
    the checkpoints may be lost."""
    if options.file is None:
        return
    in_file = parse_resource(CrFile(options.file, options.name).read()).spec.deletion_policy
    applied, name = resource.spec.deletion_policy, resource.metadata.name
    if in_file != applied:
        raise StartFailed(
            f"{options.file} has deletionPolicy {in_file}, but {name} was last up with {applied}, and nothing"
            f" has applied the change: run `loghub up` with it, or `loghub down --name {name}`, for {applied}"
        )


def _remove_forgotten_keys(root: Root) -> None:
    """Of groups whose process was killed before it could remove them."""
    for group in map(root.group, root.group_names()):
        if not (group.credentials.is_dir() and any(group.credentials.iterdir())) or is_locked(group.lock):
            continue
        with contextlib.suppress(InUseError), locked(group.lock):
            remove_folder(group.credentials)


def _reject_copy(folder: GroupFolder) -> None:
    """Two groups of one name at one log service would have consumers of the same names, and each log twice.
    The embedded service of a copied folder is another one than the original's, with groups of its own."""
    original, record = Ownership(folder.folder).copied_from(), LocalObject.load(folder)
    if original is None or record is None or record.resource().spec.endpoint == EMBEDDED:
        return
    raise StartFailed(
        f"{folder.folder} is a copy of {original}: what it says of a group at"
        f" {record.resource().spec.endpoint} is about the group of the original. If nobody uses the original,"
        f" remove {Ownership(folder.folder).note}; for a group of its own, remove {folder.folder} and give"
        " spec.consumerGroup another name"
    )


def _named_folder(options: DownOptions) -> GroupFolder:
    if options.file is not None:
        return _checked_folder(options.root, CrFile(options.file, options.name).read())
    if options.name is None or not fields.matches(fields.NAME, options.name):
        raise StartFailed("specify the group with -f FILE or --name NAME")
    return options.root.group(options.name)


def _end_orphans(screen: Screen, folder: GroupFolder) -> None:
    ended = end_orphans(folder.workers)
    if ended:
        screen.say(f"stopped {ended} processes that an earlier run left behind")


async def _create(resource: LogHubConsumerGroup, context: RunContext, shards: int, screen: Screen) -> None:
    try:
        credentials = read_folder(context.credentials_dir)
        with contextlib.closing(connect(context.endpoint, resource.spec.project, credentials)) as client:
            created = await asyncio.to_thread(create_sources, client, resource, shards=shards)
    except LogServiceUnavailable as error:
        raise StartFailed(str(error)) from None
    except (LogHubException, BadEndpoint) as error:
        raise StartFailed(f"cannot create the project or the logstore: {error}") from None
    for description in created:
        screen.say(f"created {description}")
