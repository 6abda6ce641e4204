"""How often the ends of shards are asked for."""

from typing import Any

from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.source.end_cursors import EndWatch
from tests.fakes.fake_log_service import MemoryServer

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))


class CountingHub:
    """Counts the requests on their way to a hub."""

    def __init__(self, hub: Any) -> None:
        self.hub = hub
        self.asked: list[int] = []

    def get_cursor(self, logstore: str, shard: int, position: Any) -> str:
        self.asked.append(shard)
        return str(self.hub.get_cursor(logstore, shard, position))


def watch(server: MemoryServer, *, shards: int) -> tuple[EndWatch, CountingHub, dict[int, int]]:
    hub = server.client("proj")
    hub.create_project()
    hub.create_logstore("ls", shards=shards)
    counting = CountingHub(hub)
    begins = {shard: decode(hub.get_cursor("ls", shard, "begin")) for shard in range(shards)}
    return EndWatch(counting, logstore="ls", interval_s=10), counting, begins  # type: ignore[arg-type]


def test_an_end_is_asked_once_an_interval_however_often_it_is_wanted() -> None:
    ends, hub, begins = watch(MemoryServer(), shards=2)
    for now in (0, 1, 5, 9.9):
        assert ends.ends(begins, now=now) == begins
    assert hub.asked == [0, 1]
    ends.ends(begins, now=10)
    assert hub.asked == [0, 1, 0, 1]


def test_an_end_is_not_asked_while_there_is_something_known_to_read() -> None:
    ends, hub, begins = watch(MemoryServer(), shards=1)
    for _ in range(3):
        hub.hub.put_logs("ls", GROUP)
    assert ends.ends(begins, now=0) == {0: begins[0] + 3}
    assert ends.ends({0: begins[0] + 1}, now=100) == {0: begins[0] + 3}
    assert hub.asked == [0]
    ends.ends({0: begins[0] + 3}, now=101)
    assert hub.asked == [0, 0]


def test_a_shard_that_went_is_forgotten_and_asked_at_once_when_back() -> None:
    ends, hub, begins = watch(MemoryServer(), shards=1)
    ends.ends(begins, now=0)
    assert ends.ends({}, now=1) == {}
    assert ends.ends(begins, now=2) == begins
    assert hub.asked == [0, 0]


def test_an_outage_leaves_the_old_ends_and_says_why_and_asks_one_shard_only() -> None:
    server = MemoryServer()
    ends, hub, begins = watch(server, shards=3)
    ends.ends(begins, now=0)
    server.unreachable = True
    assert ends.ends(begins, now=10) == begins
    assert ends.trouble.reason == "EndpointUnreachable"
    assert hub.asked == [0, 1, 2, 0]
    server.unreachable = False
    ends.ends(begins, now=20)
    assert ends.trouble.reason == ""


def test_a_trouble_goes_with_its_shard() -> None:
    server = MemoryServer()
    ends, _, begins = watch(server, shards=2)
    server.unreachable = True
    ends.ends(begins, now=0)
    assert ends.trouble.reason == "EndpointUnreachable"
    ends.ends({}, now=1)
    assert ends.trouble.reason == ""
