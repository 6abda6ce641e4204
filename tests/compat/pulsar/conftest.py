"""The two places of the scenarios; all tests of a process share them, with their clients' programs."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster import require
from tests.compat.pulsar.places import OPENED, Place

PLACES = ("service", pytest.param("oracle", marks=pytest.mark.deep))


@pytest.fixture(scope="session", params=PLACES)
def shared_place(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("place")
    with ExitStack() as stack:
        try:
            place: Place = stack.enter_context(OPENED[request.param](folder))
        except RuntimeError as error:
            require.absent(str(error))
        yield place


@pytest.fixture
def place(shared_place: Place) -> Iterator[Place]:
    """Where the clients of a test are served; it closes them afterwards."""
    try:
        yield shared_place
    except BaseException:
        print(shared_place.explain())
        raise
    finally:
        shared_place.end_test()
