"""A service for the SDK, with a logstore of four shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aliyun.log import LogClient

from tests.cluster import require
from tests.compat import consumers, sdk
from tests.compat.place import Place, a_place
from tests.compat.results import pytest_runtest_logreport  # noqa: F401 - a hook
from tests.compat.spark_worker import SparkWorker, a_spark_worker
from tests.support import ServiceProcess, running_service


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, extra=("--base-name", "sls.invalid")) as running:
        sdk.through_proxy(monkeypatch, running)
        yield running


@pytest.fixture
def client(service: ServiceProcess) -> LogClient:
    return sdk.client_of(service)


@pytest.fixture
def logstore(client: LogClient) -> LogClient:
    """The client, with project and logstore made."""
    client.create_project(sdk.PROJECT, "for a test")
    client.create_logstore(sdk.PROJECT, sdk.LOGSTORE, ttl=1, shard_count=4)
    return client


MUCH = pytest.param(1_000_000, marks=pytest.mark.deep(minutes=5))


@pytest.fixture(params=[5000, MUCH], ids=["5k", "1M"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A service for the consumers of `tests.compat.consumers`. Each test gets 5,000 logs, and a million in
    `make check-deep`."""
    if reason := consumers.missing():
        require.absent(reason)
    with a_place(tmp_path, volume=request.param) as found:
        yield found


@pytest.fixture
def small_place(tmp_path: Path) -> Iterator[Place]:
    """A service for programs that write, with no volume of its own."""
    if reason := consumers.missing():
        require.absent(reason)
    with a_place(tmp_path, volume=0) as found:
        yield found


@pytest.fixture
def spark_worker(place: Place, tmp_path: Path) -> Iterator[SparkWorker]:
    """Our worker, not yet started; what it delivers counts as consumed."""
    with a_spark_worker(place.service, tmp_path) as worker:
        place.consumers.others.append(worker.delivered)
        yield worker
