"""Our wheel, and which packages an extra of it installs, as the metadata of the installed packages says."""

import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support import ROOT

GUARD_S = 600


def packages(
    of: Distribution, extra: str, found: dict[str, Distribution] | None = None
) -> dict[str, Distribution]:
    """The packages that a distribution requires with an extra, at any depth."""
    known = {} if found is None else found
    for text in of.requires or ():
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        name = needed.name.lower().replace("_", "-")
        if name not in known:
            known[name] = distribution(name)
            for inner in ("", *needed.extras):
                packages(known[name], inner, known)
    return known


def build_wheel(folder: Path) -> Path:
    """Our own, of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=GUARD_S, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built
