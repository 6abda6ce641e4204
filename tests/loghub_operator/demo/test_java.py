"""The Java check that `make demo` begins with, against a stand-in `java`."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.java import SCRIPT


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(folder: Path, *arguments: str, uid: int = 1000) -> subprocess.CompletedProcess[str]:
    """Only what the script needs besides is taken from the machine; as a rule, nobody is root."""
    for name in ("sed", "head"):
        found = next(Path(one, name) for one in os.environ["PATH"].split(":") if Path(one, name).exists())
        (folder / name).symlink_to(found)
    program(folder, "id", f"echo {uid}")
    command = ["/bin/sh", str(SCRIPT), *arguments]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_is_new_enough(version: str, tmp_path: Path) -> None:
    program(tmp_path, "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    found = run(tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "told"), [("1.8.0_402", "found: 8"), ("11.0.2", "found: 11")])
def test_one_that_is_too_old(version: str, told: str, tmp_path: Path) -> None:
    program(tmp_path, "java", f"""echo 'java version "{version}"' >&2""")
    found = run(tmp_path)
    assert found.returncode == 1
    assert told in found.stderr
    assert found.stderr.count("\n") == 1


def test_none_at_all(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.returncode == 1
    assert "install it" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "asked"), [((), True), (("--look",), False)])
def test_root_gets_it_installed_unless_only_a_look_is_wanted(
    arguments: tuple[str, ...], asked: bool, tmp_path: Path
) -> None:
    program(tmp_path, "apt-get", f'echo "$@" >>{tmp_path}/asked')
    found = run(tmp_path, *arguments, uid=0)
    assert found.returncode == 1  # this apt-get installs nothing
    assert (tmp_path / "asked").exists() is asked
