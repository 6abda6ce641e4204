"""Our distributions, as the pyproject.toml in the folder of each package describes them."""

import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
GUARD_S = 600
FOLDERS = {
    # `loghub` is the name of another project's distribution.
    "loghub-core": ROOT / "loghub",
    "loghub-service": ROOT / "service" / "loghub_service",
    "loghub-consumer": ROOT / "worker" / "loghub_consumer",
    "loghub-worker": ROOT / "worker" / "loghub_worker",
    "loghub-spark": ROOT / "worker" / "loghub_spark",
    "loghub-operator": ROOT / "operator" / "loghub_operator",
    "loghub-cli": ROOT / "operator" / "loghub_cli",
}
# What the program of each image is installed from.
IMAGES = {"service": "loghub-service", "operator": "loghub-operator[controller]", "worker": "loghub-worker"}


@cache
def project(name: str) -> dict[str, Any]:
    """The table `project`."""
    table: dict[str, Any] = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())["project"]
    return table


def requirements(distribution: str) -> list[Requirement]:
    """What a distribution requires, such as `loghub-cli[local]`: with its extras."""
    named = Requirement(distribution)
    table = project(named.name)
    lists = [table["dependencies"], *(table["optional-dependencies"][extra] for extra in named.extras)]
    return [Requirement(line) for lines in lists for line in lines]


def required(*distributions: str) -> list[Requirement]:
    """Packages of others that these distributions require, or those of ours that they require."""
    found: dict[str, Requirement] = {}
    for distribution in distributions:
        for needed in requirements(distribution):
            if needed.name not in FOLDERS:
                found[str(needed)] = needed
                continue
            extras = f"[{','.join(needed.extras)}]" if needed.extras else ""
            found |= {str(one): one for one in required(f"{needed.name}{extras}")}
    return list(found.values())


def names(*distributions: str) -> set[str]:
    """The names of the packages that `required` has."""
    return {one.name.lower().replace("_", "-") for one in required(*distributions)}


def installed_with(*wanted: str) -> dict[str, Distribution]:
    """These distributions and all that they require, as the metadata of the installed packages says."""
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    todo = [Requirement(one) for one in wanted]
    while todo:
        needed = todo.pop()
        if str(needed) in seen:
            continue
        seen.add(str(needed))
        name = needed.name.lower().replace("_", "-")
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            inner = Requirement(text)
            extras = ("", *needed.extras)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(inner)
    return found


def build_wheel(name: str, folder: Path) -> Path:
    """The wheel of a distribution of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=FOLDERS[name], check=True, timeout=GUARD_S, stdout=subprocess.DEVNULL)
    (built,) = folder.glob(f"{name.replace('-', '_')}-*.whl")
    return built


def build_wheels(folder: Path) -> Path:
    """The folder, with the wheels of all distributions in it."""
    for name in FOLDERS:
        build_wheel(name, folder)
    return folder
