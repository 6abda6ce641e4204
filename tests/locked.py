"""Packages of a lock file in a folder of their own, outside the virtual environment.

Some packages must not be in the environment that the tests run in: the Go toolchain is too large for
`make setup`, the tests also cover what happens where pandas is absent, and Spark Connect needs another
protobuf than the vendor's SDK. Such packages are installed once into the cache folder, in a folder named
after the lock, or as a virtual environment of its own.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import paths, runs

LOCKS = paths.REPOSITORY / "locks"
GUARD_S = 900.0
_BLOCK = re.compile(r"^([A-Za-z0-9_.\-]+)==.*\n(?:[ \t].*\n)*", re.MULTILINE)


def blocks(text: str) -> dict[str, str]:
    """The lines of each package of a lock file, by its name; it may have a version for each Python."""
    lines: dict[str, str] = {}
    for found in _BLOCK.finditer(text):
        lines[found[1]] = lines.get(found[1], "") + found[0]
    return lines


def folder(lock: str, *, without: str = "") -> Path:
    """The folder with the packages of the lock, but for those that the lock ``without`` has too.

    Raises `RuntimeError` if they cannot be installed.
    """
    present = blocks((LOCKS / f"{without}.txt").read_text()) if without else {}
    wanted = blocks((LOCKS / f"{lock}.txt").read_text())
    text = "".join(block for name, block in wanted.items() if name not in present)
    key = hashlib.sha256(f"{sys.version_info[:2]}{text}".encode()).hexdigest()[:16]
    made = paths.cache_folder() / "packages" / f"{lock}-{key}"
    with runs.locked(made.with_suffix(".lock"), guard_s=GUARD_S, what=f"installing locks/{lock}.txt"):
        if not made.exists():
            _install(text, made)
    return made


def environment(lock: str) -> Path:
    """The Python of a virtual environment that has just the packages of the lock, all of them compiled.

    Raises `RuntimeError` if it cannot be made.
    """
    source = LOCKS / f"{lock}.txt"
    key = hashlib.sha256(f"compiled{sys.version}{source.read_text()}".encode()).hexdigest()[:16]
    made = paths.cache_folder() / "packages" / f"{lock}-environment-{key}"
    ready = made / "ready"
    with runs.locked(made.with_suffix(".lock"), guard_s=GUARD_S, what=f"installing locks/{lock}.txt"):
        if not ready.exists():
            shutil.rmtree(made, ignore_errors=True)
            _uv("venv", "--quiet", "--python", sys.executable, made)
            options = ["--quiet", "--compile-bytecode", "--python", made, "--require-hashes"]
            _uv("pip", "sync", *options, source)
            # Without them Spark's Python processes import the compiled pyspark (see the Dockerfile).
            for archive in made.glob("lib/python3*/site-packages/pyspark/python/lib/*.zip"):
                archive.unlink()
            ready.touch()
    return made / "bin" / "python"


def _uv(*arguments: str | Path) -> None:
    command = [Path(sys.executable).with_name("uv"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"uv {arguments[0]} failed: {done.stderr.strip()}")


def _install(text: str, made: Path) -> None:
    part, list_file = made.with_suffix(".part"), made.with_suffix(".txt")
    shutil.rmtree(part, ignore_errors=True)
    list_file.write_text(text)
    options = ["--quiet", "--compile-bytecode", "--python", sys.executable, "--no-deps", "--require-hashes"]
    _uv("pip", "install", *options, "--target", part, "-r", list_file)
    part.rename(made)
