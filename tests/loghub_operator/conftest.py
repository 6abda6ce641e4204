"""What the operator's tests share."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import apiserver, apiserver_of_its_own  # noqa: F401 - fixtures
from tests.loghub_operator.api_server import Apiserver


@pytest.fixture(scope="session")
def server(apiserver: Path) -> Apiserver:  # noqa: F811
    return Apiserver(apiserver)
