"""One interface for the clusters that tests run on, and the choice between them.

`kind` is used if a Docker engine answers and the `kind` program is installed, else `upstream` (real
Kubernetes programs as processes of this machine); ``LOGHUB_TEST_CLUSTER=kind|upstream`` overrides the choice.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OVERRIDE = "LOGHUB_TEST_CLUSTER"
PARTS = ("service", "operator", "worker")


class ClusterUnavailableError(RuntimeError):
    """No provider can work here; the message says why and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster with the project's images on its node.

    ``volumes`` is a folder of this machine that the node sees as ``volumes_on_node``:
    a hostPath volume there can be read by the test. ``on_node`` are the arguments that run a command
    on the node, before that command. ``restart_apiserver`` ends the apiserver by SIGKILL, all else
    goes on; a new one is being started when it returns.
    """

    kubeconfig: Path
    kubectl: Path
    images: dict[str, str]  # part -> image name for a pod
    volumes: Path
    volumes_on_node: str
    restart_apiserver: Callable[[], None]
    on_node: tuple[str, ...] = ()


class ClusterProvider(Protocol):
    """Brings one cluster up and takes it down; both may be repeated."""

    name: str

    def up(self) -> Cluster:
        """A cluster whose node is Ready; leftovers of an earlier run are cleaned first."""

    def load_images(self) -> dict[str, str]:
        """Build the images that are missing and put them on the node; names by part."""

    def running(self) -> Cluster | None:
        """The cluster that is up and answers now, if any."""

    def down(self) -> None:
        """Remove everything that `up` has made."""


def choose() -> str:
    """``kind`` or ``upstream``; raises `ClusterUnavailableError`."""
    wanted = os.environ.get(OVERRIDE, "")
    if wanted:
        if wanted not in ("kind", "upstream"):
            raise ClusterUnavailableError(f"{OVERRIDE}={wanted}: it is kind or upstream")
        return wanted
    return decide(
        docker=docker_answers(),
        kind=shutil.which("kind") is not None,
        linux=platform.system() == "Linux",
        root=os.geteuid() == 0,
    )


def decide(*, docker: bool, kind: bool, linux: bool, root: bool) -> str:
    """The choice from what the machine has."""
    if docker and kind:
        return "kind"
    if linux and root:
        return "upstream"
    if docker:
        raise ClusterUnavailableError("a Docker engine is here, `kind` is not: see https://kind.sigs.k8s.io")
    raise ClusterUnavailableError(
        "a test cluster needs a Docker engine and `kind` (https://kind.sigs.k8s.io), or Linux and root"
    )


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def make(name: str) -> ClusterProvider:
    """The provider of that name (imported late: each needs tools of its own)."""
    if name == "kind":
        from tests.cluster.kind import Kind

        return Kind()
    from tests.cluster.upstream import Upstream

    return Upstream()
