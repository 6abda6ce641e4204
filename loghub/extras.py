"""Error messages that say what to install, instead of a traceback that names a module of a missing package.

Each product is a distribution, and some have extras, which install the packages that a part of the product
imports. This module imports none of them.
"""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

# Such as `loghub-cli[local]`, as pip takes it.
_DISTRIBUTION = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[\w,-]+)\])?")
# Such as `loghub-core[sdk]==0.1.0; extra == 'local'`.
_MARKER = re.compile(r"extra == ['\"](?P<extra>[\w-]+)['\"]")


class MissingPackageError(ImportError):
    """The message says what to install."""

    def __init__(self, distribution: str, *, what: str, missing: str) -> None:
        shown = f"'{distribution}'" if "[" in distribution else distribution
        super().__init__(f"{what} needs {missing}, which is not installed here: pip install {shown}")


@contextmanager
def needs(distribution: str, what: str) -> Iterator[None]:
    """For imports. Raises `MissingPackageError` for a package that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package, _, module = (error.name or "").partition(".")
        # A missing module of a package of ours is a fault of the code, and no package could be installed for
        # it.
        if not package or (module and package.startswith("loghub")):
            raise
        raise MissingPackageError(distribution, what=what, missing=package) from error


def require(distribution: str, what: str) -> None:
    """For a program that runs as a process of its own. Raises `MissingPackageError` unless the distribution
    is installed with what it requires."""
    missing = _missing(distribution, set())
    if missing:
        raise MissingPackageError(distribution, what=what, missing=", ".join(missing))


def _missing(distribution: str, seen: set[str]) -> list[str]:
    """The packages that are missing, including the requirements of our own distributions."""
    named = _DISTRIBUTION.match(distribution)
    assert named is not None, distribution
    name, extras = named["name"], set((named["extras"] or "").split(","))
    if named[0] in seen:
        return []
    seen.add(named[0])
    if not _is_installed(name):
        return [name]
    if not name.startswith("loghub"):
        return []
    missing = []
    for line in _metadata().requires(name) or ():
        needed, _, marker = line.partition(";")
        of = _MARKER.search(marker)
        if of is None or of["extra"] in extras:
            missing += _missing(needed, seen)
    return missing


def _is_installed(name: str) -> bool:
    try:
        _metadata().version(name)
    except _metadata().PackageNotFoundError:
        return False
    return True


def _metadata() -> ModuleType:
    """Imported where it is asked, which few programs do: it takes 20 ms of CPU time."""
    return importlib.import_module("importlib.metadata")
