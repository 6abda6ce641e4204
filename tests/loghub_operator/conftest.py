"""What the operator's tests share."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import apiserver  # noqa: F401 - a fixture
from tests.loghub_operator.api_server import Apiserver


@pytest.fixture(scope="session")
def server(apiserver: Path) -> Apiserver:  # noqa: F811
    return Apiserver(apiserver)
