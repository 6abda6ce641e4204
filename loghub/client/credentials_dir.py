"""The access key as files of one folder, as a mounted Secret has them.

What for: operator and worker read a key that is never on a command line. What it must not know:
who made the folder, requests. Read next: `loghub.worker_contract` (the files' names).
"""

from pathlib import Path

from loghub.client.port import Credentials
from loghub.worker_contract import ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE, SECURITY_TOKEN_FILE

# Kubernetes replaces all files of a mounted Secret in one step, by this link to the folder they are in.
_CURRENT = "..data"


def read_key(folder: Path) -> Credentials:
    """The access key in a folder; raises `OSError` where a file of it cannot be read. Never half of
    one key and half of the next, where the folder is a mounted Secret."""
    try:
        return _read(_current(folder))
    except FileNotFoundError:  # perhaps the folder was replaced, and removed, between two files
        return _read(_current(folder))


def _current(folder: Path) -> Path:
    link = folder / _CURRENT
    return folder / link.readlink() if link.is_symlink() else folder


def _read(folder: Path) -> Credentials:
    token = folder / SECURITY_TOKEN_FILE
    return Credentials(
        access_key_id=_text(folder / ACCESS_KEY_ID_FILE),
        access_key_secret=_text(folder / ACCESS_KEY_SECRET_FILE),
        security_token=_text(token) if token.exists() else "",
    )


def _text(file: Path) -> str:
    """What is no text is a wrong key, and refused as such."""
    return file.read_text(encoding="utf-8", errors="replace").strip()
