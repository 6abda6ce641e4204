"""Fixtures of the tests that run on a real cluster."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import apiserver, cluster, helm  # noqa: F401 - fixtures
from tests.cluster.provider import Cluster
from tests.cluster.release import Release
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


@pytest.fixture(scope="module")
def release(cluster: Cluster, helm: Path) -> Release:  # noqa: F811
    """Service and two operators running on the cluster by the chart, in the place of `stack`."""
    installed = Release(Stack(cluster), helm)
    try:
        installed.stack.remove_earlier()
        installed.install(resyncSeconds=5, externalMetrics={"enabled": True})
    except BaseException:
        print(installed.stack.explain())
        raise
    return installed
