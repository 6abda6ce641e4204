"""A service that is a copy of a loaded process does what one does that was started by itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_start
from tests.support import ROOT, START_GUARD_S, running_service, wait_until

pytestmark = pytest.mark.long


def run_warm(folder: Path, arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
    with (folder / "output").open("wb") as output:
        process = warm_start.start(arguments, environment, output)
        status = process.wait(START_GUARD_S)
    return status, (folder / "output").read_text()


def test_it_has_the_arguments_the_variables_the_output_and_the_status_of_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    # The width of the words on the command line follows from a variable.
    arguments, environment = ["--listen", "nowhere"], os.environ | {"COLUMNS": "50"}
    command = [sys.executable, "-m", warm_start.MODULE, *arguments]
    own = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert own.returncode == 2
    assert run_warm(tmp_path, arguments, environment) == (own.returncode, own.stderr)
    assert run_warm(tmp_path, arguments, environment | {"COLUMNS": "200"}) != (own.returncode, own.stderr)


def test_its_end_is_seen_however_it_ends(tmp_path: Path) -> None:
    for name, end, status in (("asked", signal.SIGTERM, 0), ("killed", signal.SIGKILL, -signal.SIGKILL)):
        with running_service(tmp_path / name) as service:
            os.kill(service.pid, end)
            assert service.wait() == status
            assert not service.running


def test_its_helper_ends_with_the_process_of_the_test() -> None:
    program = """if True:
        import os
        from tests import warm_start
        with open(os.devnull, "wb") as output:
            warm_start.start(["--help"], os.environ, output).wait()
        print(warm_start._HELPERS[0]._process.pid, flush=True)
        os._exit(0)
    """
    command = [sys.executable, "-c", program]
    # Returns as the pipe is closed by the last process that has it, which is the helper.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    helper = Path("/proc") / done.stdout.strip()
    wait_until(lambda: not helper.exists() or is_zombie(helper), "the end of the helper")


def is_zombie(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
