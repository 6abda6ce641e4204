"""Limits that were chosen on the command line hold for a client, and the refusal names them."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.wire.errors import LogHubError
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.support import running_service

pytestmark = pytest.mark.long

FLAGS = (
    *("--max-log-group-mib=1", "--max-projects=1", "--max-logstores=2", "--max-shards=5"),
    *("--max-shards-at-creation=3", "--max-consumer-groups=1", "--max-consumers=1"),
    "--max-group-timeout-s=60",
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[HttpLogHub]:
    with (
        running_service(tmp_path, extra=FLAGS) as service,
        contextlib.closing(
            HttpLogHub(service.endpoint, "demo", credentials=service.credentials)
        ) as of_project,
    ):
        of_project.create_project()
        of_project.create_logstore("access", shards=3)
        with (
            contextlib.closing(
                HttpLogHub(service.endpoint, "other", credentials=service.credentials)
            ) as other,
            pytest.raises(LogHubError, match="at most 1 projects"),
        ):
            other.create_project()
        yield of_project


def group_of(size: int) -> bytes:
    return encode(LogGroup(logs=(Log(time=1, contents=(("k", secrets.token_hex(size // 2)),)),)))


def test_the_chosen_limits_hold(client: HttpLogHub) -> None:
    client.put_logs("access", group_of(1_000_000))
    with pytest.raises(LogHubError, match="may have 1048576 bytes"):
        client.put_logs("access", group_of(1_100_000))
    with pytest.raises(LogHubError, match="shardCount must be a number from 1 to 3"):
        client.create_logstore("other", shards=4)
    with pytest.raises(LogHubError, match="at most 5 shards"):
        client.create_logstore("other", shards=3)
    client.create_logstore("other", shards=2)
    with pytest.raises(LogHubError, match="at most 2 logstores"):
        client.create_logstore("third", shards=1)
    with pytest.raises(LogHubError, match="timeout must be a number from 1 to 60"):
        client.create_group("access", GroupInfo(name="g", timeout_s=61, order=False))
    client.create_group("access", GroupInfo(name="g", timeout_s=60, order=False))
    with pytest.raises(LogHubError, match="at most 1 consumer groups"):
        client.create_group("access", GroupInfo(name="h", timeout_s=60, order=False))
    assert client.heartbeat("access", "g", consumer="a", held=()) == (0, 1, 2)
    with pytest.raises(LogHubError, match="at most 1 consumers"):
        client.heartbeat("access", "g", consumer="b", held=())
