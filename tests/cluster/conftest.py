"""Fixtures of the tests that run on a real cluster."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import (
    apiserver,  # noqa: F401 - fixtures
    cluster,  # noqa: F401 - fixtures
    helm,  # noqa: F401 - fixtures
    image_builder,  # noqa: F401 - fixtures
)
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


@pytest.fixture(scope="session")
def release(cluster: Cluster, helm: Path) -> Release:  # noqa: F811
    """Service and two operators running on the cluster by the chart, in the place of `stack`."""
    installed = Release(Stack(cluster), helm)
    try:
        installed.stack.remove_earlier()
        installed.install(
            resyncSeconds=2, externalMetrics={"enabled": True}, sparkOnKubernetes={"enabled": True}
        )
    except BaseException:
        print(installed.stack.explain())
        raise
    return installed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The chart takes the place of the manifests, so the tests of the manifests come first."""
    items.sort(key=lambda item: "release" in getattr(item, "fixturenames", ()))
