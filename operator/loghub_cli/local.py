"""``loghub up``, ``down``, ``status``, ``serve`` and ``fsck``: groups and the service on this machine.

For an endpoint other than the embedded service, `up` and `down` read the access key from LOGHUB_ACCESS_KEY_ID
and LOGHUB_ACCESS_KEY_SECRET (and LOGHUB_SECURITY_TOKEN for STS).

`loghub status` shows the groups from another terminal. It reads the files of `loghub_cli.up.object_store` and
of the workers, and does not ask the log service about the LogHubConsumerGroups, so it shows what the last
reconcile observed, and when. It asks the embedded service of this machine for the groups of Kafka clients and
the subscriptions of all projects. The workers' own reports may quote logs. They are shown here, to the user
whose logs they are; the conditions of the object never quote one.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from loghub.clock import SystemClock
from loghub.extras import require
from loghub.near_names import did_you_mean
from loghub_cli import kafka_groups, subscription_records
from loghub_cli.commands import Command
from loghub_cli.group_view import (
    Document,
    ShownWorker,
    details,
    name_of,
    overview,
    status_of,
    worker_row,
)
from loghub_cli.kafka_groups import ProjectGroup, groups_of_project, of_all_projects
from loghub_cli.options import ADDRESS, DURATION, ENDPOINT, EXISTING_FILE, FOLDER, format_option
from loghub_cli.output import Failed, Format, InvalidInput, Record, render, utc
from loghub_cli.subscription_records import ProjectSubscription, of_project
from loghub_cli.up.client_endpoint import PROTOCOLS, ClientProtocol, EndpointOptions, is_of_this_machine
from loghub_cli.up.commands import DownOptions, Refused, StartFailed, UpOptions
from loghub_cli.up.commands import down as run_down
from loghub_cli.up.commands import serve as run_serve
from loghub_cli.up.commands import up as run_up
from loghub_cli.up.embedded_service import KEYS, ServiceStartError, running_at, running_endpoints
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import GroupFolder, InUseError, Root, is_locked, owner_only
from loghub_cli.up.service_options import ServiceOptions
from loghub_cli.up.stopping import Interrupted
from loghub_cli.up.worker_process import last_words, read_status
from loghub_operator.api import InvalidResourceError, Phase
from loghub_operator.api.v1alpha1 import EMBEDDED

STOPPED = "Stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnDisk:
    """A group as the last `loghub up` left it, or as the `loghub up` that runs keeps it; its status was
    written at ``as_of_unix_s``."""

    document: Document
    folder: GroupFolder
    is_up: bool
    as_of_unix_s: float


def overview_row(group: GroupOnDisk) -> Record:
    """Only a running process has a phase and workers. Shards and lag are as of the last observation."""
    row = overview(group.document)
    if not group.is_up:
        row["workers"] = None
        if row["phase"] != Phase.TERMINATING:
            row["phase"] = STOPPED
    return {"name": row.pop("name"), "up": group.is_up, **row, "asOf": utc(group.as_of_unix_s)}


def worker_rows(group: GroupOnDisk) -> list[Record]:
    """The workers that should run, by their own reports."""
    return list(_worker_rows(group))


def _worker_rows(group: GroupOnDisk) -> Iterator[Record]:
    for ordinal in range(status_of(group.document).get("replicas", 0)):
        name = f"{name_of(group.document)}-{ordinal}"
        folder = group.folder.worker(name)
        status = read_status(folder)
        if status is None:
            reason, message = last_words(folder) or ("", "")
            ended = ShownWorker("ended" if message else "starting", reason=reason, message=message)
            yield worker_row(name, ended)
            continue
        why = f" ({' '.join(status.why_spark.split())})" if status.why_spark else ""
        report = ShownWorker(
            status.phase,
            shards=sorted(shard.shard for shard in status.shards),
            rows=status.rows_written,
            engine=f"{status.engine}{why}" or None,
            reason=status.reason,
            message=status.message,
        )
        yield worker_row(name, report)


DONE, FAILED = 0, 1
# A program that reads the output gets every name whole.
_PIPE_WIDTH = 1000


def show_status(root: Root, name: str | None, form: Format) -> int:
    """Prints the status; returns 1 if there is nothing to show."""
    records = list(_records(root, name))
    service = "" if name is not None else running_at(root.service)
    if not records and not service:
        what = "no group" if name is None else f"no group {name}"
        hint = "" if name is None else did_you_mean(name, root.group_names())
        print(f"loghub: {what} in {root.groups}{hint}", file=sys.stderr)  # noqa: T201 - the program's output
        return FAILED
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    of_clients: tuple[ProjectGroup, ...] = ()
    of_service: tuple[ProjectSubscription, ...] = ()
    if service:
        keys = root.service / KEYS
        of_clients = of_all_projects(service, keys, groups_of_project, what="the groups of Kafka clients")
        of_service = of_all_projects(service, keys, of_project, what="the subscriptions")
    if form is not Format.TABLE:
        documents = [
            *_documents(root, records),
            *map(kafka_groups.document, of_clients),
            *map(subscription_records.document, of_service),
        ]
        _print(console, render(documents[0] if name else documents, form))
        return DONE
    groups = [_on_disk(record) for record in records]
    if groups:
        _print(console, render([overview_row(group) for group in groups], form))
    for line in _service_lines(root, service):
        _print(console, line)
    if of_clients:
        _print(console, "\n" + render(kafka_groups.overview(of_clients), form))
    if of_service:
        _print(console, "\n" + render(subscription_records.overview(of_service), form))
    if name is not None:
        _details(console, groups[0])
    return DONE


def _documents(root: Root, records: Sequence[LocalObject]) -> Iterator[Record]:
    served = running_endpoints(root.service)
    for record in records:
        addresses = served if record.resource().spec.endpoint == EMBEDDED else {}
        group = _on_disk(record)
        yield {
            **record.document,
            "up": group.is_up,
            "asOf": utc(group.as_of_unix_s),
            "workers": worker_rows(group) if group.is_up else [],
            **{protocol.name: addresses.get(protocol) for protocol in PROTOCOLS},
        }


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _service_lines(root: Root, endpoint: str) -> Iterator[str]:
    if endpoint:
        yield f"embedded service: {endpoint}"
        for protocol, address in running_endpoints(root.service).items():
            yield protocol.how_to_log_in(address, root.service / KEYS, tls=endpoint.startswith("https:"))


def _records(root: Root, name: str | None) -> Iterator[LocalObject]:
    for group in [name] if name is not None else root.group_names():
        record = LocalObject.load(root.group(group)) if "/" not in group else None
        if record is None:
            continue
        try:
            record.resource()
        except InvalidResourceError as error:
            print(f"loghub: {error}", file=sys.stderr)  # noqa: T201 - the program's output
            continue
        yield record


def _on_disk(record: LocalObject) -> GroupOnDisk:
    return GroupOnDisk(
        document=record.document,
        folder=record.folder,
        is_up=is_locked(record.folder.lock),
        as_of_unix_s=record.folder.object.stat().st_mtime,
    )


def _details(console: Console, group: GroupOnDisk) -> None:
    workers = worker_rows(group) if group.is_up else ()
    now_unix_s = SystemClock().unix_s()
    _print(console, "\n" + details(group.document, workers, now_unix_s=now_unix_s, width=console.width))


F = TypeVar("F", bound=Callable[..., Any])
MAX_SHARDS = 256  # the maximum that the embedded service has for a new logstore

# Of the service, but `loghub serve` gives them.
_OWN_FLAGS = {"--data", "--port-file", "--log-format", "--listen", "--tls-cert", "--tls-key"} | {
    protocol.flag(rest) for protocol in PROTOCOLS for rest in ("", "-advertise", "-plaintext", "-port-file")
}

_state_dir = click.option(
    "--state-dir",
    type=FOLDER,
    metavar="DIR",
    help="Directory for all state; default: $XDG_STATE_HOME/loghub or ~/.local/state/loghub.",
)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        with owner_only():
            yield
    except (InvalidResourceError, Refused) as error:
        raise InvalidInput(str(error)) from None
    except (StartFailed, InUseError, Interrupted, ServiceStartError) as error:
        raise Failed(f"loghub: {error}") from None


def _root(state_dir: Path | None) -> Root:
    return Root(state_dir.absolute()) if state_dir else Root.default(os.environ)


def _address_option(protocol: ClientProtocol, text: str) -> Callable[[F], F]:
    return click.option(
        protocol.flag(),
        type=ADDRESS,
        is_flag=False,
        flag_value=protocol.default_address,
        metavar="[HOST:PORT]",
        help=f"{text}; default: {protocol.default_address} ({protocol.page}).",
    )


def _endpoints_of_up(function: F) -> F:
    for protocol in reversed(PROTOCOLS):
        text = f"The embedded service also serves {protocol.title} clients of this machine"
        function = _address_option(protocol, text)(function)
    return function


def _endpoints_of_serve(function: F) -> F:
    decorated: Any = function
    for protocol in reversed(PROTOCOLS):
        for option in (
            click.option(
                protocol.flag("-plaintext"),
                is_flag=True,
                help=f"Serve {protocol.title} without TLS on an address other than loopback; clients send "
                "their secret in clear.",
            ),
            click.option(
                protocol.flag("-advertise"),
                type=ADDRESS,
                metavar="HOST:PORT",
                help=f"Address that {protocol.title} clients connect to after the first answer; default: the "
                "one that they used.",
            ),
            _address_option(protocol, f"Serve {protocol.title} clients, too"),
        ):
            decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _group_options(function: F) -> F:
    decorated: Any = function
    for option in (
        click.option(
            "--allow-http",
            "allowed_http_hosts",
            metavar="HOST",
            multiple=True,
            help="Public host to which keys and logs may be sent by http; *.example.com for all below "
            "a domain.",
        ),
        click.option(
            "--endpoint",
            type=ENDPOINT,
            metavar="URL",
            help="URL that `endpoint: embedded` refers to; default: an embedded service on this machine.",
        ),
        click.option("--name", help="Name of the LogHubConsumerGroup, if the file contains several."),
        _state_dir,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@click.command(cls=Command)
@click.option(
    "-f",
    "--file",
    type=FOLDER,
    required=True,
    help="YAML file with the LogHubConsumerGroup; changes are applied when you save it.",
)
@_group_options
@_endpoints_of_up
@click.option(
    "--create-logstore",
    is_flag=True,
    help="Create the project and the logstores that the file names if they do not exist.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, MAX_SHARDS),
    default=4,
    show_default=True,
    help="Number of shards of each logstore created by --create-logstore.",
)
@click.option(
    "--wait-for",
    type=click.Choice(["ready", "caught-up"]),
    help="Stop with status 0 once every worker is ready, or there is no lag; with 1 if the group is stuck"
    " before, or stopped otherwise.",
)
@click.option(
    "--timeout",
    type=DURATION,
    help="With --wait-for: stop with status 1 if that takes longer; default: no limit.",
)
@click.option("--plain", is_flag=True, help="Print plain lines instead of the live view.")
def up(state_dir: Path | None, plain: bool, **values: Any) -> int:
    """Run a LogHubConsumerGroup with local worker processes."""
    endpoints = {}
    for protocol in PROTOCOLS:
        address = values.pop(protocol.name)
        if address is None:
            continue
        if not is_of_this_machine(address):
            flag, title = protocol.flag(), protocol.title
            raise click.UsageError(
                f"{flag} {address}: `loghub up` serves {title} clients of this machine only; for others, run"
                f" `loghub serve {flag}` with a certificate first, and then `loghub up`, which uses that"
                " service"
            )
        endpoints[protocol.name] = address
    if values["timeout"] is not None and values["wait_for"] is None:
        raise click.UsageError("--timeout belongs to --wait-for")
    require("loghub-cli[local]", "loghub up")
    live = sys.stdout.isatty() and not plain
    options = UpOptions(root=_root(state_dir), live=live, endpoints=endpoints, **values)
    with _reported():
        return asyncio.run(run_up(options))


@click.command(cls=Command)
@click.option("-f", "--file", type=FOLDER, help="YAML file with the LogHubConsumerGroup.")
@_group_options
def down(state_dir: Path | None, **values: Any) -> int:
    """Stop a group's workers and delete or retain the group according to deletionPolicy."""
    with _reported():
        return asyncio.run(run_down(DownOptions(root=_root(state_dir), **values)))


@click.command(cls=Command)
@click.argument("name", required=False)
@_state_dir
@format_option
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
def status(name: str | None, state_dir: Path | None, output: str, as_json: bool) -> int:
    """Show the status of groups and, at the embedded service, the groups of Kafka clients and the
    subscriptions; with a NAME, the details of that LogHubConsumerGroup only."""
    with _reported():
        return show_status(_root(state_dir), name, Format.JSON if as_json else Format(output))


@click.command(cls=Command)
@_state_dir
@click.option(
    "--listen",
    default="127.0.0.1:0",
    metavar="HOST:PORT",
    help="Address to listen on; default: a free port.",
)
@_endpoints_of_serve
@click.option(
    "--tls-cert",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Serve TLS, to clients of Kafka and Pulsar too, with this certificate chain (PEM); read again when "
    "it changes. SSL_CERT_FILE makes the commands trust its authority.",
)
@click.option("--tls-key", type=EXISTING_FILE, metavar="FILE", help="The certificate's key (PEM).")
@click.argument("more", nargs=-1, metavar="[-- FLAGS]")
def serve(state_dir: Path | None, listen: str, **values: Any) -> int:
    """Run the embedded LogHub service in the foreground.

    FLAGS are flags of the service itself, such as its limits: `loghub serve -- --max-shards 100`. The command
    `python -m loghub_service --help` lists them."""
    for name in ("tls_cert", "tls_key"):
        if values[name] is not None:
            values[name] = str(values[name].absolute())
    require("loghub-service", "loghub serve")
    endpoints = {
        protocol.name: endpoint
        for protocol in PROTOCOLS
        if (endpoint := _endpoint(protocol, values)) is not None
    }
    options = ServiceOptions(endpoints=endpoints, **values)
    _reject_contradictions(options)
    with _reported():
        return run_serve(_root(state_dir), listen, options)


def _reject_contradictions(options: ServiceOptions) -> None:
    if options.more and not options.more[0].startswith("-"):
        raise click.UsageError(f"{options.more[0]!r} is no flag of the service; write its flags after --")
    for flag in options.more:
        if flag.partition("=")[0] in _OWN_FLAGS:
            raise click.UsageError(f"{flag}: write it before --, or leave it to `loghub serve`")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    for protocol, endpoint in options.served():
        if options.tls_cert is None and endpoint.sends_secrets_in_clear():
            raise click.UsageError(
                f"{protocol.flag()} {endpoint.address}: clients send their secret in clear without TLS: give"
                f" --tls-cert and --tls-key, or {protocol.flag('-plaintext')} where the network is trusted"
            )


def _endpoint(protocol: ClientProtocol, values: dict[str, Any]) -> EndpointOptions | None:
    """Takes the options of the protocol out of the values."""
    address, advertise, plaintext = (
        values.pop(f"{protocol.name}{rest}") for rest in ("", "_advertise", "_plaintext")
    )
    if address is not None:
        return EndpointOptions(address=address, advertise=advertise, plaintext=plaintext)
    if advertise or plaintext:
        further = " and ".join(protocol.flag(rest) for rest in ("-advertise", "-plaintext"))
        raise click.UsageError(f"{further} need {protocol.flag()}")
    return None


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fsck(arguments: tuple[str, ...]) -> int:
    """List what is wrong with a data folder of the embedded service, and repair it.

    The service's own program knows the arguments, --help included, and their exit statuses."""
    require("loghub-service", "loghub fsck")
    return subprocess.run(
        [sys.executable, "-P", "-m", "loghub_service.fsck", *arguments], check=False
    ).returncode
