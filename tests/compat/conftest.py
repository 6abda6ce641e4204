"""A service for the SDK, with a logstore of four shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aliyun.log import LogClient

from tests.cluster import require
from tests.compat import consumers, sdk
from tests.compat.place import Place, a_place
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


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A service for the consumers of `tests.compat.consumers`."""
    if reason := consumers.missing():
        require.absent(reason)
    with a_place(tmp_path) as found:
        yield found
