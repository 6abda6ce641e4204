"""Fixtures of the contract suite: the same tests once for every adapter."""

from collections.abc import Iterator

import pytest

from loghub.client.port import LogHub
from tests.loghub.client.adapters import ADAPTERS, OVER_HTTP, Client, Opener, client_of, fresh_project, opener
from tests.loghub.client.contract import GROUP, STORE


@pytest.fixture(scope="module", params=ADAPTERS)
def open_hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    with opener(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def empty(open_hub: Opener) -> LogHub:
    """A project that has not been created."""
    return open_hub(fresh_project())


@pytest.fixture
def hub(empty: LogHub) -> LogHub:
    """A project with a logstore of two shards."""
    empty.create_project("for a test")
    empty.create_logstore(STORE, shards=2)
    return empty


@pytest.fixture
def grouped(hub: LogHub) -> LogHub:
    """The same, with a consumer group."""
    hub.create_group(STORE, GROUP)
    return hub


@pytest.fixture(params=OVER_HTTP)
def client(request: pytest.FixtureRequest) -> Client:
    """One test for every adapter that goes over HTTP."""
    return client_of(request.param)
