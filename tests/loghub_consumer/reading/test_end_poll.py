"""A poll for the ends of many shards: what it reports, how its shards change, and what failures do."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from loghub.client.port import Poll, ShardEnds
from loghub.wire.cursor import decode
from loghub.wire.errors import Code, LogHubError
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.reading.end_cursors import MAX_RETRY_S, MAX_THREADS, EndPoll, EndWatch
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.support import HandClock, wait_until

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))
KEYS = ("0" * 32, "8" + "0" * 31)


class PollingClient:
    """Notes the polls and the other requests for an end. Polls fail with `error`, if there is one."""

    def __init__(self, client: MemoryLogHub) -> None:
        self.client = client
        self.polls: list[tuple[frozenset[int], float]] = []
        self.requested: list[int] = []
        self.error: LogHubError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def get_cursor(self, logstore: str, shard: int, position: Any) -> str:
        self.requested.append(shard)
        return self.client.get_cursor(logstore, shard, position)

    def await_ends(self, logstore: str, known: Mapping[int, str], *, poll: Poll) -> tuple[ShardEnds, ...]:
        self.polls.append((frozenset(known), poll.wait_s))
        if self.error is not None:
            raise self.error
        return self.client.await_ends(logstore, known, poll=poll)


class Watching:
    """A poll on a logstore of two shards, and its clock, which the test moves."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.clock = HandClock(100.0)
        self.news = threading.Event()
        memory = server.client("proj")
        memory.create_project()
        memory.create_logstore("ls", shards=2)
        self.client = PollingClient(memory)
        client: Any = self.client
        self.poll = EndPoll(client, logstore="ls", clock=self.clock, on_change=self.news.set)
        self.ends: dict[int, int | None] = {
            shard: decode(memory.get_cursor("ls", shard, "end")) for shard in (0, 1)
        }

    def put(self, shard: int) -> None:
        self.client.put_logs("ls", GROUP, hash_key=KEYS[shard])

    def next(self) -> dict[int, int | None]:
        assert self.news.wait(60)
        self.news.clear()
        return self.poll.take()

    def waits_for(self, *shards: int) -> None:
        wait_until(
            lambda: bool(self.client.polls) and self.client.polls[-1][0] == set(shards),
            f"a poll for {shards}",
        )


@contextmanager
def watching(*, polls: bool = True) -> Iterator[Watching]:
    found = Watching(MemoryServer(polls=polls))
    try:
        yield found
    finally:
        found.poll.stop()
        found.server.last_polls.clear()


@pytest.fixture
def on() -> Iterator[Watching]:
    with watching() as found:
        yield found


def test_a_shard_is_reported_once_its_end_has_changed_and_is_then_not_watched(on: Watching) -> None:
    on.poll.watch(on.ends)
    on.put(1)
    assert on.next() == {1: on.ends[1] + 1}  # type: ignore[operator]
    assert set(on.poll.watched) == {0}
    assert on.poll.take() == {}


def test_an_end_that_is_not_known_is_reported_at_once(on: Watching) -> None:
    on.poll.watch({0: None})
    assert on.next() == {0: on.ends[0]}
    assert not on.poll.watched


def test_a_shard_that_does_not_exist_is_reported_and_the_others_stay_watched(on: Watching) -> None:
    on.poll.watch(on.ends | {7: None})
    assert on.next() == {7: None}
    on.waits_for(0, 1)


def test_a_shard_that_is_watched_later_is_in_the_next_poll_at_once(on: Watching) -> None:
    on.poll.watch({0: on.ends[0]})
    on.waits_for(0)
    on.poll.watch({1: on.ends[1]})
    on.waits_for(0, 1)
    on.put(1)
    assert set(on.next()) == {1}


def test_shards_that_come_one_by_one_do_not_take_a_thread_each(on: Watching) -> None:
    """Also if no poll is answered."""
    before = set(threading.enumerate())
    hanging = threading.Event()
    answer = on.client.client.await_ends
    on.client.client.await_ends = lambda *a, **k: hanging.wait(60) and answer(*a, **k)  # type: ignore[method-assign,func-returns-value]
    for end in range(3 * MAX_THREADS):
        on.poll.watch({0: end})
    begun = [thread for thread in threading.enumerate() if thread.name == "end-poll" and thread not in before]
    assert len(begun) == MAX_THREADS
    hanging.set()
    assert on.next() == {0: on.ends[0]}


def test_after_a_failure_nothing_is_watched_until_the_service_answers_again(on: Watching) -> None:
    on.client.error = LogHubError.of(Code.SERVER_BUSY, "too many polls")
    assert on.poll.is_usable()
    on.poll.watch(on.ends)
    assert on.next() == {}
    assert (on.poll.watched, on.poll.is_usable()) == (frozenset(), False)
    on.clock.now += MAX_RETRY_S
    on.client.error = None
    assert on.poll.is_usable()
    on.poll.watch(on.ends)
    on.waits_for(0, 1)
    wait_until(lambda: len(on.client.polls) == 3, "the poll after the first answer")
    assert [wait_s > 0 for _, wait_s in on.client.polls] == [True, False, True]


def test_a_service_without_polls_is_asked_for_none() -> None:
    with watching(polls=False) as on:
        assert not on.poll.is_usable()


def test_answers_without_news_that_come_at_once_are_not_asked_for_without_pause(on: Watching) -> None:
    """A service that stops answers so."""
    pauses: list[float] = []
    ended = threading.Event()

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 8:
            on.poll.stop()
            ended.set()
        return False

    on.poll._stop.wait = wait  # type: ignore[method-assign,assignment]
    memory = on.client.client
    at_once = memory.await_ends
    memory.await_ends = lambda logstore, known, poll: at_once(  # type: ignore[method-assign]
        logstore, known, poll=Poll(name=poll.name, wait_s=0.0)
    )
    on.poll.watch(on.ends)
    assert ended.wait(60)
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0


# --- the ends of the shards that a worker reads -------------------------------------------------


def end_watch(on: Watching, **changes: Any) -> EndWatch:
    client: Any = on.client
    options: dict[str, Any] = {"logstore": "ls", "interval_s": 10, "on_change": on.news.set}
    return EndWatch(client, **options | changes)


def until(look: Callable[[], Mapping[int, int]], expected: Mapping[int, int | None]) -> None:
    wait_until(lambda: look() == expected, f"the ends {expected}")


def test_shards_at_rest_cost_no_request_and_new_log_groups_are_known_before_the_interval(
    on: Watching,
) -> None:
    ends, positions = end_watch(on), {shard: end or 0 for shard, end in on.ends.items()}
    until(lambda: ends.ends(positions, now=0), on.ends)
    for now in range(0, 1000, 7):
        assert ends.ends(positions, now=now) == on.ends
    on.waits_for(0, 1)
    on.put(0)
    until(lambda: ends.ends(positions, now=1000), positions | {0: positions[0] + 1})
    assert on.client.requested == []
    assert len(on.client.polls) <= 5


def test_a_failing_poll_leaves_the_requests_of_sls_at_their_interval(on: Watching) -> None:
    ends, positions = end_watch(on), {shard: end or 0 for shard, end in on.ends.items()}
    on.client.error = LogHubError.of(Code.SERVER_BUSY, "too many polls")
    until(lambda: ends.ends(positions, now=0), {})
    assert on.news.wait(60)
    assert ends.ends(positions, now=10) == on.ends
    assert ends.ends(positions, now=19) == on.ends
    assert sorted(on.client.requested) == [0, 1]
    assert ends.error.reason == ""


def test_a_shard_that_does_not_exist_is_requested_for_its_error(on: Watching) -> None:
    ends, positions = end_watch(on), {0: on.ends[0] or 0, 7: 5}
    until(lambda: ends.ends(positions, now=0), {0: on.ends[0]})
    wait_until(lambda: bool(ends.ends(positions, now=1)) and ends.error.reason != "", "the error")
    assert ends.error.reason == "ShardNotExist"
    assert set(on.client.requested) == {7}


def test_a_position_beyond_the_end_is_reported_by_a_poll_too(on: Watching) -> None:
    ends = end_watch(on)
    positions = {0: (on.ends[0] or 0) + 4}
    until(lambda: ends.ends(positions, now=0), {0: on.ends[0]})
    assert ends.beyond_end == {0: 4}
    assert ends.error.reason == "PositionBeyondEnd"


def test_an_answer_of_a_poll_that_is_older_than_the_position_is_no_lost_log(on: Watching) -> None:
    """A process that was paused finds the answer of its poll and the position that another worker saved."""
    ends, old = end_watch(on), on.ends[0] or 0
    ends.ends({0: old}, now=0)
    assert on.news.wait(60)
    on.put(0)
    on.put(0)
    assert ends.ends({0: old + 2}, now=1) == {0: old + 2}
    assert (ends.beyond_end, ends.error.reason) == ({}, "")
    assert ends.ends({0: old + 2}, now=12) == {0: old + 2}
    assert (set(ends._poll.watched), on.client.requested) == ({0}, [0])


def test_a_shard_that_is_given_up_is_not_watched_any_more(on: Watching) -> None:
    ends, positions = end_watch(on), {shard: end or 0 for shard, end in on.ends.items()}
    until(lambda: ends.ends(positions, now=0), on.ends)
    ends.ends(positions, now=10)
    on.waits_for(0, 1)
    assert ends.ends({0: positions[0]}, now=11) == {0: on.ends[0]}
    assert set(ends._poll.watched) == {0}
