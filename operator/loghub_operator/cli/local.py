"""``loghub up``, ``down``, ``status``, ``serve`` and ``fsck``: groups and the service on this machine.

For an endpoint other than the embedded service, `up` and `down` read the access key from
LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET (and LOGHUB_SECURITY_TOKEN for STS).
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from loghub.extras import require
from loghub_operator.api import InvalidResourceError
from loghub_operator.cli.commands import Command
from loghub_operator.cli.failures import Failed, InvalidInput
from loghub_operator.cli.local_status import show_status
from loghub_operator.cli.options import ADDRESS, DURATION, ENDPOINT, EXISTING_FILE, FOLDER, format_option
from loghub_operator.cli.output import Format
from loghub_operator.local.commands import DownOptions, Refused, StartFailed, UpOptions
from loghub_operator.local.commands import down as run_down
from loghub_operator.local.commands import serve as run_serve
from loghub_operator.local.commands import up as run_up
from loghub_operator.local.embedded_service import ServiceStartError
from loghub_operator.local.file_lock import InUseError
from loghub_operator.local.paths import Root, owner_only
from loghub_operator.local.service_options import ServiceOptions, is_of_this_machine
from loghub_operator.local.stopping import Interrupted

F = TypeVar("F", bound=Callable[..., Any])
MAX_SHARDS = 256
KAFKA_ADDRESS = "127.0.0.1:9092"  # the port that Kafka clients expect

# Of the service, but `loghub serve` gives them.
_OWN_FLAGS = {"--data", "--port-file", "--log-format", "--listen", "--tls-cert", "--tls-key"} | {
    f"--kafka{rest}" for rest in ("", "-advertise", "-plaintext", "-port-file")
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


def _kafka_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--kafka",
        type=ADDRESS,
        is_flag=False,
        flag_value=KAFKA_ADDRESS,
        metavar="[HOST:PORT]",
        help=text,
    )


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
@_kafka_option(
    "The embedded service also serves Kafka clients of this machine; default: 127.0.0.1:9092 (docs/kafka.md)."
)
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
    kafka = values["kafka"]
    if kafka is not None and not is_of_this_machine(kafka):
        raise click.UsageError(
            f"--kafka {kafka}: `loghub up` serves Kafka clients of this machine only; for others, run"
            " `loghub serve --kafka` with a certificate first, and then `loghub up`, which uses that service"
        )
    if values["timeout"] is not None and values["wait_for"] is None:
        raise click.UsageError("--timeout belongs to --wait-for")
    require("local", "loghub up")
    options = UpOptions(root=_root(state_dir), live=sys.stdout.isatty() and not plain, **values)
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
    """Show the status of groups and, at the embedded service, the groups of Kafka clients; with a NAME, the
    details of that LogHubConsumerGroup only."""
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
@_kafka_option("Serve Kafka clients, too; default: 127.0.0.1:9092 (docs/kafka.md).")
@click.option(
    "--kafka-advertise",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Address that Kafka clients connect to after the first answer; default: the one that they used.",
)
@click.option(
    "--kafka-plaintext",
    is_flag=True,
    help="Serve Kafka without TLS on an address other than loopback; clients send their secret in clear.",
)
@click.option(
    "--tls-cert",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Serve TLS, to Kafka clients too, with this certificate chain (PEM); read again when it changes. "
    "SSL_CERT_FILE makes the commands trust its authority.",
)
@click.option("--tls-key", type=EXISTING_FILE, metavar="FILE", help="The certificate's key (PEM).")
@click.argument("more", nargs=-1, metavar="[-- FLAGS]")
def serve(state_dir: Path | None, listen: str, **values: Any) -> int:
    """Run the embedded LogHub service in the foreground.

    FLAGS are those of the service itself, such as its limits: `loghub serve -- --max-shards 100`. The command
    `python -m loghub.service --help` lists them."""
    for name in ("tls_cert", "tls_key"):
        if values[name] is not None:
            values[name] = str(values[name].absolute())
    require("service", "loghub serve")
    options = ServiceOptions(**values)
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
    if options.kafka is None:
        if options.kafka_advertise or options.kafka_plaintext:
            raise click.UsageError("--kafka-advertise and --kafka-plaintext need --kafka")
    elif not (options.tls_cert or options.kafka_plaintext or is_of_this_machine(options.kafka)):
        raise click.UsageError(
            f"--kafka {options.kafka}: clients send their secret in clear without TLS: give --tls-cert and"
            " --tls-key, or --kafka-plaintext where the network is trusted"
        )


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fsck(arguments: tuple[str, ...]) -> int:
    """List what is wrong with a data folder of the embedded service, and repair it.

    The service's own program knows the arguments, --help included, and their exit statuses."""
    require("service", "loghub fsck")
    return subprocess.run(
        [sys.executable, "-P", "-m", "loghub.service.fsck", *arguments], check=False
    ).returncode
