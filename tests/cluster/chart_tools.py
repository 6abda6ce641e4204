"""The real helm and actionlint, the user's own or compiled from pinned modules, and small programs around
the code of KEDA, Flux and Argo CD.

Tests render and lint the chart with them, install it on a cluster, lint the workflow, query our external
scaler, and judge our conditions. The modules are `tools/helm` (a helm release that uses the libraries of the
Kubernetes in `build`, so that most of it is compiled already), `tools/actionlint`, `tools/keda` and
`tools/health`.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tests.cluster import compiling, paths
from tests.cluster.compiling import BuildError, Recipe

HELM_VERSION = "v4.2.4"
OLDEST_HELM = (3, 14)
HELM = Recipe(
    what=f"helm {HELM_VERSION}",
    prefix="helm-",
    source=paths.TOOLS / "helm",
    inputs=("go.mod", "go.sum"),
    flags=f"-X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
    arguments=("helm.sh/helm/v4/cmd/helm",),
    programs=("helm",),
)
ACTIONLINT = Recipe(
    what="actionlint",
    prefix="actionlint-",
    source=paths.TOOLS / "actionlint",
    inputs=("go.mod", "go.sum"),
    flags="",
    arguments=("github.com/rhysd/actionlint/cmd/actionlint",),
    programs=("actionlint",),
)
# A few lines around the client that KEDA's module has for external scalers.
KEDA = Recipe(
    what="the client of KEDA's external scalers",
    prefix="keda-",
    source=paths.TOOLS / "keda",
    inputs=("go.mod", "go.sum", "main.go"),
    flags="",
    arguments=(".",),
    programs=("keda",),
)
# A few lines around kstatus, which Flux and helm use, and around the Lua of Argo CD.
HEALTH = Recipe(
    what="kstatus and Argo CD's Lua",
    prefix="health-",
    source=paths.TOOLS / "health",
    inputs=("go.mod", "go.sum", "main.go"),
    flags="",
    arguments=(".",),
    programs=("health",),
)


def ensure_all() -> None:
    """Compile what the user's PATH lacks. Raises `BuildError`."""
    helm()
    actionlint()
    keda()
    health()


def helm() -> Path:
    """The user's own from 3.14 on, else ours. Raises `BuildError`."""
    own = shutil.which("helm")
    if own and is_new_enough(_said(own, "version", "--short")):
        return Path(own)
    return compiling.ensure(HELM) / "helm"


def actionlint() -> Path:
    """The user's own, else ours. Raises `BuildError`."""
    own = shutil.which("actionlint")
    return Path(own) if own else compiling.ensure(ACTIONLINT) / "actionlint"


def keda() -> Path:
    """Always ours, since no machine has one. Raises `BuildError`."""
    return compiling.ensure(KEDA) / "keda"


def health() -> Path:
    """Always ours, since no machine has one. Raises `BuildError`."""
    return compiling.ensure(HEALTH) / "health"


def is_new_enough(said: str) -> bool:
    """Of what ``helm version --short`` says: ``v3.19.0+g3d8990f``."""
    result = re.match(r"v(\d+)\.(\d+)", said.strip())
    return result is not None and (int(result[1]), int(result[2])) >= OLDEST_HELM


def out_of_reach(recipe: Recipe) -> bool:
    """Whether a request for it would start a compilation of minutes."""
    absent = shutil.which(recipe.programs[0]) is None and recipe.built() is None
    return absent and not compiling.in_progress(recipe)


def _said(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


__all__ = [
    "BuildError",
    "actionlint",
    "ensure_all",
    "health",
    "helm",
    "is_new_enough",
    "keda",
    "out_of_reach",
]
