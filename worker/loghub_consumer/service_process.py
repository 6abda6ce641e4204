"""An embedded service in a process of its own, with a data folder that a test throws away."""

import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from loghub.client.port import Credentials
from loghub.extras import require
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import Code, LogHubError
from loghub.wire.loggroup import split
from loghub_consumer.given_logs import GivenLogs, contents_of, log_groups

if TYPE_CHECKING:  # a program that only starts a service needs no client
    from loghub.client.http import HttpLogHub

PROJECT = "tests"
HOST = "127.0.0.1"
GUARD_S = 120.0  # against a hang: a start takes half a second, and minutes on a machine with too much to do
POLL_S = 0.02  # a start takes twenty times as long
PULL_LOG_GROUPS = 1_000  # the maximum of one request (docs/sls-protocol.md 5)
LOG_TAIL_CHARS = 4_000  # of the log in a message: the last thirty lines


class ServiceEndedError(RuntimeError):
    """The service has ended at its start; the message has the end of its log."""


class ServiceRun(Protocol):
    """The part of `subprocess.Popen` that is needed of a running service."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


class ServiceProcess:
    """One embedded LogHub service with its data and its log under `folder`; `start` and `stop` it any number
    of times. `port` 0 takes a free port at the first start, and keeps it. `extra` are further arguments of
    ``python -m loghub_service``."""

    def __init__(self, folder: Path, *, port: int = 0, extra: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "service.log"
        self.credentials_dir = folder / "credentials"
        self.credentials = Credentials(access_key_id="testKeyId", access_key_secret="testKeySecret")  # noqa: S106 - of a service on loopback
        self._port = port
        self._extra = extra
        self._process: ServiceRun | None = None
        self._output: IO[bytes] | None = None

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the first start."""
        return self._port

    @property
    def endpoint(self) -> str:
        """Such as ``http://127.0.0.1:8080``, for `ConsumerSettings.endpoint` and the option of Spark."""
        return f"http://{self.host}:{self._port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it serves requests. Raises `MissingPackageError` unless loghub-service is
        installed, and `ServiceEndedError`."""
        assert not self.running, "it runs already"
        self.credentials_dir.mkdir(parents=True, exist_ok=True)
        (self.credentials_dir / "accessKeyId").write_text(self.credentials.access_key_id)
        (self.credentials_dir / "accessKeySecret").write_text(self.credentials.access_key_secret)
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        arguments = [
            *("--data", str(self.data)),
            *("--listen", f"{self.host}:{self._port}"),
            *("--port-file", str(port_file)),
            *("--credentials-dir", str(self.credentials_dir)),
            *self._extra,
        ]
        self._output = self._open_output()
        self._process = self._launch(arguments, self._output)
        try:
            self._wait_until(lambda: port_file.exists() or not self.running, "the service's port file")
            if port_file.exists():
                self._port = int(port_file.read_text().strip().rpartition(":")[2])
                self._wait_until(lambda: self.is_ready() or not self.running, "the recovery")
            if not self.running:
                raise ServiceEndedError(f"the service ended at its start:\n{self.log_tail()}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> int:
        """Kill it and give its exit status: its data is not needed any more, or is what a crash leaves."""
        return self._end(signal.SIGKILL)

    def is_ready(self) -> bool:
        """Whether it serves requests."""
        connection = http.client.HTTPConnection(self.host, self._port, timeout=GUARD_S)
        with closing(connection):
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == HTTPStatus.OK
            except OSError:
                return False

    def log_tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self.log.exists() else ""

    # -- logs

    def client(self, project: str = PROJECT) -> "HttpLogHub":
        """A client of a project, which need not exist. The caller closes it."""
        from loghub.client.http import HttpLogHub

        return HttpLogHub(self.endpoint, project, credentials=self.credentials)

    def create_logstore(self, logstore: str, *, project: str = PROJECT, shards: int = 1) -> None:
        """Create a logstore, and its project if it does not exist. Raises `LogHubError`."""
        with closing(self.client(project)) as client:
            try:
                client.create_project("for tests")
            except LogHubError as error:
                if error.code != Code.PROJECT_ALREADY_EXIST:
                    raise
            client.create_logstore(logstore, shards=shards)

    def put(self, logstore: str, logs: GivenLogs, *, project: str = PROJECT, shard: int = 0) -> None:
        """Write logs, in order, into a shard. They are given as to `run_processor`. Raises `LogHubError`."""
        with closing(self.client(project)) as client:
            keys = {one.shard: one.begin_key for one in client.list_shards(logstore)}
            if shard not in keys:
                raise ValueError(f"{project}/{logstore} has no shard {shard}; it has {sorted(keys)}")
            for raw in log_groups(logs):
                client.put_logs(logstore, raw, hash_key=keys[shard])

    def read(self, logstore: str, *, project: str = PROJECT) -> list[dict[str, str]]:
        """The fields of all logs, shard by shard, in order. Raises `LogHubError`."""
        logs = []
        with closing(self.client(project)) as client:
            for shard in client.list_shards(logstore):
                cursor = client.get_cursor(logstore, shard.shard, "begin")
                end = decode_cursor(client.get_cursor(logstore, shard.shard, "end"))
                while decode_cursor(cursor) < end:
                    pulled = client.pull_logs(logstore, shard.shard, cursor=cursor, count=PULL_LOG_GROUPS)
                    logs += [log for raw in split(pulled.body) for log in contents_of(bytes(raw))]
                    cursor = pulled.next_cursor
        return logs

    # -- the process

    def _open_output(self) -> IO[bytes]:
        """Where its log and all else that it prints goes."""
        return self.log.open("ab")

    def _launch(self, arguments: list[str], output: IO[bytes]) -> ServiceRun:
        require("loghub-service", "an embedded service for tests")
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "loghub_service", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + GUARD_S
        while not condition():
            if time.monotonic() > give_up_s:
                raise ServiceEndedError(f"waited {GUARD_S:.0f} s for {what}:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None, "it was never started"
        self._process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end after a signal, and give its exit status."""
        process = self._process
        assert process is not None, "it was never started"
        try:
            return process.wait(GUARD_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(GUARD_S)
            raise AssertionError(f"the service did not end; its output:\n{self.log_tail()}") from None
        finally:
            if self._output is not None:
                self._output.close()
