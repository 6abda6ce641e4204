"""versitygw, a real S3 server over a folder, compiled from its pinned module in `tools/versitygw`.

Sinks on ``s3://`` are tested with it, since a fake would prove nothing about create-only writes that race. A
bucket is a folder in `S3Server.buckets`, and an object a file in it, so that tests can read and damage them.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import compiling, paths
from tests.cluster.compiling import Recipe
from tests.ports import free_ports
from tests.support import wait_until

VERSITYGW = Recipe(
    what="versitygw, an S3 server",
    prefix="versitygw-",
    source=paths.TOOLS / "versitygw",
    inputs=("go.mod", "go.sum"),
    flags="",
    arguments=("github.com/versity/versitygw/cmd/versitygw",),
    programs=("versitygw",),
)
STOP_GUARD_S = 30.0


def program() -> Path:
    """The compiled server. Raises `BuildError`."""
    return compiling.ensure(VERSITYGW) / "versitygw"


class S3Server:
    """One server on a free loopback port, which it keeps over restarts."""

    access_key_id, secret_access_key = "testKeyId", "testSecretAccessKey"

    def __init__(self, program: Path, folder: Path) -> None:
        self.buckets = folder / "buckets"
        self.buckets.mkdir(parents=True)
        self._program = program
        self._folder = folder
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bucket(self, name: str) -> Path:
        """The folder of a bucket, which it makes."""
        path = self.buckets / name
        path.mkdir(exist_ok=True)
        return path

    def credentials(self, folder: Path, *, secret_access_key: str | None = None) -> Path:
        """The files that a worker reads its keys from, in this folder."""
        folder.mkdir(exist_ok=True)
        (folder / "accessKeyId").write_text(self.access_key_id)
        (folder / "secretAccessKey").write_text(secret_access_key or self.secret_access_key)
        return folder

    def start(self) -> None:
        sidecar = self._folder / "metadata"
        sidecar.mkdir(exist_ok=True)
        keys = {"ROOT_ACCESS_KEY_ID": self.access_key_id, "ROOT_SECRET_ACCESS_KEY": self.secret_access_key}
        address = f"127.0.0.1:{self.port}"
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--port", address, "--quiet", "posix", "--sidecar", sidecar, self.buckets],
                env={**os.environ, **keys},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(lambda: self._answers() or not self.running, "the S3 server")
            assert self.running, f"it ended at its start:\n{(self._folder / 'server.log').read_text()}"
        except BaseException:
            self.stop()
            raise

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP makes it a server that accepts requests and answers none."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_GUARD_S)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def running_s3_server(program: Path, folder: Path) -> Iterator[S3Server]:
    """A server with its data in `folder` while the body runs."""
    server = S3Server(program, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
