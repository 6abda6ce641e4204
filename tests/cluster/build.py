"""Compiles the cluster's programs once, into a cache folder.

What for: upstream Kubernetes and CoreDNS from the pinned modules in `tools/go.mod`,
keyed by their contents; a killed build goes on where it was (Go's own build cache), a
second one waits for the first, and both say every 20 s what is being waited for. What
it must not know: how the programs are started. Read next: `packages` for the programs
that Debian brings, `prepare` for all of it in one command, `fixtures` for who asks.

``python -m tests.cluster.build``               build, or wait for a running build
``python -m tests.cluster.build --background``  `prepare` in the background
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster import paths, runs

VERSION = "v1.36.3"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
ALL = (*PROGRAMS, "coredns")
SAY_EVERY_S = 20.0
GUARD_S = 3 * 3600.0
NICE = 10


class BuildError(RuntimeError):
    """The programs are not there and cannot be made; the message says what to do."""


def key(tools: Path = paths.TOOLS) -> str:
    """16 hex digits of what the programs are made from."""
    inputs = (tools / "go.mod", tools / "go.sum", tools / "coredns" / "main.go")
    return hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]


def folder() -> Path:
    return paths.cache_folder() / "cluster-bin" / key()


def built() -> Path | None:
    """The folder of the programs if all of them are there."""
    complete = all((folder() / name).exists() for name in ALL)
    return folder() if complete else None


def command(out: Path) -> list[str]:
    """One `go build` for all programs, so that packages they share are compiled once."""
    major, minor, _ = VERSION.removeprefix("v").split(".")
    version = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())
    programs = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS]
    options = ["-v", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {flags}"]
    return ["go", "build", *options, "-o", f"{out}/", *programs, "./coredns"]


def ensure() -> Path:
    """The folder of the programs; builds them, or waits for the build that runs."""
    if (done := built()) is not None:
        return done
    if shutil.which("go") is None:
        raise BuildError(
            f"Kubernetes {VERSION} is compiled from its Go modules and there is no `go` here: "
            "install Go 1.21 or newer (https://go.dev/doc/install)"
        )
    with runs.locked(_lock(), guard_s=GUARD_S, what="compiling Kubernetes and CoreDNS", say=_say):
        return built() or _build()


def in_progress() -> bool:
    """Is some process building right now?"""
    if not _lock().exists():
        return False
    with _lock().open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock() -> Path:
    return paths.cache_folder() / "cluster-bin" / f"{key()}.lock"


def _build() -> Path:
    out = folder().with_suffix(".building")
    out.mkdir(parents=True, exist_ok=True)
    log = folder().with_suffix(".log")
    _say(f"compiling Kubernetes {VERSION} and CoreDNS, once (10 to 40 minutes); log: {log}")
    with log.open("w") as output:
        child = subprocess.Popen(
            command(out),
            cwd=paths.TOOLS,
            stdout=output,
            stderr=output,
            env={**os.environ, "CGO_ENABLED": "0"},
        )
        try:
            code = _wait(child, log)
        finally:
            child.kill()  # no-op once it has ended; an interrupted run leaves no compiler behind
            child.wait()
    if code != 0:
        raise BuildError(f"go build failed ({code}):\n" + _tail(log))
    out.rename(folder())
    return folder()


def _wait(child: "subprocess.Popen[bytes]", log: Path) -> int:
    started = time.monotonic()
    while True:
        try:
            return child.wait(SAY_EVERY_S)
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - started
            _say(f"compiling Kubernetes for {passed:.0f} s now ({_count_lines(log)} packages compiled)")


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])


def _say(line: str) -> None:
    print(f"[cluster] {line}", file=sys.__stderr__, flush=True)


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
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
