"""Fixtures that hand out a real apiserver or a real cluster.

What for: tests elsewhere import these by name in their `conftest.py`
(``from tests.cluster.fixtures import apiserver``). What it must not know: what the
tests do with it. Read next: `apiserver`, `provider`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import apiserver as api
from tests.cluster import build, packages, require


@pytest.fixture(scope="session")
def apiserver() -> Iterator[Path]:
    """Path of an administrator's kubeconfig for an empty kube-apiserver with etcd.

    Real schema validation, CEL, server-side apply, watches and subresources; no
    controllers, no nodes: a StatefulSet stays an object. One a test session, so use
    a namespace of your own.
    """
    with api.running(_programs_for_apiserver()) as kubeconfig:
        yield kubeconfig


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


def _have(wanted: dict[str, str]) -> None:
    """Install what is missing where everything is required and we may, else skip."""
    if not (names := packages.missing(wanted)):
        return
    if require.everything() and packages.can_install():
        packages.install(names)
        return
    require.absent(f"not installed: {', '.join(names)}; {packages.way_to_get(names)}")
