"""Fixtures that provide a real apiserver, a real cluster or a real S3 server.

Tests elsewhere import these by name in their `conftest.py` (``from tests.cluster.fixtures import
apiserver``).
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cluster import apiserver as api
from tests.cluster import build, chart_tools, packages, paths, provider, require, runs, s3_server
from tests.cluster.compiling import Recipe
from tests.cluster.provider import Cluster
from tests.cluster.s3_server import S3Server, running_s3_server

CLUSTER_LOCK_GUARD_S = 3600.0


@pytest.fixture(scope="session")
def apiserver() -> Iterator[Path]:
    """Path of an administrator's kubeconfig for an empty kube-apiserver with etcd.

    Real schema validation, CEL, server-side apply, watches and subresources; no
    controllers, no nodes: a StatefulSet stays an object. All processes of a test run share
    it: use a namespace of your own, and `apiserver_of_its_own` for what concerns all of them.
    """
    with api.shared(_programs_for_apiserver()) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def apiserver_of_its_own() -> Iterator[api.Standing]:
    """One for this test alone, which may stop it, or change the CRD and other things that all share."""
    with api.standing(_programs_for_apiserver()) as running:
        yield running


def _programs_for_apiserver() -> Path:
    _have(packages.FOR_APISERVER)
    if build.built() is None and not require.everything() and not build.in_progress():
        # A fast test does not start a compilation of many minutes by itself.
        require.absent("kube-apiserver is not compiled yet; get it once by: python -m tests.cluster.build")
    return _programs()


def _programs() -> Path:
    try:
        return build.ensure()
    except build.BuildError as error:
        require.absent(str(error))


@pytest.fixture(scope="session")
def helm() -> Path:
    """The real helm, the user's own or ours."""
    return _tool(chart_tools.HELM, chart_tools.helm)


@pytest.fixture(scope="session")
def actionlint() -> Path:
    """The real actionlint, the user's own or ours."""
    return _tool(chart_tools.ACTIONLINT, chart_tools.actionlint)


@pytest.fixture(scope="session")
def keda_client() -> Path:
    """KEDA's own client of external scalers (`tools/keda`)."""
    return _tool(chart_tools.KEDA, chart_tools.keda)


@pytest.fixture(scope="session")
def health() -> Path:
    """kstatus and the Lua of Argo CD (`tools/health`)."""
    return _tool(chart_tools.HEALTH, chart_tools.health)


@pytest.fixture(scope="session")
def versitygw() -> Path:
    """The program of a real S3 server."""
    return _tool(s3_server.VERSITYGW, s3_server.program)


@pytest.fixture(scope="session")
def s3(versitygw: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server for all tests that do not stop it."""
    with running_s3_server(versitygw, tmp_path_factory.mktemp("s3")) as server:
        yield server


def _tool(recipe: Recipe, get: Callable[[], Path]) -> Path:
    if chart_tools.out_of_reach(recipe) and not require.everything():
        name, way = recipe.programs[0], "python -m tests.cluster.prepare"
        require.absent(f"{name} is neither on PATH nor compiled yet; get it once by: {way}")
    try:
        return get()
    except build.BuildError as error:
        require.absent(str(error))


def _have(wanted: dict[str, str]) -> None:
    try:
        packages.require(wanted)
    except packages.PackagesMissingError as error:
        require.absent(str(error))


@pytest.fixture(scope="session")
def image_builder() -> None:
    """What builds images where no Docker engine is needed."""
    _have(packages.FOR_IMAGES)


def cluster_lock() -> AbstractContextManager[None]:
    """One user of the machine's test cluster at a time."""
    path = paths.run_folder() / "cluster.lock"
    return runs.locked(path, guard_s=CLUSTER_LOCK_GUARD_S, what="the test cluster is in use")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real cluster with the project's images. One that is up already is used and left up."""
    try:
        chosen = provider.make(provider.choose())
        if chosen.name == "upstream":
            _have(packages.ALL)
            _programs()
        with cluster_lock():
            running = chosen.running()
            if running is not None:
                yield running if _keep_images() else dataclasses.replace(running, images=chosen.load_images())
                return
            try:
                yield chosen.up()
            finally:
                chosen.down()
    except provider.ClusterUnavailableError as error:
        require.absent(str(error))


def _keep_images() -> bool:
    """``LOGHUB_TEST_IMAGES=keep``: while writing tests, run on the images that the node has."""
    return os.environ.get("LOGHUB_TEST_IMAGES") == "keep" and not require.everything()
