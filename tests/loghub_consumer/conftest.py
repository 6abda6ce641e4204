"""One service for the tests of consumers, and a logstore for each."""

from collections.abc import Iterator

import pytest
import structlog

from loghub.client.http import HttpLogHub
from tests.loghub_consumer.support import PROJECT, Site
from tests.support import ServiceProcess, running_service


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as process:
        client = HttpLogHub(process.endpoint, PROJECT, credentials=process.credentials)
        client.create_project("tests")
        client.close()
        yield process


@pytest.fixture
def site(service: ServiceProcess) -> Iterator[Site]:
    client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
    yield Site(service, client)
    client.close()
    structlog.reset_defaults()  # a consumer configures it for the program, which other tests are not
