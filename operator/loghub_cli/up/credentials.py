"""The source of the access key on this machine, and the folder from which the workers read it.

The key is the embedded service's own, or comes from the user's environment for any other endpoint. It is
never passed on a command line.
"""

from collections.abc import Mapping
from pathlib import Path

from loghub.atomic_file import replace_file
from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials
from loghub.contract.worker import (
    ACCESS_KEY_ID_FILE,
    ACCESS_KEY_SECRET_FILE,
    REGION_FILE,
    SECURITY_TOKEN_FILE,
)
from loghub_cli.up.service_options import KEY_ID, KEY_SECRET, REGION, TOKEN
from loghub_operator.logservice.access import LogServiceUnavailable
from loghub_operator.model.observed import ServiceErrorReason, Unavailable

_FILES = {
    KEY_ID: ACCESS_KEY_ID_FILE,
    KEY_SECRET: ACCESS_KEY_SECRET_FILE,
    TOKEN: SECURITY_TOKEN_FILE,
    REGION: REGION_FILE,
}


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process, which reads the key from its folder, so that its own children do
    not inherit the key."""
    return {name: value for name, value in environment.items() if name not in _FILES}


def missing_keys(environment: Mapping[str, str]) -> Unavailable | None:
    """The error that names the variables a real endpoint needs and the environment lacks; None if all are
    set."""
    absent = [name for name in (KEY_ID, KEY_SECRET) if not environment.get(name)]
    if not absent:
        return None
    message = f"{' and '.join(absent)} must be set in the environment"
    return Unavailable(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message)


def write_folder(folder: Path, environment: Mapping[str, str]) -> None:
    """Writes the key from the environment to files that only this user can read."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for variable, name in _FILES.items():
        if environment.get(variable):
            replace_file(folder / name, environment[variable].encode(), private=True)
        else:
            (folder / name).unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Removes the key from the disk."""
    for name in _FILES.values():
        (folder / name).unlink(missing_ok=True)


def read_folder(folder: Path) -> Credentials:
    """Reads the key from a folder; raises `LogServiceUnavailable`, which names the unreadable file."""
    try:
        return read_key(folder)
    except OSError as error:
        message = f"no access key can be read: {error.strerror}: {error.filename}"
        why = Unavailable(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message)
        raise LogServiceUnavailable(why) from error
