"""Spark runs as a user that the system has no name for, as on platforms that assign the user of a pod."""

import pwd
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster import require
from tests.support import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

USER = 1_234_567
PROGRAM = """
import os, sys
from pathlib import Path
from loghub.contract.worker import ENV_CLASS_ARCHIVE
from loghub_worker.query.spark_session import start_spark
from loghub.contract.sinks import ParquetSink
from tests.loghub_worker.support import worker_config

folder = Path(sys.argv[1])
config = worker_config("http://unused", ParquetSink(path="/unused"))
archive = os.environ.get(ENV_CLASS_ARCHIVE)
spark = start_spark(config, folder, class_archive=Path(archive) if archive else None)
spark.range(3).coalesce(1).write.parquet(str(folder / "out"))
spark.stop()
"""


AS_USER = ["unshare", "--user", f"--map-user={USER}", "--map-group=0"]


@pytest.fixture(autouse=True)
def user_namespaces() -> None:
    """In a namespace of its own a process has any user id that it likes, and its files stay those of ours."""
    try:
        done = subprocess.run([*AS_USER, "id", "-u"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        require.absent("unshare (util-linux) is not installed")
    if done.stdout.strip() != str(USER):
        require.absent(f"no user namespaces on this machine: {done.stderr.strip()}")
    with pytest.raises(KeyError):
        pwd.getpwuid(USER)


def test_files_are_written_by_a_user_without_a_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AS_USER, sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_table(tmp_path / "out").num_rows == 3
