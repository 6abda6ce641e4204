"""The fixtures of pytest that come with the library, without a line in the user's ``conftest.py``.

pytest imports this module in every run where the distribution is installed, so it imports nothing else.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from loghub_consumer.service_process import ServiceProcess


@pytest.fixture(scope="session")
def loghub_service(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServiceProcess]":
    """An embedded LogHub service on a free port of loopback, one for all tests of a run, whose data is thrown
    away. It needs the distribution loghub-service; give each test a logstore of its own."""
    from loghub_consumer.service_process import ServiceProcess

    service = ServiceProcess(tmp_path_factory.mktemp("loghub-service"))
    service.start()
    yield service
    service.stop()
