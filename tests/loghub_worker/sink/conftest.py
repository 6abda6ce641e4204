"""The commit log's tests run over a folder and over a bucket of a real S3 server."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.commit_log_child import BUCKET, BucketOfATest
from tests.support import ROOT


def bucket_in(folder: Path, s3: S3Server) -> BucketOfATest:
    """Make the sink of the workers in `folder` a bucket, whose objects are the files in ``sink``."""
    name = f"b-{folder.parent.name}-{folder.name}".replace("_", "-").lower()[-60:].strip("-.")
    (folder / "sink").symlink_to(s3.bucket(name))
    keys = s3.credentials(folder / "keys")
    bucket = BucketOfATest(url=f"s3://{name}", endpoint=s3.endpoint, credentials=str(keys))
    (folder / BUCKET).write_bytes(msgspec.json.encode(bucket))
    return bucket


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.tools)])
def site(request: Any, tmp_path: Path) -> Path:
    """A folder whose workers have their sink in a folder or in a bucket."""
    return _site(request, tmp_path)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=[pytest.mark.tools, pytest.mark.deep])])
def site_of_many(request: Any, tmp_path: Path) -> Path:
    """The same for a test with hundreds of cases, or with several processes."""
    return _site(request, tmp_path)


def _site(request: Any, folder: Path) -> Path:
    if request.param == "bucket":
        bucket_in(folder, request.getfixturevalue("s3"))
    return folder


@pytest.fixture(scope="module")
def start_child() -> Iterator[Callable[..., int]]:
    """Runs a worker in a process of its own that kills itself at a step; returns the exit status. All are
    copies of one process, since each start of Python takes longer than its worker."""
    command = [sys.executable, "-m", "tests.loghub_worker.sink.commit_log_child"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def start(folder: Path, step: str, nth: int) -> int:
            print(folder, step, nth, sep="\t", file=process.stdin, flush=True)
            return int(process.stdout.readline())  # type: ignore[union-attr]

        yield start
        process.stdin.close()
