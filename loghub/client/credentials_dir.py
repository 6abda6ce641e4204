"""The access key as files of one directory, as a mounted Secret provides them.

The operator and the worker read a key that never appears on a command line. `loghub.contract.worker`
has the names of the files.
"""

from pathlib import Path

from loghub.client.port import Credentials
from loghub.contract.worker import (
    ACCESS_KEY_ID_FILE,
    ACCESS_KEY_SECRET_FILE,
    REGION_FILE,
    SECURITY_TOKEN_FILE,
)

# Kubernetes replaces all files of a mounted Secret in one step, by this link to their directory.
_CURRENT = "..data"


def read_key(folder: Path) -> Credentials:
    """The access key in a directory. Raises `OSError` if one of its files cannot be read.

    In a mounted Secret, the result never mixes parts of an old and a new key.
    """
    try:
        return _read(_current(folder))
    except FileNotFoundError:  # the directory may have been replaced, and removed, between two files
        return _read(_current(folder))


def _current(folder: Path) -> Path:
    link = folder / _CURRENT
    return folder / link.readlink() if link.is_symlink() else folder


def _read(folder: Path) -> Credentials:
    token, region = folder / SECURITY_TOKEN_FILE, folder / REGION_FILE
    return Credentials(
        access_key_id=_text(folder / ACCESS_KEY_ID_FILE),
        access_key_secret=_text(folder / ACCESS_KEY_SECRET_FILE),
        security_token=_text(token) if token.exists() else "",
        region=_text(region) if region.exists() else "",
    )


def _text(file: Path) -> str:
    """The content of a file; bytes that are not text make a wrong key, which the service rejects."""
    return file.read_text(encoding="utf-8", errors="replace").strip()
