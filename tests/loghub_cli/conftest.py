"""One service for the tests of a process, and the command line at it in a project of each test's own."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loghub_cli.command import STORE, Cli
from tests.support import ServiceProcess, running_service

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as process:
        yield process


@pytest.fixture
def bare(
    service: ServiceProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], Cli]]:
    """Makes a command line of an adapter, at a project that does not exist."""
    made: list[Cli] = []

    def make(adapter: str) -> Cli:
        made.append(Cli(service, f"project-{next(_numbers)}", adapter, tmp_path, capsys))
        return made[-1]

    yield make
    for cli in made:
        cli.client.close()


@pytest.fixture
def cli(bare: Callable[[str], Cli]) -> Cli:
    """At a project with a logstore of two shards, by this project's own client."""
    made = bare("http")
    made.client.create_project()
    made.client.create_logstore(STORE, shards=2)
    return made


@pytest.fixture(params=["http", "sdk"])
def either(request: pytest.FixtureRequest, bare: Callable[[str], Cli]) -> Cli:
    """The same, once for each client."""
    made = bare(request.param)
    made.client.create_project()
    made.client.create_logstore(STORE, shards=2)
    return made
