"""One cluster of Spark for all tests whose workers have a master."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # so that tests without Spark do not wait for its import
    from tests.spark_cluster import Cluster


@pytest.fixture(scope="package")
def driver_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that executors do not see, for those of the workers."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="package")
def cluster(driver_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """A master of Spark and a worker of two cores, each of which is an executor's."""
    from tests import spark_cluster

    if missing := spark_cluster.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("spark-cluster") / "cluster"
    with spark_cluster.running_cluster(folder, hidden=[driver_disk]) as running:
        yield running
