"""The access key that authenticates requests.

The key comes from a mounted folder, which is read again after a rotation, or it is generated at the first
start and stored in the data directory. `loghub.service.http.auth` verifies signatures with it.
"""

import os
from dataclasses import dataclass

from loghub.service.faults import ServiceFault
from loghub.service.ports import Dice

ACCESS_KEY_ID_FILE = "accessKeyId"
ACCESS_KEY_SECRET_FILE = "accessKeySecret"  # noqa: S105 - a file's name, not a secret
OWN_FOLDER = "credentials"
_MAX_BYTES = 4096


class CredentialsMissing(ServiceFault):
    """A file in the folder is missing, empty or not UTF-8 text; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """An access key id and its secret; `repr` does not show the secret."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        return f"AccessKey(key_id={self.key_id!r}, secret=***)"


class CredentialsFolder:
    """The key in a folder. Call `refresh` periodically and off the event loop; `current` never blocks."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._stamp = self._file_stamps()
        self.current = _read(folder)

    def refresh(self) -> bool:
        """Read the folder again if it changed; True if the key changed. While a rotation is incomplete, the
        old key stays in use."""
        stamp = self._file_stamps()
        if stamp == self._stamp:
            return False
        try:
            key = _read(self.folder)
        except (CredentialsMissing, OSError):
            return False
        self._stamp = stamp
        changed = key != self.current
        self.current = key
        return changed

    def _file_stamps(self) -> tuple[tuple[int, int], ...]:
        try:
            stats = [os.stat(os.path.join(self.folder, name)) for name in _FILES]
        except OSError:
            return ()
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


_FILES = (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE)


def _read(folder: str) -> AccessKey:
    key_id, secret = (_read_file(os.path.join(folder, name)) for name in _FILES)
    return AccessKey(key_id=key_id, secret=secret)


def _read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_BYTES).strip()
    except FileNotFoundError as error:
        raise CredentialsMissing(f"{path} does not exist") from error
    except UnicodeDecodeError as error:
        raise CredentialsMissing(f"{path} is not UTF-8 text") from error
    if not text:
        raise CredentialsMissing(f"{path} is empty")
    return text


def own_folder(data: str, dice: Dice) -> str:
    """The folder with the random key that the service generates at its first start, in files of mode 0600."""
    folder = os.path.join(data, OWN_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, value in (
        (ACCESS_KEY_ID_FILE, "LOGHUB" + dice.hex(16)),
        (ACCESS_KEY_SECRET_FILE, dice.hex(40)),
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
