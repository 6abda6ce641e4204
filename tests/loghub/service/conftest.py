"""Fixtures: one service per test module, and one project per test."""

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
