"""Where the access key comes from on this machine, and the folder the workers read it from.

What for: the embedded service's own pair, or the user's environment for a real endpoint; never
a command line. What it must not know: requests. Read next: `loghub.worker_contract`.
"""

from collections.abc import Mapping
from pathlib import Path

from loghub.atomic_file import replace_file
from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials
from loghub.worker_contract import ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE, SECURITY_TOKEN_FILE
from loghub_operator.model.observed import ServiceError, ServiceErrorReason

KEY_ID = "LOGHUB_ACCESS_KEY_ID"
KEY_SECRET = "LOGHUB_ACCESS_KEY_SECRET"  # noqa: S105 - a variable's name, not a secret
TOKEN = "LOGHUB_SECURITY_TOKEN"  # noqa: S105 - a variable's name, not a secret
_FILES = {KEY_ID: ACCESS_KEY_ID_FILE, KEY_SECRET: ACCESS_KEY_SECRET_FILE, TOKEN: SECURITY_TOKEN_FILE}


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """What a child gets: it reads the key from its folder, and its own children inherit less."""
    return {name: value for name, value in environment.items() if name not in _FILES}


def missing_keys(environment: Mapping[str, str]) -> ServiceError | None:
    """What a real endpoint needs and the environment does not have."""
    absent = [name for name in (KEY_ID, KEY_SECRET) if not environment.get(name)]
    if not absent:
        return None
    message = f"{' and '.join(absent)} must be set in the environment"
    return ServiceError(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message)


def write_folder(folder: Path, environment: Mapping[str, str]) -> None:
    """The environment's key as files that only this user can read."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for variable, name in _FILES.items():
        if environment.get(variable):
            replace_file(folder / name, environment[variable].encode(), private=True)
        else:
            (folder / name).unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Take the key off the disk again."""
    for name in _FILES.values():
        (folder / name).unlink(missing_ok=True)


def read_folder(folder: Path) -> Credentials | ServiceError:
    """The key in a folder, or which file is not there."""
    try:
        return read_key(folder)
    except OSError as error:
        message = f"no access key can be read: {error.strerror}: {error.filename}"
        return ServiceError(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message)
