"""Runs a service above `stable_storage.c` and makes the folder that a power cut would leave.

A kill does not lose the page cache. This loses everything that was not synced: contents of files and
entries of folders.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")


def compiler() -> str:
    """A C compiler; without one the test is skipped with the way to get it."""
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler; on Debian: apt-get install gcc libc6-dev")
    return found


def build(folder: Path) -> Path:
    library = folder / "stable_storage.so"
    command = [
        compiler(),
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-o",
        str(library),
        str(_SOURCE),
        "-ldl",
        "-pthread",
    ]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True, slots=True, kw_only=True)
class StableStorage:
    """``live`` is the data folder, which must exist; ``shadow`` is made."""

    library: Path
    live: Path
    shadow: Path

    def environment(self, *, ignore: str = "", kill: tuple[str, int] = ("", 0)) -> dict[str, str]:
        """For the service's process. ``ignore``: syncs of paths with this suffix do nothing. ``kill``: the
        process is killed at a sync of a path with this suffix, after so many others."""
        for name in ("files", "dirs"):
            (self.shadow / name).mkdir(parents=True, exist_ok=True)
        chosen = {"STABLE_IGNORE": ignore} if ignore else {}
        if kill[0]:
            chosen |= {"STABLE_KILL": kill[0], "STABLE_SPARED": str(kill[1])}
        return {
            "LD_PRELOAD": str(self.library),
            "STABLE_LIVE": str(self.live.resolve()),
            "STABLE_SHADOW": str(self.shadow),
            **chosen,
        }

    def after_power_cut(self, target: Path) -> None:
        """Build in ``target`` what would be found on the disk."""
        self._folder((self.shadow / "root").read_text(), target)

    def _folder(self, identity: str, target: Path) -> None:
        target.mkdir(parents=True)
        entries = self.shadow / "dirs" / identity
        for line in entries.read_text().splitlines() if entries.exists() else ():
            kind, inner, name = line.split(" ", 2)
            if kind == "d":
                self._folder(inner, target / name)
            else:
                self._file(inner, target / name)

    def _file(self, identity: str, target: Path) -> None:
        content = self.shadow / "files" / identity
        target.write_bytes(content.read_bytes() if content.exists() else b"")
        target.chmod(0o600)
