"""The fake's own conveniences: a clock of the test's choice, and an outage."""

import pytest

from loghub.client.port import GroupInfo
from loghub.wire import loggroup
from loghub.wire.errors import EndpointUnreachable
from loghub.wire.loggroup import Log, LogGroup
from tests.fakes.fake_log_service import MemoryServer


class FakeClock:
    """Both readings move together when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return 1_700_000_000 + self.now


GROUP = GroupInfo(name="g", timeout_s=30, order=False)
ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


def test_a_silent_consumer_is_removed_exactly_at_its_timeout() -> None:
    clock = FakeClock()
    client = MemoryServer(clock).client("demo")
    client.create_project()
    client.create_logstore("access", shards=1)
    client.create_group("access", GROUP)
    client.heartbeat("access", "g", consumer="a", held=())
    clock.now += 29.9
    assert [c.name for c in client.group_status("access", "g").consumers] == ["a"]
    clock.now += 0.1
    assert client.group_status("access", "g").consumers == ()


def test_lag_ages_by_the_clock() -> None:
    clock = FakeClock()
    client = MemoryServer(clock).client("demo")
    client.create_project()
    client.create_logstore("access", shards=1)
    client.create_group("access", GROUP)
    begin = client.get_cursor("access", 0, "begin")
    client.put_logs("access", ONE)
    client.update_checkpoint("access", "g", shard=0, cursor=begin, consumer="", force=True)
    clock.now += 12
    (shard,) = client.group_status("access", "g").shards
    assert (shard.lag_groups, shard.lag_logs, shard.lag_s) == (1, 1, 12.0)


def test_clients_of_one_server_share_its_data() -> None:
    server = MemoryServer(FakeClock())
    server.client("demo").create_project()
    assert server.client("demo").project_exists()
    assert not server.client("other").project_exists()


def test_an_outage_affects_every_call() -> None:
    server = MemoryServer(FakeClock())
    client = server.client("demo")
    client.create_project()
    server.unreachable = True
    for call in (client.project_exists, client.has_extensions, client.list_logstores):
        with pytest.raises(EndpointUnreachable):
            call()
    server.unreachable = False
    assert client.project_exists()
