"""What the commands have in common on the command line: types of arguments, and the options of connection and
output. Names complete from the log service (`loghub_operator.cli.completed_names`).
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from loghub.client import target
from loghub.client.port import Position
from loghub.clock import SystemClock
from loghub.domain.hashrange import BadHashKey, parse_key
from loghub.wire import cursor as wire_cursor
from loghub.wire import hosts, names
from loghub.wire.errors import LogHubError, MalformedCursor, MalformedName
from loghub.wire.names import NameRule
from loghub_operator.cli import completed_names
from loghub_operator.cli.commands import ConnectionOption
from loghub_operator.cli.connection import Connection, Options, connection
from loghub_operator.cli.failures import Failed
from loghub_operator.cli.hints import with_hint
from loghub_operator.cli.output import Format, Record, render
from loghub_operator.cli.times import BadTime, parse_duration_s, parse_position
from loghub_operator.local.service_options import host_and_port

F = TypeVar("F", bound=Callable[..., Any])
MAX_SHARD = 2**31 - 1


class _Type(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """The base of the types below."""


class Name(_Type):
    """A name by the rule of its kind; completed from what exists."""

    def __init__(self, rule: NameRule, existing: Callable[[click.Context], Sequence[str]]) -> None:
        self.name = rule.kind
        self._rule = rule
        self._existing = existing

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return self._rule.check(str(value))
        except MalformedName as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        found = self._existing(ctx)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


class AnyGroup(_Type):
    """The name of a consumer group: Kafka clients choose theirs freely, so there is no rule for it."""

    name = "group"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        found = completed_names.every_group(ctx)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


class Endpoint(_Type):
    """``host[:port]`` or a URL; the value is a URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            target.split_endpoint(text)
        except target.BadEndpoint as error:
            self.fail(str(error), param, ctx)
        return hosts.with_scheme(text)


class Address(_Type):
    """``HOST:PORT``; the value is this text."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            host_and_port(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class PositionType(_Type):
    """``begin``, ``end`` or a time; the value is a `Position`."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        try:
            return parse_position(str(value), now_unix_s=SystemClock().unix_s())
        except BadTime as error:
            self.fail(str(error), param, ctx)


class Duration(_Type):
    """Seconds, or a number with a unit; the value is in seconds, more than 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = parse_duration_s(str(value))
        except BadTime as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"{value!r} must be more than 0", param, ctx)
        return seconds


class CursorType(_Type):
    """A cursor as every command prints it."""

    name = "cursor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            wire_cursor.decode(str(value))
        except MalformedCursor as error:
            self.fail(f"{error}; copy a cursor from `loghub shard show` or from a printed log", param, ctx)
        return str(value)


class HashKey(_Type):
    """32 hex digits."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_key(str(value))
        except BadHashKey as error:
            self.fail(str(error), param, ctx)
        return str(value).lower()


PROJECT = Name(names.PROJECT, completed_names.projects)
LOGSTORE = Name(names.LOGSTORE, completed_names.logstores)
GROUP = Name(names.CONSUMER_GROUP, completed_names.groups)
ANY_GROUP = AnyGroup()
SHARD = click.IntRange(0, MAX_SHARD)
ENDPOINT = Endpoint()
ADDRESS = Address()
POSITION = PositionType()
DURATION = Duration()
CURSOR = CursorType()
HASH_KEY = HashKey()
FOLDER = click.Path(path_type=Path)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_connection_option = partial(click.option, cls=ConnectionOption)
_CONNECTION = {
    "project": _connection_option("-p", "--project", type=PROJECT, help="Project.  [env: LOGHUB_PROJECT]"),
    "endpoint": _connection_option(
        "--endpoint",
        type=ENDPOINT,
        metavar="URL",
        help="URL of the log service; default: the embedded service on this machine.  [env: LOGHUB_ENDPOINT]",
    ),
    "credentials_dir": _connection_option(
        "--credentials-dir",
        type=FOLDER,
        metavar="DIR",
        help="Directory with the files accessKeyId, accessKeySecret and, for STS, securityToken; default: "
        "the key in LOGHUB_ACCESS_KEY_ID, LOGHUB_ACCESS_KEY_SECRET and LOGHUB_SECURITY_TOKEN.",
    ),
    "region": _connection_option(
        "--region",
        metavar="REGION",
        help="Region of the project, such as cn-hangzhou: with it, requests are signed with version 4.  "
        "[env: LOGHUB_REGION]",
    ),
    "profile": _connection_option(
        "--profile", metavar="NAME", help="Profile of the config file.  [env: LOGHUB_PROFILE]"
    ),
    "config": _connection_option(
        "--config",
        type=FOLDER,
        metavar="FILE",
        help="Config file; default: $XDG_CONFIG_HOME/loghub/config.toml or ~/.config/loghub/config.toml.  "
        "[env: LOGHUB_CONFIG]",
    ),
    "client": _connection_option(
        "--client",
        type=click.Choice(["auto", "sdk", "http"]),
        help="Client: the vendor's SDK, this project's own, or auto: the SDK for public host names.",
    ),
    "allow_http": _connection_option(
        "--allow-http",
        metavar="HOST",
        multiple=True,
        help="Public host to which keys and logs may be sent by http; *.example.com for all below a domain.",
    ),
    "state_dir": _connection_option(
        "--state-dir",
        type=FOLDER,
        metavar="DIR",
        help="State directory of `loghub up`, where the embedded service of this machine is found.",
    ),
}


def connected(function: F) -> F:
    """Adds the options of the connection; the function gets it as ``place``."""
    return _connected(function, tuple(_CONNECTION))


def connected_without_project(function: F) -> F:
    """The same for commands whose argument is a project."""
    return _connected(function, tuple(name for name in _CONNECTION if name != "project"))


def _connected(function: F, chosen: tuple[str, ...]) -> F:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in chosen}
        place: Connection = connection(Options.of(values))
        try:
            return function(*args, place=place, **kwargs)
        except LogHubError as error:
            raise Failed(f"loghub: {with_hint(error, place, kwargs)}") from None

    decorated: Any = run
    for name in reversed(chosen):
        decorated = _CONNECTION[name](decorated)
    return decorated  # type: ignore[no-any-return]


def formatted(function: F) -> F:
    """Adds ``-o``; the function gets ``show``, which prints a value in that format."""

    @wraps(function)
    def run(*args: Any, output: str, **kwargs: Any) -> Any:
        form = Format(output)

        def show(value: Record | Sequence[Record]) -> None:
            click.echo(render(value, form))

        return function(*args, show=show, **kwargs)

    decorated: Any = format_option(run)
    return decorated  # type: ignore[no-any-return]


format_option = click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Format]),
    default=Format.TABLE.value,
    show_default=True,
    help="Output format.",
)
of_kafka = click.option(
    "--kafka", is_flag=True, help="Only groups of Kafka clients, which may have the names of other groups."
)
confirmed = click.option("-y", "--yes", is_flag=True, help="Do not ask.")

Show = Callable[[Record | Sequence[Record]], None]


def confirm(question: Callable[[], str], *, yes: bool) -> None:
    """Returns if the user agrees, and ends the command otherwise. Without a terminal nobody can agree. The
    question is worked out only if it is put: a key that may delete need not be one that may read."""
    if yes:
        return
    text = question()
    try:
        agreed = click.confirm(text, err=True)
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError(f"not confirmed; --yes does not ask: {text}") from None
    if not agreed:
        raise click.ClickException("nothing was changed")
