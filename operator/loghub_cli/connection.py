"""Where a command sends its requests: endpoint, project and key, each from the first source that has it.

1. an option, of which ``--state-dir`` names the service of 4;
2. the environment (`LOGHUB_ENDPOINT`, `LOGHUB_PROJECT`, `LOGHUB_ACCESS_KEY_ID` and so on);
3. the profile, of `--profile`, `LOGHUB_PROFILE` or the file's ``default``;
4. the embedded service that `loghub up` or `loghub serve` runs on this machine, with its own key.

The key of 4 is sent to that service only, and no other key is sent to it unless ``--credentials-dir`` says
so: the environment of a user may have a key for a cloud. No secret is ever an argument, since every user of a
machine can read the arguments of every process.

``create`` of any noun: a script that runs again may ask for what exists already.

Profiles: named endpoints with their keys in the file ``config.toml`` of the user.

::

    default = "shop"

    [profiles.shop]
    endpoint = "https://cn-hangzhou.log.aliyuncs.com"
    project = "shop"
    credentials_dir = "~/.secrets/shop"      # files accessKeyId, accessKeySecret and securityToken

    [profiles.test]
    endpoint = "http://127.0.0.1:8080"
    access_key_id = "NAME"
    access_key_secret = "SECRET"

The file may contain secrets, so only its owner may read it, whether or not it does. The functions here only
read it.
"""

import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from loghub.client import target
from loghub.client.choice import open_client
from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials, LogHub, Timeouts
from loghub.wire import names as hosts
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError
from loghub_cli.output import Failed, InvalidInput, Record
from loghub_cli.up.paths import Root
from loghub_cli.up.service_options import KEY_ID, KEY_SECRET, REGION, TOKEN, ServiceOptions, known_address

if_not_exists = click.option(
    "--if-not-exists", "keep", is_flag=True, help="Keep what exists already, and show it as it is."
)


def create_or_keep(
    wanted: Record, create: Callable[[], None], existing: Callable[[], Record], *, exists: Code | None
) -> Record:
    """What there is afterwards. ``exists`` is the answer for what is there already; None: that is a failure,
    as any other. Other settings than those wanted are kept, and said."""
    try:
        create()
    except LogHubError as error:
        if error.code != exists:
            raise
    else:
        return wanted
    now = existing()
    existing_settings = {key: now[key] for key in wanted}
    if existing_settings != wanted:
        click.echo("loghub: it exists already with other settings, which are kept", err=True)
    return existing_settings


# A profile takes a few lines. A larger file is some other file, and is not read into memory.
_MAX_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class BadProfile(InvalidInput):
    """A config file or a profile that cannot be used; the message says how to correct it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile; a setting that it does not have is None. ``allow_http`` are public hosts to which requests
    may be sent without encryption."""

    endpoint: str | None = None
    project: str | None = None
    client: str | None = None  # auto, sdk or http
    credentials_dir: str | None = None
    access_key_id: str | None = None
    access_key_secret: str | None = None
    security_token: str | None = None
    region: str | None = None
    allow_http: tuple[str, ...] = ()

    def key(self) -> Credentials | None:
        """The key in the profile itself; None if it has none."""
        if self.access_key_id is None or self.access_key_secret is None:
            return None
        return Credentials(
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
            security_token=self.security_token or "",
        )

    def __repr__(self) -> str:
        return f"Profile(endpoint={self.endpoint!r}, project={self.project!r})"


NO_PROFILE = Profile()


def default_path(environment: Mapping[str, str]) -> Path:
    """``$XDG_CONFIG_HOME/loghub/config.toml``, usually ``~/.config/loghub/config.toml``."""
    folder = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(folder).absolute() / "loghub" / "config.toml"


def read_profile(path: Path, name: str | None, *, required: bool) -> Profile:
    """The named profile, or the profile that the file calls its default; an empty one if neither exists.
    ``required``: the file was named, so it must exist. Raises `BadProfile`."""
    document = _read(path, required=required or name is not None)
    profiles = document.get("profiles", {})
    chosen = name if name is not None else document.get("default")
    if unknown := sorted(document.keys() - {"profiles", "default"}):
        raise BadProfile(
            f"{path} has unknown settings: {', '.join(unknown)}; it has default and [profiles.*]"
        )
    if chosen is None:
        return NO_PROFILE
    if not isinstance(profiles, dict) or not isinstance(chosen, str) or chosen not in profiles:
        names = ", ".join(sorted(profiles)) if isinstance(profiles, dict) else ""
        raise BadProfile(f"{path} has no profile {chosen!r}; it has: {names or 'none'}")
    return _profile(path, chosen, profiles[chosen])


def _read(path: Path, *, required: bool) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & _OTHERS:
                raise BadProfile(
                    f"{path} may contain an access key and is open to other users (mode {mode:04o});"
                    f" close it with: chmod 600 {path}"
                )
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        if required:
            raise BadProfile(f"there is no config file {path}") from None
        return {}
    except OSError as error:
        raise BadProfile(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise BadProfile(f"{path} has more than {_MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadProfile(f"{path} is not TOML: {error}") from None


def _profile(path: Path, name: str, table: object) -> Profile:
    where = f"profile {name} in {path}"
    if not isinstance(table, dict):
        raise BadProfile(f"{where} is not a table; begin it with [profiles.{name}]")
    settings = {field.name for field in fields(Profile)}
    if unknown := sorted(table.keys() - settings):
        raise BadProfile(
            f"{where} has unknown settings: {', '.join(unknown)}; known: {', '.join(sorted(settings))}"
        )
    hosts = table.get("allow_http", [])
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise BadProfile(f"{where}: allow_http must be a list of host names")
    texts = {key: value for key, value in table.items() if key != "allow_http"}
    if wrong := sorted(key for key, value in texts.items() if not isinstance(value, str)):
        raise BadProfile(f"{where}: {', '.join(wrong)} must be text in quotes")
    if texts.get("client", "auto") not in ("auto", "sdk", "http"):
        raise BadProfile(f"{where}: client must be auto, sdk or http")
    if ("access_key_id" in texts) != ("access_key_secret" in texts):
        raise BadProfile(f"{where}: access_key_id and access_key_secret belong together")
    return Profile(**texts, allow_http=tuple(hosts))


AGENT = "loghub-cli"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - what `loghub serve` was given


class Misconfigured(click.UsageError):
    """What is missing, and each way to give it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The options by which a command names its log service; None: not given."""

    endpoint: str | None = None
    project: str | None = None
    credentials_dir: Path | None = None
    region: str | None = None
    client: str | None = None  # auto, sdk or http
    allow_http: tuple[str, ...] = ()
    profile: str | None = None
    config: Path | None = None
    state_dir: Path | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ConnectionOptions":
        """The options among the parameters of a command."""
        names = (field.name for field in fields(cls))
        return cls(**{name: values[name] for name in names if values.get(name) is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConnection:
    """One log service, with a key; ``project`` is None if no source names one."""

    endpoint: str
    credentials: Credentials
    project: str | None
    uses_sdk: bool
    is_of_this_machine: bool = False  # found by its state directory; it may have ended

    @contextmanager
    def open(self, project: str | None = None, *, timeouts: Timeouts | None = None) -> Iterator[LogHub]:
        """A client of ``project``, by default of the connection's. Raises `Misconfigured` without any."""
        name = project or self.project
        if name is None:
            raise Misconfigured("name the project with --project, LOGHUB_PROJECT or a profile")
        with self._opened(name, timeouts) as client:
            yield client

    @contextmanager
    def open_without_project(self, *, timeouts: Timeouts | None = None) -> Iterator[LogHub]:
        """A client for `list_projects` only."""
        with self._opened("any", timeouts) as client:
            yield client

    @contextmanager
    def _opened(self, project: str, timeouts: Timeouts | None) -> Iterator[LogHub]:
        with closing(self._client(project, timeouts)) as client:
            try:
                yield client
            except EndpointUnreachable as error:
                if not self.is_of_this_machine:
                    raise
                raise Failed(
                    f"loghub: {error}; `loghub up` and `loghub serve` start the service of this machine"
                ) from None

    def _client(self, project: str, timeouts: Timeouts | None) -> LogHub:
        return open_client(
            "sdk" if self.uses_sdk else "http",
            self.endpoint,
            project,
            credentials=self.credentials,
            agent=AGENT,
            timeouts=timeouts,
        )


def connection(options: ConnectionOptions, environment: Mapping[str, str] | None = None) -> ServiceConnection:
    """The connection of a command. Raises `Misconfigured`, `BadProfile` and `BadEndpoint`."""
    environment = os.environ if environment is None else environment
    named = options.config or environment.get("LOGHUB_CONFIG")
    profile = read_profile(
        Path(named) if named else default_path(environment),
        options.profile or environment.get("LOGHUB_PROFILE") or None,
        required=bool(named),
    )
    project = options.project or environment.get("LOGHUB_PROJECT") or profile.project
    endpoint = options.endpoint or environment.get("LOGHUB_ENDPOINT") or profile.endpoint
    if options.state_dir is not None:
        if options.endpoint:
            raise Misconfigured("--endpoint and --state-dir each name a log service: leave one of them out")
        endpoint = None  # an option comes before the environment and a profile, which may name a cloud
    if not endpoint:
        return replace(_of_this_machine(options, environment), project=project or None)
    _, host, _ = target.split_endpoint(endpoint)
    _reject_exposed(endpoint, host, (*options.allow_http, *profile.allow_http))
    key = _key(options, environment, profile, endpoint)
    region = options.region or environment.get(REGION) or profile.region
    return ServiceConnection(
        endpoint=endpoint,
        credentials=replace(key, region=region) if region else key,
        project=project or None,
        uses_sdk=_uses_sdk(options.client or profile.client or "auto", host),
    )


def _of_this_machine(options: ConnectionOptions, environment: Mapping[str, str]) -> ServiceConnection:
    """The embedded service of this user, which writes its address and its key into the state directory."""
    root = Root(options.state_dir.absolute()) if options.state_dir else Root.default(environment)
    try:
        address = known_address(root.service)
        own_key = read_key(root.service / "data" / "credentials")
    except OSError:
        address = ""
    if not address:
        raise Misconfigured(
            "name the log service with --endpoint, LOGHUB_ENDPOINT or a profile, or start one on this machine"
            f" with `loghub up` or `loghub serve` (none has run in {root.folder})"
        )
    host, _, port = address.rpartition(":")
    scheme = ServiceOptions.read(root.service).scheme
    endpoint = f"{scheme}://{_EVERY_ADDRESS.get(host, host)}:{port}"
    key = _key_in(options.credentials_dir) if options.credentials_dir else own_key
    return ServiceConnection(
        endpoint=endpoint,
        credentials=key,
        project=None,
        uses_sdk=options.client == "sdk",
        is_of_this_machine=True,
    )


def _key(
    options: ConnectionOptions, environment: Mapping[str, str], profile: Profile, endpoint: str
) -> Credentials:
    if options.credentials_dir is not None:
        return _key_in(options.credentials_dir)
    variables = [name for name in (KEY_ID, KEY_SECRET) if environment.get(name)]
    if len(variables) == 1:
        raise Misconfigured(
            f"{variables[0]} is set without the other: {KEY_ID} and {KEY_SECRET} belong together"
        )
    if variables:
        return Credentials(
            access_key_id=environment[KEY_ID],
            access_key_secret=environment[KEY_SECRET],
            security_token=environment.get(TOKEN, ""),
        )
    if profile.credentials_dir is not None:
        return _key_in(Path(profile.credentials_dir).expanduser())
    key = profile.key()
    if key is None:
        raise Misconfigured(
            f"{endpoint} needs an access key: set {KEY_ID} and {KEY_SECRET}, or name a directory with the"
            " files accessKeyId and accessKeySecret by --credentials-dir, or use a profile"
        )
    return key


def _key_in(folder: Path) -> Credentials:
    try:
        return read_key(folder)
    except OSError as error:
        raise Misconfigured(f"no access key can be read: {error.strerror}: {error.filename}") from None


def _reject_exposed(endpoint: str, host: str, allowed: tuple[str, ...]) -> None:
    if hosts.is_exposed(endpoint, allowed):
        raise Misconfigured(
            f"{endpoint} is not encrypted, and its host is neither a private address nor inside a cluster; no"
            f" request is sent to it. Use https, or allow this host with --allow-http {host.strip('[]')}"
        )


def _uses_sdk(client: str, host: str) -> bool:
    """``auto`` takes the vendor's SDK for what may be the real SLS, whose endpoints are host names."""
    if client == "auto":
        return not hosts.is_internal(host)
    return client == "sdk"
