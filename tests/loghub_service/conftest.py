"""Fixtures: one service per test process, and one project per test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from loghub.wire import native
from tests.loghub_service import stable_storage
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.fsck_runs import Fsck, Reported, filled
from tests.loghub_service.rawclient import RawClient
from tests.loghub_service.tiers import without_native_part
from tests.support import ServiceProcess, running_service

_numbers = itertools.count()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`stable_storage`, once for all tests of a process: `tests.warm_start` has a helper for each library."""
    return stable_storage.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[RawClient]:
    """For a project that is not there yet."""
    with RawClient(service, f"project{next(_numbers)}") as raw:
        yield raw


@pytest.fixture(scope="module", params=["python", *(["native"] if native.is_installed else [])])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the native part where that is built, and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            without_native_part(patch)
        yield request.param


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a service that was stopped cleanly, with some log groups in one shard."""
    return filled(tmp_path / "d")


@pytest.fixture
def fsck(data: Path, capsys: pytest.CaptureFixture[str]) -> Fsck:
    """Runs `loghub fsck` on the folder of the test's own fixture ``data``."""
    return lambda *arguments: Reported(data, capsys, *arguments)
