"""The access keys that authenticate requests, and what each key may do.

The keys are in a folder that is mounted, and read again after a rotation: `file_stamps` recognizes files that
were replaced, as the kubelet does with the files of a Secret. Or the service generates a key at its first
start and stores it in the data directory. The folder has two forms, which may be combined:

- ``accessKeyId`` and ``accessKeySecret``, and ``securityToken`` if the key is an STS key: one key with every
  right in every project.
- ``accessKeys.json``: any number of keys, each with its projects and rights::

    [{"accessKeyId": "workers", "accessKeySecret": "...", "projects": ["demo"], "rights": ["read"]},
     {"accessKeyId": "setup", "accessKeySecret": "...", "projects": ["*"], "rights": ["admin"]}]

A key has rights in some projects. Every action of the API requires one right (`loghub_service.http.routes`),
so that a consumer or a producer can have a key that deletes nothing. `loghub_service.http.auth` verifies
signatures with the keys.
"""

import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from loghub.clock import Clock
from loghub.wire import names
from loghub.wire.errors import MalformedName
from loghub_service.connections.service_ports import Access
from loghub_service.errors import ServiceFault
from loghub_service.ports import Random

EVERY_PROJECT = "*"
_MAX_KEY_ID = 128  # characters; an id of SLS has 16 to 24


class Right(StrEnum):
    """What a key may do in its projects. No right includes another one."""

    READ = "read"  # cursors, PullLogs, and a group's settings and checkpoints: all that a consumer does
    WRITE = "write"  # PutLogs
    ADMIN = "admin"  # create, change and delete projects, logstores and shards; delete consumer groups


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """An access key with its rights; without a list, every right in every project.

    ``security_token`` is the STS token that must accompany the key; "" if no token may. The key is valid
    until ``expires_unix_s``; None: without end. `repr` shows neither the token nor the secret.
    """

    key_id: str
    secret: str
    security_token: str = ""
    expires_unix_s: float | None = None
    projects: frozenset[str] = frozenset({EVERY_PROJECT})  # in lower case
    rights: frozenset[Right] = frozenset(Right)

    def __repr__(self) -> str:
        return f"AccessKey(key_id={self.key_id!r}, secret=***)"

    def sees(self, project: str) -> bool:
        """Whether the key has its rights in this project."""
        return EVERY_PROJECT in self.projects or project in self.projects

    def has_expired(self, unix_s: float) -> bool:
        return self.expires_unix_s is not None and unix_s >= self.expires_unix_s


FindKey = Callable[[str], AccessKey | None]


def key_of_password(find_key: FindKey, project: str, password: str, *, unix_s: float) -> AccessKey | None:
    """The key of a login with ``accessKeyId#accessKeySecret``; None if there is no such key, or if it has no
    right in the project. A key with an STS token is refused: the password has no place for the token."""
    for key_id, secret in _splits(password):
        key = find_key(key_id)
        if (
            key is not None
            and hmac.compare_digest(key.secret.encode(), secret.encode())
            and not key.security_token
            and key.sees(project)
            and not key.has_expired(unix_s)
        ):
            return key
    return None


class KeyLogin:
    """An access key in one project, from the login of a connection on."""

    def __init__(self, find_key: FindKey, project: str, key: AccessKey, clock: Clock) -> None:
        self.project = project
        self._find_key = find_key
        self._key = key
        self._clock = clock

    @property
    def key_id(self) -> str:
        return self._key.key_id

    def is_valid(self) -> bool:
        """Whether the key still exists, with the same secret, and has not expired."""
        return self._find_key(self.key_id) == self._key and not self._key.has_expired(self._clock.unix_s())

    def may(self, access: Access) -> bool:
        return Right(access.value) in self._key.rights


def _splits(password: str) -> Iterator[tuple[str, str]]:
    """The key ids and secrets that a password may stand for: either may contain the ``#`` between them."""
    for at, character in enumerate(password[: _MAX_KEY_ID + 1]):
        if character == "#":
            yield password[:at], password[at + 1 :]


Stamp = tuple[int, int] | None


def file_stamps(*paths: str) -> tuple[Stamp, ...]:
    """A value that changes with the content of any of the files, or when one appears or disappears."""
    return tuple(map(_stamp, paths))


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


ACCESS_KEY_ID_FILE = "accessKeyId"
ACCESS_KEY_SECRET_FILE = "accessKeySecret"  # noqa: S105 - a file's name, not a secret
SECURITY_TOKEN_FILE = "securityToken"  # noqa: S105 - a file's name, not a secret
ACCESS_KEYS_FILE = "accessKeys.json"
OWN_FOLDER = "credentials"
# Bounds memory if a folder with a large file is mounted by mistake; no field of a key is longer.
_MAX_BYTES = 4096
_MAX_KEYS_BYTES = 1 << 20  # the size limit of a Kubernetes Secret
_FILES = (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE, SECURITY_TOKEN_FILE, ACCESS_KEYS_FILE)


class CredentialsMissing(ServiceFault):
    """A file in the folder is missing, empty or not valid; the message names the file, and no secret."""


# A key id must not contain the colon or the blank that ends it in an Authorization header.
_KeyId = Annotated[str, msgspec.Meta(pattern=rf"^[!-9;-~]{{1,{_MAX_KEY_ID}}}\Z")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_BYTES)]


class _KeyEntry(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """One key in `ACCESS_KEYS_FILE`."""

    access_key_id: _KeyId
    access_key_secret: _Text
    projects: Annotated[list[_Text], msgspec.Meta(min_length=1)]
    rights: Annotated[list[Right], msgspec.Meta(min_length=1)]
    security_token: str = ""
    expiration: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def key(self) -> AccessKey:
        """Raises MalformedName for something that is neither the name of a project nor ``*``."""
        projects = frozenset(
            project if project == EVERY_PROJECT else names.PROJECT.check(project) for project in self.projects
        )
        return AccessKey(
            key_id=self.access_key_id,
            secret=self.access_key_secret,
            security_token=self.security_token,
            expires_unix_s=None if self.expiration is None else self.expiration.timestamp(),
            projects=projects,
            rights=frozenset(self.rights),
        )


class CredentialsFolder:
    """The keys in a folder. Call `refresh` periodically and off the event loop; `find` never blocks.

    ``problem`` says why the folder could not be read at the last `refresh`; "" if it could.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.problem = ""
        self._paths = tuple(os.path.join(folder, name) for name in _FILES)
        self._stamp = file_stamps(*self._paths)
        self._keys = _read(folder)

    def find(self, key_id: str) -> AccessKey | None:
        return self._keys.get(key_id)

    def refresh(self) -> bool:
        """Read the folder again if it changed; True if a key changed. While a rotation is incomplete or a
        file is not valid, the old keys stay in use."""
        stamp = file_stamps(*self._paths)
        if stamp == self._stamp and not self.problem:
            return False
        try:
            keys = _read(self.folder)
        except (CredentialsMissing, OSError) as error:
            self.problem = str(error)
            return False
        self._stamp, self.problem = stamp, ""
        changed = keys != self._keys
        self._keys = keys
        return changed


def _read(folder: str) -> Mapping[str, AccessKey]:
    """All keys by their ids. Raises CredentialsMissing, OSError."""
    keys = _read_list(os.path.join(folder, ACCESS_KEYS_FILE))
    of_one_key = (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE)
    if not keys or any(os.path.exists(os.path.join(folder, name)) for name in of_one_key):
        keys.append(_read_one(folder))
    result = {key.key_id: key for key in keys}
    if len(result) < len(keys):
        raise CredentialsMissing(f"two access keys in {folder} have the same id")
    return result


def _read_one(folder: str) -> AccessKey:
    token = os.path.join(folder, SECURITY_TOKEN_FILE)
    return AccessKey(
        key_id=_read_file(os.path.join(folder, ACCESS_KEY_ID_FILE)),
        secret=_read_file(os.path.join(folder, ACCESS_KEY_SECRET_FILE)),
        security_token=_read_file(token) if os.path.exists(token) else "",
    )


def _read_list(path: str) -> list[AccessKey]:
    """The keys of `ACCESS_KEYS_FILE`; none if it does not exist."""
    if not os.path.exists(path):
        return []
    try:
        entries = msgspec.json.decode(_read_file(path, _MAX_KEYS_BYTES), type=list[_KeyEntry])
        return [entry.key() for entry in entries]
    except (msgspec.DecodeError, MalformedName) as error:  # they quote names of fields, rights and projects
        raise CredentialsMissing(f"{path} is not a list of access keys: {error}") from None


def _read_file(path: str, max_bytes: int = _MAX_BYTES) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(max_bytes).strip()
    except FileNotFoundError as error:
        raise CredentialsMissing(f"{path} does not exist") from error
    except UnicodeDecodeError as error:
        raise CredentialsMissing(f"{path} is not UTF-8 text") from error
    if not text:
        raise CredentialsMissing(f"{path} is empty")
    return text


def own_folder(data: str, random: Random) -> str:
    """The folder with the random key that the service generates at its first start, in files of mode 0600."""
    folder = os.path.join(data, OWN_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, value in (
        (ACCESS_KEY_ID_FILE, "LOGHUB" + random.hex(16)),
        (ACCESS_KEY_SECRET_FILE, random.hex(40)),
    ):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            _write_private(path, value)
    return folder


def _write_private(path: str, value: str) -> None:
    new_path = f"{path}.new"
    fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new_path, path)
