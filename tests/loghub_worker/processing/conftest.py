"""The service of the tests of consumers, and processes for several tests."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.loghub_consumer.conftest import service, site
from tests.loghub_worker.processing.support import KeptProcesses

__all__ = ["service", "site"]


@pytest.fixture(scope="package")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptProcesses]:
    with ExitStack() as ends:
        yield KeptProcesses(tmp_path_factory.mktemp("processes"), ends)
