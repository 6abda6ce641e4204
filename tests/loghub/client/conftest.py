"""Fixtures of the contract suite: the same tests once for every adapter."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest

from loghub.client.port import LogHub
from tests.loghub.client.adapters import (
    ADAPTERS,
    OVER_HTTP,
    OpenClient,
    Opener,
    fresh_project,
    opener,
    opener_of,
)
from tests.loghub.client.contract import GROUP, STORE


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Opener]]:
    """What each adapter needs, a service perhaps, is started once for all modules."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def start(adapter: str) -> Opener:
            return running.enter_context(opener(adapter, tmp_path_factory.mktemp(adapter)))

        yield start


@pytest.fixture(scope="module", params=ADAPTERS)
def open_project(request: pytest.FixtureRequest, opened: Callable[[str], Opener]) -> Opener:
    return opened(request.param)


@pytest.fixture
def empty(open_project: Opener) -> LogHub:
    """A project that has not been created."""
    return open_project(fresh_project())


@pytest.fixture
def client(empty: LogHub) -> LogHub:
    """A project with a logstore of two shards."""
    empty.create_project("for a test")
    empty.create_logstore(STORE, shards=2)
    return empty


@pytest.fixture
def grouped(client: LogHub) -> LogHub:
    """The same, with a consumer group."""
    client.create_group(STORE, GROUP)
    return client


@pytest.fixture(params=OVER_HTTP)
def open_client(request: pytest.FixtureRequest) -> OpenClient:
    """One test for every adapter that goes over HTTP."""
    return opener_of(request.param)
