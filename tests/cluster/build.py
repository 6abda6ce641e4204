"""Compiles the cluster's programs once, into a cache folder.

These are upstream Kubernetes, etcd and CoreDNS from the pinned modules in `tools/go.mod`; a first build takes
10 to 40 minutes. `compiling` does the work, `packages` covers the programs that Debian brings, and `prepare`
does all of it in one command.

``python -m tests.cluster.build``               build, or wait for a running build
``python -m tests.cluster.build --background``  `prepare` in the background
"""

import argparse
import os
import sys
from pathlib import Path

from tests.cluster import compiling, paths
from tests.cluster.compiling import BuildError, Recipe

__all__ = ["BuildError", "built", "ensure", "folder", "in_progress"]

VERSION = "v1.36.3"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
NICE = 10


def _stamp() -> str:
    """Linker flags for what `kubectl version` says."""
    major, minor, _ = VERSION.removeprefix("v").split(".")
    version = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())


KUBERNETES = Recipe(
    what=f"Kubernetes {VERSION} with etcd and CoreDNS",
    prefix="",
    source=paths.TOOLS,
    inputs=("go.mod", "go.sum", "coredns/main.go", "etcd/main.go"),
    flags=_stamp(),
    arguments=(*(f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS), "./coredns", "./etcd"),
    programs=(*PROGRAMS, "coredns", "etcd"),
)


def folder() -> Path:
    return KUBERNETES.folder()


def built() -> Path | None:
    """The folder of the programs if all of them are there."""
    return KUBERNETES.built()


def ensure() -> Path:
    """The folder of the programs; builds them, or waits for the build that runs."""
    return compiling.ensure(KUBERNETES)


def in_progress() -> bool:
    """Is some process building right now?"""
    return compiling.in_progress(KUBERNETES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build")
    parser.add_argument("--background", action="store_true", help="start it and return at once")
    parser.add_argument("--nice", action="store_true", help="let other work go first")
    options = parser.parse_args()
    if options.background:
        from tests.cluster import prepare  # it imports this module

        prepare.in_background()
        return 0
    if options.nice:
        os.nice(NICE)
    try:
        print(ensure())
    except BuildError as error:
        compiling.say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
