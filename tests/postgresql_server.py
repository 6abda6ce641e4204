"""A real PostgreSQL for tests, from Debian's package.

`running_postgresql` makes a cluster of databases, runs its server on a free loopback port, and in any case
ends it and removes its folder. The server refuses to run as root, so that as root it runs as the user
``nobody``, who cannot reach pytest's folders; hence a folder of its own.
"""

import os
import pwd
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from tests.cluster import packages
from tests.ports import free_port
from tests.support import START_GUARD_S, STOP_GUARD_S, wait_until

PROGRAMS = Path("/usr/lib/postgresql")  # has a folder for each major version
SUPERUSER, USER, DATABASE = "admin", "loghub", "logs"
PASSWORDS = {SUPERUSER: "admin's own", USER: "first pass-word"}
Connection = psycopg.Connection[tuple[object, ...]]


def require_postgresql() -> Path:
    """The folder of the server's programs. Skips the test where they are missing and cannot be installed."""
    try:
        packages.install(packages.FOR_SINKS)
    except packages.PackagesMissingError as error:
        pytest.skip(str(error))
    return max(PROGRAMS.glob("*/bin"), key=lambda folder: int(folder.parent.name))


class PostgresqlServer:
    """One server; `start` and `stop` it, any number of times on one port. ``settings`` are lines of
    ``postgresql.conf``."""

    def __init__(self, folder: Path, programs: Path, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.data = folder / "data"
        self.settings = {
            "port": str(self.port),
            "listen_addresses": "'127.0.0.1'",
            "unix_socket_directories": "''",
            "max_connections": "40",
            "shared_buffers": "16MB",
            "fsync": "off",  # no test takes power from the machine
            **(settings or {}),
        }

    def create(self) -> None:
        """Make the cluster, with the user and the database of the tests."""
        if os.getuid() == 0:
            shutil.chown(self._folder, "nobody")
        password = self.put("password", PASSWORDS[SUPERUSER].encode())
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", SUPERUSER, "--pwfile", str(password),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip

    def start(self, *, max_file: int = resource.RLIM_INFINITY) -> None:
        """`largest_file` limits the size of files, in bytes."""
        lines = [f"{name} = {value}\n" for name, value in self.settings.items()]
        (self.data / "postgresql.auto.conf").write_text("".join(lines))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (max_file,) * 2),
                **_as_server(),  # type: ignore[call-overload]
            )
        wait_until(self._answers, "PostgreSQL to answer", guard_s=START_GUARD_S)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log_tail()
        with suppress(psycopg.OperationalError):
            self.connect(database="postgres").close()
            return True
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends sessions, as a restart of the server does; SIGQUIT ends it as a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_GUARD_S)
        finally:
            if process.poll() is None:
                process.kill()  # its children end by themselves
                process.wait()

    def connect(self, *, user: str = SUPERUSER, database: str = DATABASE) -> Connection:
        """A connection that commits each statement."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname=database,
            user=user,
            password=PASSWORDS[user],
            autocommit=True,
            connect_timeout=10,
        )

    def execute(self, statement: str, *, user: str = SUPERUSER, database: str = DATABASE) -> None:
        with closing(self.connect(user=user, database=database)) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]

    def put(self, name: str, content: bytes) -> Path:
        """A file that only the server's user can read."""
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        if os.getuid() == 0:
            shutil.chown(path, "nobody")
        return path

    def log_tail(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-4000:]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            **_as_server(),  # type: ignore[call-overload]
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _as_server() -> dict[str, object]:
    """How to start a process as the user of the server."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def running_postgresql(settings: Mapping[str, str] | None = None) -> Iterator[PostgresqlServer]:
    """A server with the database of the tests, whose owner is their user."""
    programs = require_postgresql()
    with TemporaryDirectory(prefix="loghub-postgresql-") as folder:
        server = PostgresqlServer(Path(folder), programs, settings)
        try:
            server.create()
            server.start()
            server.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORDS[USER]}'", database="postgres")
            server.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}", database="postgres")
            yield server
        finally:
            server.stop()


def write_credentials(folder: Path, **values: str) -> Path:
    """A folder like the mounted Secret of a sink."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in ({"username": USER, "password": PASSWORDS[USER]} | values).items():
        (folder / name).write_text(value)
    return folder
