"""Where a command sends its requests: endpoint, project and key, each from the first source that has it.

1. an option, of which ``--state-dir`` names the service of 4;
2. the environment (`LOGHUB_ENDPOINT`, `LOGHUB_PROJECT`, `LOGHUB_ACCESS_KEY_ID` and so on);
3. the profile, of `--profile`, `LOGHUB_PROFILE` or the file's ``default``;
4. the embedded service that `loghub up` or `loghub serve` runs on this machine, with its own key.

The key of 4 is sent to that service only, and no other key is sent to it unless ``--credentials-dir`` says
so: the environment of a user may have a key for a cloud. No secret is ever an argument, since every user of a
machine can read those of every process.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from loghub.client import target
from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.transport import Timeouts
from loghub.wire import hosts
from loghub.wire.errors import EndpointUnreachable
from loghub_operator.cli.failures import Failed
from loghub_operator.cli.profiles import Profile, default_path, read_profile
from loghub_operator.local.key_variables import KEY_ID, KEY_SECRET, REGION, TOKEN
from loghub_operator.local.paths import Root
from loghub_operator.local.service_options import ServiceOptions, known_address

AGENT = "loghub-cli"
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - what `loghub serve` was given


class Misconfigured(click.UsageError):
    """What is missing, and each way to give it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
    def of(cls, values: Mapping[str, Any]) -> "Options":
        """The options among the parameters of a command."""
        names = (field.name for field in fields(cls))
        return cls(**{name: values[name] for name in names if values.get(name) is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
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
        if not self.uses_sdk:
            return HttpLogHub(
                self.endpoint, project, credentials=self.credentials, agent=AGENT, timeouts=timeouts
            )
        # The SDK is imported only where it is used: it takes as long as all the rest.
        from loghub.client.aliyun import AliyunLogHub

        return AliyunLogHub(
            self.endpoint, project, credentials=self.credentials, agent=AGENT, timeouts=timeouts
        )


def connection(options: Options, environment: Mapping[str, str] | None = None) -> Connection:
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
    return Connection(
        endpoint=endpoint,
        credentials=replace(key, region=region) if region else key,
        project=project or None,
        uses_sdk=_uses_sdk(options.client or profile.client or "auto", host),
    )


def _of_this_machine(options: Options, environment: Mapping[str, str]) -> Connection:
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
    return Connection(
        endpoint=endpoint,
        credentials=key,
        project=None,
        uses_sdk=options.client == "sdk",
        is_of_this_machine=True,
    )


def _key(options: Options, environment: Mapping[str, str], profile: Profile, endpoint: str) -> Credentials:
    if options.credentials_dir is not None:
        return _key_in(options.credentials_dir)
    given = [name for name in (KEY_ID, KEY_SECRET) if environment.get(name)]
    if len(given) == 1:
        raise Misconfigured(f"{given[0]} is set without the other: {KEY_ID} and {KEY_SECRET} belong together")
    if given:
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
