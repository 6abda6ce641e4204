"""Profiles: named endpoints with their keys in the file ``config.toml`` of the user.

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

The file may contain secrets, so nobody but its owner may read it, whether or not it does. The functions here
only read it.
"""

import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from loghub.client.port import Credentials
from loghub_operator.cli.failures import InvalidInput

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
    """The named profile, or the one that the file calls its default; an empty one if neither exists.
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
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) else ""
        raise BadProfile(f"{path} has no profile {chosen!r}; it has: {known or 'none'}")
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
    known = {field.name for field in fields(Profile)}
    if unknown := sorted(table.keys() - known):
        raise BadProfile(
            f"{where} has unknown settings: {', '.join(unknown)}; known: {', '.join(sorted(known))}"
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
