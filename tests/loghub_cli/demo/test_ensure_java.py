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


def run(
    folder: Path, *arguments: str, uid: int = 1000, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Only the tools that the script needs come from the machine; the user is not root by default."""
    for name in ("sed", "head", "tail"):
        result = next(Path(one, name) for one in os.environ["PATH"].split(":") if Path(one, name).exists())
        (folder / name).symlink_to(result)
    program(folder, "id", f"echo {uid}")
    command = ["/bin/sh", str(SCRIPT), *arguments]
    environment["PATH"] = str(folder)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_is_new_enough_is_used(version: str, tmp_path: Path) -> None:
    program(tmp_path, "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    result = run(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "reported"), [("1.8.0_402", "found: 8"), ("11.0.2", "found: 11")])
def test_a_java_that_is_too_old_is_not_used(version: str, reported: str, tmp_path: Path) -> None:
    program(tmp_path, "java", f"""echo 'java version "{version}"' >&2""")
    result = run(tmp_path)
    assert result.returncode == 1
    assert reported in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_java_is_reported(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 1
    assert "install it" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "installed"), [((), True), (("--look",), False)])
def test_as_root_java_is_installed_unless_only_a_check_is_requested(
    arguments: tuple[str, ...], installed: bool, tmp_path: Path
) -> None:
    program(tmp_path, "apt-get", f'echo "$@" >>{tmp_path}/asked')
    result = run(tmp_path, *arguments, uid=0)
    assert result.returncode == 1  # this apt-get installs nothing
    assert (tmp_path / "asked").exists() is installed


def test_the_variable_declines_and_the_message_says_so(tmp_path: Path) -> None:
    program(tmp_path, "apt-get", f'echo "$@" >>{tmp_path}/asked')
    result = run(tmp_path, uid=0, LOGHUB_INSTALL="no")
    assert result.returncode == 1
    assert "LOGHUB_INSTALL=no" in result.stderr
    assert not (tmp_path / "asked").exists()


def test_empty_package_lists_are_fetched_and_a_later_java_is_taken(tmp_path: Path) -> None:
    """As on a new machine of a Debian that has no Java 17: its apt-get knows the package after an update."""
    program(
        tmp_path,
        "apt-get",
        f"""echo "$@" >>{tmp_path}/asked
case "$*" in
    update*) : >{tmp_path}/lists ;;
    *default-jre-headless*)
        [ -e {tmp_path}/lists ] || exit 100
        printf '#!/bin/sh\necho openjdk version \\"21\\" >&2\n' >{tmp_path}/java
        /bin/chmod +x {tmp_path}/java ;;
    *) exit 100 ;;
esac""",
    )
    result = run(tmp_path, uid=0)
    assert result.returncode == 0, result.stderr
    assert "update -q" in (tmp_path / "asked").read_text()
