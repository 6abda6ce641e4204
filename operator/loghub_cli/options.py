"""What the commands have in common on the command line: types of arguments, completed names, hints, and the
options of connection and output.

A shell completes the names of projects, logstores and groups with one request that has a short time limit,
and completes nothing if it fails: a Tab must neither wait nor print. The names are also requested once a
command has failed because of one that does not exist, to hint at the name that the user may have meant; a
hint that cannot be had is left out, since the failure is what counts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from loghub.client import target
from loghub.client.port import Position, Timeouts
from loghub.clock import SystemClock
from loghub.domain.shards import BadHashKey, parse_key
from loghub.near_names import did_you_mean
from loghub.times import BadTime, parse_duration_s, parse_time
from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub.wire import names as hosts
from loghub.wire.errors import Code, LogHubError, LogHubException, MalformedCursor, MalformedName
from loghub.wire.names import NameRule
from loghub_cli.commands import ConnectionOption
from loghub_cli.connection import ConnectionOptions, ServiceConnection, connection
from loghub_cli.kafka_groups import kafka_groups
from loghub_cli.output import Failed, Format, Record, render
from loghub_cli.subscription_records import subscriptions
from loghub_cli.up.client_endpoint import host_and_port

_TIMEOUTS = Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0)


def projects(ctx: click.Context) -> Sequence[str]:
    return _or_nothing(lambda: projects_of(_place(ctx)))


def logstores(ctx: click.Context) -> Sequence[str]:
    return _or_nothing(lambda: logstores_of(_place(ctx)))


def groups(ctx: click.Context) -> Sequence[str]:
    """Without the groups of Kafka clients."""
    logstore = ctx.params.get("logstore")
    return _or_nothing(lambda: _groups_of_sls(_place(ctx), logstore)) if logstore else ()


def every_group(ctx: click.Context) -> Sequence[str]:
    """Of Kafka clients, too."""
    logstore, kafka = ctx.params.get("logstore"), bool(ctx.params.get("kafka"))
    return _or_nothing(lambda: groups_of(_place(ctx), logstore, kafka=kafka)) if logstore else ()


def every_reader(ctx: click.Context) -> Sequence[str]:
    """Of groups and subscriptions."""
    return [*every_group(ctx), *subscription_names(ctx)]


def subscription_names(ctx: click.Context) -> Sequence[str]:
    logstore = ctx.params.get("logstore")
    return _or_nothing(lambda: _subscriptions_of(_place(ctx), logstore)) if logstore else ()


def _place(ctx: click.Context) -> ServiceConnection:
    return connection(ConnectionOptions.of(ctx.params))


def _or_nothing(names: Callable[[], Sequence[str]]) -> Sequence[str]:
    try:
        return names()
    except (LogHubException, click.ClickException, ValueError, OSError):
        return ()


def projects_of(place: ServiceConnection) -> Sequence[str]:
    with place.open_without_project(timeouts=_TIMEOUTS) as client:
        return [project.name for project in client.list_projects()]


def logstores_of(place: ServiceConnection) -> Sequence[str]:
    with place.open(timeouts=_TIMEOUTS) as client:
        return client.list_logstores()


def _groups_of_sls(place: ServiceConnection, logstore: str) -> Sequence[str]:
    with place.open(timeouts=_TIMEOUTS) as client:
        return [group.name for group in client.list_groups(logstore)]


def groups_of(place: ServiceConnection, logstore: str, *, kafka: bool) -> Sequence[str]:
    """The groups of Kafka clients and, unless ``kafka`` is set, all other groups."""
    of_sls = [] if kafka else _groups_of_sls(place, logstore)
    with place.open(timeouts=_TIMEOUTS) as client:
        return [*of_sls, *(one.name for one in kafka_groups(client, logstore))]


def _subscriptions_of(place: ServiceConnection, logstore: str) -> Sequence[str]:
    with place.open(timeouts=_TIMEOUTS) as client:
        return [one.name for one in subscriptions(client, logstore)]


Names = Callable[[ServiceConnection, Mapping[str, Any]], Sequence[str]]
# By the code of the answer: where the command has the name, and which ones there are.
_LOOKUPS: dict[str, tuple[str, Names]] = {
    Code.PROJECT_NOT_EXIST: ("project", lambda place, _: projects_of(place)),
    Code.LOG_STORE_NOT_EXIST: ("logstore", lambda place, _: logstores_of(place)),
    Code.CONSUMER_GROUP_NOT_EXIST: (
        "group",
        lambda place, given: groups_of(place, given["logstore"], kafka=bool(given.get("kafka"))),
    ),
    Code.SUBSCRIPTION_NOT_EXIST: (
        "subscription",
        lambda place, given: _subscriptions_of(place, given["logstore"]),
    ),
}


def with_hint(error: LogHubError, place: ServiceConnection, parameters: Mapping[str, Any]) -> str:
    """The message of an error, with the near name; ``parameters`` are the values of the command."""
    if error.code not in _LOOKUPS:
        return str(error)
    kind, names = _LOOKUPS[error.code]
    name = parameters.get(kind) or (parameters.get("name") or place.project if kind == "project" else None)
    if not name:
        return str(error)
    try:
        return f"{error}{did_you_mean(name, names(place, parameters))}"
    except (LogHubException, click.ClickException):
        return str(error)


def parse_position(text: str, *, now_unix_s: float) -> Position:
    """``begin``, ``end``, or the unix seconds from which logs were received. Raises BadTime."""
    if text == "begin":
        return "begin"
    return "end" if text == "end" else parse_time(text, now_unix_s=now_unix_s)


F = TypeVar("F", bound=Callable[..., Any])
MAX_SHARD = 2**31 - 1  # the id of a shard is a signed 32-bit number in SLS


class _OptionType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """The base of the types below."""


class AnyName(_OptionType):
    """A name, completed from what exists. There is no rule for it: Kafka clients choose the names of their
    groups freely.
    """

    name = "group"

    def __init__(self, existing: Callable[[click.Context], Sequence[str]]) -> None:
        self._existing = existing

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        names = self._existing(ctx)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class Name(AnyName):
    """A name by the rule of its kind."""

    def __init__(self, rule: NameRule, existing: Callable[[click.Context], Sequence[str]]) -> None:
        super().__init__(existing)
        self.name = rule.kind
        self._rule = rule

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return self._rule.check(str(value))
        except MalformedName as error:
            self.fail(str(error), param, ctx)


class Endpoint(_OptionType):
    """``host[:port]`` or a URL; the value is a URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            target.split_endpoint(text)
        except target.BadEndpoint as error:
            self.fail(str(error), param, ctx)
        return hosts.with_scheme(text)


class AddressOption(_OptionType):
    """``HOST:PORT``; the value is this text."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            host_and_port(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class PositionType(_OptionType):
    """``begin``, ``end`` or a time; the value is a `Position`."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        try:
            return parse_position(str(value), now_unix_s=SystemClock().unix_s())
        except BadTime as error:
            self.fail(str(error), param, ctx)


class Duration(_OptionType):
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


class CursorType(_OptionType):
    """A cursor as every command prints it."""

    name = "cursor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            wire_cursor.decode(str(value))
        except MalformedCursor as error:
            self.fail(f"{error}; copy a cursor from `loghub shard show` or from a printed log", param, ctx)
        return str(value)


class HashKey(_OptionType):
    """32 hex digits."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_key(str(value))
        except BadHashKey as error:
            self.fail(str(error), param, ctx)
        return str(value).lower()


PROJECT = Name(names.PROJECT, projects)
LOGSTORE = Name(names.LOGSTORE, logstores)
GROUP = Name(names.CONSUMER_GROUP, groups)
ANY_GROUP = AnyName(every_group)
GROUP_OR_SUBSCRIPTION = AnyName(every_reader)
SUBSCRIPTION = Name(names.SUBSCRIPTION, subscription_names)
SHARD = click.IntRange(0, MAX_SHARD)
ENDPOINT = Endpoint()
ADDRESS = AddressOption()
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
    """Adds the options of the connection to a command whose argument is a project."""
    return _connected(function, tuple(name for name in _CONNECTION if name != "project"))


Connect = Callable[[str | None, str], ServiceConnection]


def connected_if_needed(function: F) -> F:
    """Adds the options of the connection; the function gets ``connect``, which takes an endpoint (None: from
    the other sources) and a project for what no option names."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in _CONNECTION}

        def connect(endpoint: str | None, project: str) -> ServiceConnection:
            named = {"endpoint": endpoint, "project": project}
            given = {name: value for name, value in values.items() if value}
            if values["state_dir"]:
                del named["endpoint"]
            return connection(ConnectionOptions.of(named | given))

        return function(*args, connect=connect, **kwargs)

    decorated: Any = run
    for name in reversed(tuple(_CONNECTION)):
        decorated = _CONNECTION[name](decorated)
    return decorated  # type: ignore[no-any-return]


def _connected(function: F, chosen: tuple[str, ...]) -> F:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        values = {name: kwargs.pop(name) for name in chosen}
        place: ServiceConnection = connection(ConnectionOptions.of(values))
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
    """Returns if the user agrees, and ends the command otherwise. Without a terminal the user cannot agree.
    The question is worked out only if it is put: a key that may delete need not be one that may read."""
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
