"""The group's lock: held by one process, checked by many."""

import subprocess
import sys
from pathlib import Path

import pytest

from loghub_cli.up.paths import InUseError, is_locked, locked
from tests.support import ROOT

LOOKER = """
import sys
from pathlib import Path
from loghub_cli.up.paths import is_locked
print("looks", flush=True)
while not Path(sys.argv[2]).exists():
    is_locked(Path(sys.argv[1]))
"""


def test_a_held_lock_is_reported_and_excludes_others(tmp_path: Path) -> None:
    lock = tmp_path / "group" / "lock"
    assert not is_locked(lock)
    with locked(lock):
        assert is_locked(lock)
        assert is_locked(lock), "a look changes nothing"
        with pytest.raises(InUseError, match="in use by another process"), locked(lock):
            pass
        assert is_locked(lock)
    assert not is_locked(lock)
    with locked(lock):
        assert is_locked(lock)


def test_checking_a_lock_excludes_no_other_process(tmp_path: Path) -> None:
    lock, enough = tmp_path / "lock", tmp_path / "enough"
    with locked(lock):
        pass
    command = [sys.executable, "-c", LOOKER, str(lock), str(enough)]
    looker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert looker.stdout is not None
        assert looker.stdout.readline() == "looks\n"
        for _ in range(3000):
            with locked(lock):
                pass
    finally:
        enough.touch()
        assert looker.wait(180) == 0
