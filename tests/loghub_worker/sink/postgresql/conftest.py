"""One PostgreSQL for the tests of its sink, and an empty database for each test."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.loghub_worker.sink.postgresql.line_worker import CREATE, LineWorker
from tests.postgresql_server import DATABASE, USER, PostgresqlServer, running_postgresql, write_credentials


@pytest.fixture(scope="package")
def shared_server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture
def server(shared_server: PostgresqlServer) -> PostgresqlServer:
    shared_server.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)", database="postgres")
    shared_server.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}", database="postgres")
    return shared_server


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    return write_credentials(tmp_path / "sink-credentials")


@pytest.fixture
def worker(server: PostgresqlServer, credentials: Path, tmp_path: Path) -> Callable[..., LineWorker]:
    """Makes workers that deliver lines to a table, each with a name of its own."""
    server.execute(CREATE, user=USER)
    names = count()

    def make(port: int = server.port, **options: Any) -> LineWorker:
        return LineWorker(tmp_path, port, credentials, f"w-{next(names)}", **options)

    return make
