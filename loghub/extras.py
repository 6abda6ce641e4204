"""Says which extra of the package is missing, in the place of a traceback that names one of its modules.

The package has parts for different machines, and a part imports what its extra installs. Nothing here imports
any of that.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version

PACKAGE = "loghub-operator"
_OURS = (
    "loghub",
    "loghub_service",
    "loghub_consumer",
    "loghub_worker",
    "loghub_spark",
    "loghub_operator",
    "loghub_cli",
)
# Such as `click>=8.2; extra == 'cli'`. An extra that has others lists their packages too.
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)[^;]*; extra == ['\"](?P<extra>[\w-]+)['\"]")


class MissingExtraError(ImportError):
    """The message says what to install."""

    def __init__(self, extra: str, *, what: str, missing: str) -> None:
        super().__init__(
            f"{what} needs {missing}, which is not installed here: pip install '{PACKAGE}[{extra}]'"
        )


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """For imports. Raises `MissingExtraError` for a package that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        raise MissingExtraError(extra, what=what, missing=missing) from error


def require(extra: str, what: str) -> None:
    """For a program that runs as a process of its own. Raises `MissingExtraError` unless all packages of its
    extra are installed."""
    missing = _missing(extra)
    if missing:
        raise MissingExtraError(extra, what=what, missing=", ".join(missing))


def _missing(extra: str) -> list[str]:
    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError:  # run from a folder, as in an image, which has a test of its own
        return []
    found = (_REQUIREMENT.fullmatch(line) for line in lines)
    names = [one["name"] for one in found if one is not None and one["extra"] == extra]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
