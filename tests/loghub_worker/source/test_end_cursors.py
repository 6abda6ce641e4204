"""How often the end cursors of shards are requested."""

from typing import Any

from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.source.end_cursors import EndWatch
from tests.fakes.fake_log_service import MemoryServer

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))


class CountingClient:
    """A client that records the shards of its requests."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.requested: list[int] = []

    def get_cursor(self, logstore: str, shard: int, position: Any) -> str:
        self.requested.append(shard)
        return str(self.client.get_cursor(logstore, shard, position))


def watch(server: MemoryServer, *, shards: int) -> tuple[EndWatch, CountingClient, dict[int, int]]:
    client = server.client("proj")
    client.create_project()
    client.create_logstore("ls", shards=shards)
    counting = CountingClient(client)
    begins = {shard: decode(client.get_cursor("ls", shard, "begin")) for shard in range(shards)}
    return EndWatch(counting, logstore="ls", interval_s=10), counting, begins  # type: ignore[arg-type]


def test_an_end_is_requested_at_most_once_an_interval() -> None:
    ends, client, begins = watch(MemoryServer(), shards=2)
    for now in (0, 1, 5, 9.9):
        assert ends.ends(begins, now=now) == begins
    assert client.requested == [0, 1]
    ends.ends(begins, now=10)
    assert client.requested == [0, 1, 0, 1]


def test_an_end_is_not_requested_while_log_groups_before_it_are_unread() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    for _ in range(3):
        client.client.put_logs("ls", GROUP)
    assert ends.ends(begins, now=0) == {0: begins[0] + 3}
    assert ends.ends({0: begins[0] + 1}, now=100) == {0: begins[0] + 3}
    assert client.requested == [0]
    ends.ends({0: begins[0] + 3}, now=101)
    assert client.requested == [0, 0]


def test_a_shard_that_is_held_again_is_requested_immediately() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    ends.ends(begins, now=0)
    assert ends.ends({}, now=1) == {}
    assert ends.ends(begins, now=2) == begins
    assert client.requested == [0, 0]


def test_an_outage_keeps_the_known_ends_and_is_reported_after_one_request() -> None:
    server = MemoryServer()
    ends, client, begins = watch(server, shards=3)
    ends.ends(begins, now=0)
    server.unreachable = True
    assert ends.ends(begins, now=10) == begins
    assert ends.error.reason == "EndpointUnreachable"
    assert client.requested == [0, 1, 2, 0]
    server.unreachable = False
    ends.ends(begins, now=20)
    assert ends.error.reason == ""


def test_an_error_is_cleared_with_its_shard() -> None:
    server = MemoryServer()
    ends, _, begins = watch(server, shards=2)
    server.unreachable = True
    ends.ends(begins, now=0)
    assert ends.error.reason == "EndpointUnreachable"
    ends.ends({}, now=1)
    assert ends.error.reason == ""
