"""What the chart's tests share."""

from pathlib import Path

import pytest

from tests.charts.chart import Chart
from tests.cluster.fixtures import (
    actionlint,  # noqa: F401 - fixtures
    apiserver,  # noqa: F401 - fixtures
    helm,  # noqa: F401 - fixtures
)
from tests.loghub_operator.support.apiserver import Apiserver


@pytest.fixture(scope="session")
def server(apiserver: Path) -> Apiserver:  # noqa: F811
    return Apiserver(apiserver)


@pytest.fixture(scope="session")
def chart(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:  # noqa: F811
    rendered = tmp_path_factory.getbasetemp() / "charts"  # of all processes of the run
    rendered.mkdir(exist_ok=True)
    return Chart(helm, rendered)
