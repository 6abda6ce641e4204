"""A service that is a copy of a loaded process does what one does that was started by itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_start
from tests.support import ROOT, START_GUARD_S, running_service

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
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    helper = int(done.stdout)
    # The pipe of the output is closed by the last process that has it, which is the helper.
    assert not Path(f"/proc/{helper}").exists() or "Z" in Path(f"/proc/{helper}/stat").read_text().split()[2]
