"""Compiles Go programs from pinned modules once, into a cache folder.

A killed build continues where it was (Go's own build cache), a second one waits for the first, and both
report every 20 s what they wait for.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests import locked
from tests.cluster import paths, runs

SAY_EVERY_S = 20.0
GUARD_S = 3 * 3600.0
OLDEST_GO = (1, 21)  # fetches by itself the version that a module requires


class BuildError(RuntimeError):
    """The programs are not there and cannot be made; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Programs that one `go build` makes.

    ``inputs`` are files below ``source`` whose contents name the cache folder; ``arguments``
    are what `go build` gets after its options and the folder of the results.
    """

    what: str
    prefix: str
    source: Path
    inputs: tuple[str, ...]
    flags: str
    arguments: tuple[str, ...]
    programs: tuple[str, ...]

    def key(self) -> str:
        """16 hex digits of what the programs are made from."""
        contents = b"".join((self.source / name).read_bytes() for name in self.inputs)
        return hashlib.sha256(contents).hexdigest()[:16]

    def folder(self) -> Path:
        return paths.cache_folder() / "cluster-bin" / f"{self.prefix}{self.key()}"

    def built(self) -> Path | None:
        """The folder of the programs if all of them are there."""
        complete = all((self.folder() / name).exists() for name in self.programs)
        return self.folder() if complete else None

    def command(self, out: Path, go: str = "go") -> list[str]:
        """One `go build` for all programs, so that packages they share are compiled once."""
        # The linker leaves out what debuggers need, so the compiler does not even write it.
        lean = ["-gcflags=all=-dwarf=false", "-ldflags", f"-s -w {self.flags}".strip()]
        options = ["-v", "-trimpath", "-buildvcs=false", *lean]
        return [go, "build", *options, "-o", f"{out}/", *self.arguments]

    def lock(self) -> Path:
        return paths.cache_folder() / "cluster-bin" / f"{self.prefix}{self.key()}.lock"


def ensure(recipe: Recipe) -> Path:
    """The folder of the programs; builds them, or waits for the build that runs."""
    if (done := recipe.built()) is not None:
        return done
    go = find_go(recipe.what)
    with runs.locked(recipe.lock(), guard_s=GUARD_S, what=f"compiling {recipe.what}", say=say):
        return recipe.built() or _build(recipe, go)


def find_go(what: str) -> str:
    """The user's own Go from 1.21 on, else the pinned one of locks/go.txt. Raises `BuildError`."""
    own = shutil.which("go")
    if own and is_new_enough(_version_of(own)):
        return own
    advice = f"{what} is compiled from its Go modules; install Go 1.21 or newer (https://go.dev/doc/install)"
    if os.environ.get("LOGHUB_INSTALL") == "no":
        raise BuildError(f"{advice}: LOGHUB_INSTALL=no declines to fetch it")
    try:
        return str(locked.folder("go") / "go" / "bin" / "go")
    except RuntimeError as error:
        raise BuildError(f"{advice}: {error}") from error


def is_new_enough(version: str) -> bool:
    """For the output of ``go version``: ``go version go1.26.6 linux/amd64``."""
    result = re.search(r"\bgo(\d+)\.(\d+)", version)
    return result is not None and (int(result[1]), int(result[2])) >= OLDEST_GO


def _version_of(go: str) -> str:
    # Outside any module, else a newer version is fetched first.
    return subprocess.run(
        [go, "version"], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    ).stdout


def in_progress(recipe: Recipe) -> bool:
    """Is some process building right now?"""
    if not recipe.lock().exists():
        return False
    with recipe.lock().open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _build(recipe: Recipe, go: str) -> Path:
    out = recipe.folder().with_suffix(".building")
    out.mkdir(parents=True, exist_ok=True)
    log = recipe.folder().with_suffix(".log")
    say(f"compiling {recipe.what}, once; log: {log}")
    with log.open("w") as output:
        child = subprocess.Popen(
            recipe.command(out, go),
            cwd=recipe.source,
            stdout=output,
            stderr=output,
            env={**os.environ, "CGO_ENABLED": "0"},
        )
        try:
            code = _wait(child, log, recipe.what)
        finally:
            child.kill()  # no-op once it has ended; an interrupted run leaves no compiler behind
            child.wait()
    if code != 0:
        raise BuildError(f"go build of {recipe.what} failed ({code}):\n" + _tail(log))
    out.rename(recipe.folder())
    return recipe.folder()


def _wait(child: "subprocess.Popen[bytes]", log: Path, what: str) -> int:
    started = time.monotonic()
    while True:
        try:
            return child.wait(SAY_EVERY_S)
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - started
            say(f"compiling {what} for {passed:.0f} s now ({_count_lines(log)} packages compiled)")


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-15:])


def say(line: str) -> None:
    print(f"[cluster] {line}", file=sys.__stderr__, flush=True)
