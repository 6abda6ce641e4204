"""Peers' own tests, as they are published, with the few lines changed that assume what is not so here.

Each is copied into the cache folder, under a name that changes with its version, with what is added to it and
with the changes.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import paths

GUARD_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line of a peer's tests, and what is there instead. ``file`` is relative to its source."""

    file: str
    before: str
    after: str


def folder_of(name: str, version: str, ours: Path, changes: Sequence[Change]) -> Path:
    """Where the copy belongs; ``ours`` is the file that is added."""
    contents = f"{version}{ours.read_text()}{changes}"
    return paths.cache_folder() / f"peer-{name}-{hashlib.sha256(contents.encode()).hexdigest()[:16]}"


def copied(source: Path, folder: Path, changes: Sequence[Change]) -> Path:
    """A copy of the source with the changes, to be renamed to the folder; it can be written to."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part, copy_function=shutil.copyfile)
    for path in (part, *part.rglob("*/")):
        path.chmod(0o755)
    for change in changes:
        file = part / change.file
        text = file.read_text()
        if change.before not in text:
            # Not a RuntimeError, for which the tests are skipped.
            raise AssertionError(
                f"{change.file} no longer has {change.before!r}: see the changes of this peer"
            )
        file.write_text(text.replace(change.before, change.after))
    return part


def run(command: Sequence[object], folder: Path) -> str:
    """Run a command that makes a peer ready, and return what it prints. Raises `RuntimeError`."""
    done = subprocess.run(
        [str(one) for one in command],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} in {folder}: {done.stdout}{done.stderr}")
    return done.stdout
