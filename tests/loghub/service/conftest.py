"""One service for a test module; each test has a project of its own."""

import itertools
from collections.abc import Iterator

import pytest

from tests.loghub.service.rawclient import RawClient
from tests.support import ServiceProcess, running_service

_numbers = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[RawClient]:
    """For a project that is not there yet."""
    with RawClient(service, f"project{next(_numbers)}") as raw:
        yield raw
