"""One PostgreSQL for the tests of its sink, and an empty database for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgresql_server import (
    DATABASE,
    USER,
    PostgresqlServer,
    running_postgresql,
    write_credentials,
)


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
