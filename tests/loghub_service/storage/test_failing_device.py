"""A real file system of which a sync fails, as `tests.loghub_service.simdisk` says that it does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = ("unshare", "mount", "umount", "mkfs.ext4")
GUARD_S = 120.0


def test_what_was_readable_after_a_failed_sync_is_there_after_the_machine_restarts(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a file system on a loop device needs root")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"a file system on a loop device needs {', '.join(missing)}")
    namespace = ("unshare", "--mount", "--propagation", "private")
    program = (sys.executable, "-m", "tests.loghub_service.storage.failing_device", str(tmp_path))
    ended = subprocess.run(
        (*namespace, *program), capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
