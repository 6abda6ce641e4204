"""A service with empty logstores, and a Spark session with the data source."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from loghub.client.http import HttpLogHub
from tests.loghub_spark.support import COPY, LOGSTORE, client_of
from tests.support import ServiceProcess, running_service

if TYPE_CHECKING:  # so that tests without Spark do not wait for its import
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def session(spark: "SparkSession") -> "SparkSession":
    from loghub_spark import LogHubDataSource

    spark.dataSource.register(LogHubDataSource)
    return spark


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as process:
        client = client_of(process)
        client.create_project()
        client.close()
        yield process


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[HttpLogHub]:
    client = client_of(service)
    for logstore in (LOGSTORE, COPY):
        client.create_logstore(logstore, shards=2)
    yield client
    for logstore in (LOGSTORE, COPY):
        client.delete_logstore(logstore)
    client.close()
