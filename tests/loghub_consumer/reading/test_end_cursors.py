"""How often the end cursors of shards are requested."""

import threading
from typing import Any

from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.reading.end_cursors import PARALLEL, POSITION_BEYOND_END, STUCK_S, EndWatch
from tests.fakes.fake_log_service import MemoryServer

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))


class CountingClient:
    """A client that records the shards of its requests."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.requested: list[int] = []

    def has_polls(self) -> bool:
        return bool(self.client.has_polls())

    def get_cursor(self, logstore: str, shard: int, position: Any) -> str:
        self.requested.append(shard)
        return str(self.client.get_cursor(logstore, shard, position))


def watch(
    server: MemoryServer, *, shards: int, waits: bool = False
) -> tuple[EndWatch, CountingClient, dict[int, int]]:
    client = server.client("proj")
    client.create_project()
    client.create_logstore("ls", shards=shards)
    counting = CountingClient(client)
    begins = {shard: decode(client.get_cursor("ls", shard, "begin")) for shard in range(shards)}
    ends = EndWatch(counting, logstore="ls", interval_s=10, waits=waits)  # type: ignore[arg-type]
    return ends, counting, begins


def test_an_end_is_requested_at_most_once_an_interval() -> None:
    ends, client, begins = watch(MemoryServer(), shards=2)
    for now in (0, 1, 5, 9.9):
        assert ends.ends(begins, now=now) == begins
    assert sorted(client.requested) == [0, 1]
    ends.ends(begins, now=10)
    assert sorted(client.requested) == [0, 0, 1, 1]


def test_an_end_is_not_requested_while_log_groups_before_it_are_unread() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    for _ in range(3):
        client.client.put_logs("ls", GROUP)
    assert ends.ends(begins, now=0) == {0: begins[0] + 3}
    assert ends.ends({0: begins[0] + 1}, now=100) == {0: begins[0] + 3}
    assert client.requested == [0]
    ends.ends({0: begins[0] + 3}, now=101)
    assert client.requested == [0, 0]


def test_the_end_of_a_shard_that_does_not_advance_is_requested_again() -> None:
    """The log service may have been restored: then the known end is one that no longer exists."""
    ends, client, begins = watch(MemoryServer(), shards=1)
    for _ in range(3):
        client.client.put_logs("ls", GROUP)
    position = {0: begins[0] + 2}
    ends.ends(begins, now=0)
    ends.ends(position, now=100)
    client.client = watch(MemoryServer(), shards=1)[1].client
    client.client.get_cursor = lambda *_: encode_cursor(begins[0] + 1)
    assert ends.ends(position, now=100 + STUCK_S - 1) == {0: begins[0] + 3}
    assert ends.ends(position, now=100 + STUCK_S) == {0: begins[0] + 1}
    assert (ends.error.reason, ends.beyond_end) == (POSITION_BEYOND_END, {0: 1})
    assert client.requested == [0, 0]


def test_the_end_of_a_shard_that_waits_is_requested_once_in_a_while() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    client.client.put_logs("ls", GROUP)
    for now in range(0, 10 * STUCK_S, 2):
        assert ends.ends(begins, now=now) == {0: begins[0] + 1}
    assert len(client.requested) == 10


def test_the_end_of_a_shard_whose_log_groups_wait_for_more_is_requested_each_interval() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1, waits=True)
    for number in range(5):
        client.client.put_logs("ls", GROUP)
        assert ends.ends(begins, now=10 * number) == {0: begins[0] + number + 1}
        assert ends.ends(begins, now=10 * number + 9) == {0: begins[0] + number + 1}
    assert len(client.requested) == 5


def test_a_shard_that_is_held_again_is_requested_immediately() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    ends.ends(begins, now=0)
    assert ends.ends({}, now=1) == {}
    assert ends.ends(begins, now=2) == begins
    assert client.requested == [0, 0]


def test_the_ends_of_several_shards_are_requested_at_the_same_time() -> None:
    """None of the requests is answered before all were sent."""
    ends, client, begins = watch(MemoryServer(), shards=PARALLEL)
    together, answer = threading.Barrier(PARALLEL), client.client.get_cursor

    def wait(*arguments: Any) -> Any:
        together.wait(60)
        return answer(*arguments)

    client.client.get_cursor = wait
    assert ends.ends(begins, now=0) == begins


def test_an_outage_keeps_the_known_ends_and_is_reported_after_the_first_requests() -> None:
    server = MemoryServer()
    ends, client, begins = watch(server, shards=PARALLEL + 4)
    ends.ends(begins, now=0)
    server.unreachable = True
    assert ends.ends(begins, now=10) == begins
    assert ends.error.reason == "EndpointUnreachable"
    assert sorted(client.requested[len(begins) :]) == list(range(PARALLEL))
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


def test_a_position_beyond_the_end_is_reported_with_shard_and_cursor_and_what_to_do() -> None:
    ends, client, begins = watch(MemoryServer(), shards=2)
    client.client.put_logs("ls", GROUP, hash_key="0" * 32)
    positions = {0: begins[0] + 5, 1: begins[1]}
    assert ends.ends(positions, now=0) == {0: begins[0] + 1, 1: begins[1]}
    assert ends.beyond_end == {0: 4}
    assert ends.error.reason == "PositionBeyondEnd"
    for part in ("shard 0", encode_cursor(begins[0] + 5), encode_cursor(begins[0] + 1), "resetCheckpoints"):
        assert part in ends.error.message
    ends.ends(positions, now=1)  # no request is due
    assert (ends.beyond_end, ends.error.reason) == ({0: 4}, "PositionBeyondEnd")


def test_a_position_that_is_moved_back_is_no_longer_beyond_the_end() -> None:
    ends, _, begins = watch(MemoryServer(), shards=1)
    ends.ends({0: begins[0] + 5}, now=0)
    ends.ends(begins, now=1)
    assert (ends.beyond_end, ends.error.reason) == ({}, "")


def test_a_position_that_the_end_has_passed_is_no_longer_beyond_it() -> None:
    ends, client, begins = watch(MemoryServer(), shards=1)
    ends.ends({0: begins[0] + 2}, now=0)
    for _ in range(3):
        client.client.put_logs("ls", GROUP)
    ends.ends({0: begins[0] + 2}, now=10)
    assert (ends.beyond_end, ends.error.reason) == ({}, "")


def test_a_position_beyond_an_end_that_is_merely_old_is_no_error() -> None:
    """A shard that was held, lost and held again between two calls may be ahead of the end that is known."""
    ends, client, begins = watch(MemoryServer(), shards=1)
    ends.ends(begins, now=0)
    for _ in range(3):
        client.client.put_logs("ls", GROUP)
    ends.ends({0: begins[0] + 2}, now=1)  # no request is due
    assert (ends.beyond_end, ends.error.reason) == ({}, "")


def test_an_unreachable_endpoint_is_reported_before_a_position_beyond_the_end() -> None:
    server = MemoryServer()
    ends, _, begins = watch(server, shards=1)
    positions = {0: begins[0] + 5}
    ends.ends(positions, now=0)
    server.unreachable = True
    ends.ends(positions, now=10)
    assert ends.error.reason == "EndpointUnreachable"
    server.unreachable = False
    ends.ends(positions, now=20)
    assert ends.error.reason == "PositionBeyondEnd"
    ends.ends({}, now=21)
    assert (ends.beyond_end, ends.error.reason) == ({}, "")
