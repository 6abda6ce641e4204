"""Fixtures of the tests that run on a real cluster."""

import pytest

from tests.cluster.fixtures import apiserver, cluster  # noqa: F401 - fixtures
from tests.cluster.provider import Cluster
from tests.cluster.stack import Stack


@pytest.fixture(scope="session")
def stack(cluster: Cluster) -> Stack:  # noqa: F811
    """Service and operator running on the cluster."""
    deployed = Stack(cluster)
    try:
        deployed.remove_earlier()
        deployed.deploy()
    except BaseException:
        print(deployed.explain())
        raise
    return deployed
