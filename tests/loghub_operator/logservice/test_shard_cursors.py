"""An endpoint that reveals a lag by cursors only: requests are bounded in time, and none is repeated."""

import threading
from typing import Any

import pytest

from loghub.client.port import LogHub, Position
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.errors import EndpointUnreachable, LogHubError
from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.api.conditions import LagReason
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.controller.liveness import MIN_BOUND_S
from loghub_operator.logservice.group_changes import (
    AHEAD_S,
    FORCE_S,
    TOO_SLOW,
    commit_checkpoints,
    create_group,
    resolve_targets,
)
from loghub_operator.logservice.group_state import ConsumerGroupKey
from loghub_operator.logservice.shard_cursors import (
    BEGIN_VALID_S,
    END_VALID_S,
    FOREVER_S,
    QUERY_BOUND_S,
    REQUESTS_AT_ONCE,
    CursorCache,
)
from loghub_operator.model.actions import CommitCheckpoints, CreateGroup
from loghub_operator.model.observed import Available, GroupSettings, StoredCheckpoints, Unavailable
from loghub_operator.plan.status.builder import lag_condition
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.observing import service_observed
from tests.support import HandClock

KEY = ConsumerGroupKey(logstore="access", group="access")
SHARDS = 64
ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


class SlowSls:
    """No extensions, and each question about one shard takes its time."""

    def __init__(self, client: LogHub, clock: HandClock, call_s: float) -> None:
        self._client = client
        self._clock = clock
        self.call_s = call_s
        self.requested: list[tuple[int, object]] = []

    def has_extensions(self) -> bool:
        return False

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        self._spend(shard, position)
        return self._client.get_cursor(logstore, shard, position)

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        self._spend(shard, "time")
        return self._client.get_cursor_time(logstore, shard, cursor)

    def update_checkpoint(self, logstore: str, group: str, *, shard: int, **how: Any) -> None:
        self._spend(shard, "checkpoint")
        self._client.update_checkpoint(logstore, group, shard=shard, **how)

    def _spend(self, shard: int, what: object) -> None:
        self.requested.append((shard, what))
        self._clock.now += self.call_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000_000.0)


@pytest.fixture
def client(clock: HandClock) -> LogHub:
    result = MemoryServer(clock).client("demo")
    result.create_project()
    result.create_logstore("access", shards=SHARDS)
    create_group(result, KEY, CreateGroup(settings=GroupSettings(timeout_s=30, order=False)))
    return result


def save_all(client: LogHub, shards: range) -> None:
    for shard in shards:
        end = client.get_cursor("access", shard, "end")
        client.update_checkpoint("access", "access", shard=shard, cursor=end, consumer="access-0", force=True)


def observe(client: Any, clock: HandClock, cache: CursorCache) -> Available:
    observed = service_observed(client, resource(), silent=["access-0"], cache=cache, clock=clock)
    assert isinstance(observed, Available)
    return observed


def known(observed: Available) -> list[int]:
    return [one.shard for one in observed.shards if one.lag_s is not None]


def test_a_slow_endpoint_ends_the_query_and_the_known_cursors_are_reported(
    client: LogHub, clock: HandClock
) -> None:
    save_all(client, range(SHARDS))
    slow, began = SlowSls(client, clock, call_s=1.0), clock.now
    observed = observe(slow, clock, CursorCache(clock))
    assert clock.now - began <= QUERY_BOUND_S + slow.call_s
    assert QUERY_BOUND_S < MIN_BOUND_S / 2
    assert known(observed) == list(range(int(QUERY_BOUND_S)))
    assert observed.group is not None
    assert {one.holder for one in observed.shards} == {"access-0"}
    assert all(one.checkpoint for one in observed.shards)
    reported = lag_condition(observed)
    assert (reported.status, reported.reason) == ("False", LagReason.TIMED_OUT)
    assert "within 30 s" in reported.message
    assert "shards 30, 31" in reported.message


def test_no_request_begins_after_the_deadline_at_any_point_of_a_shard(
    client: LogHub, clock: HandClock
) -> None:
    """Behind its checkpoint a shard takes three questions."""
    save_all(client, range(SHARDS))
    for shard in client.list_shards("access"):
        client.put_logs("access", ONE, hash_key=shard.begin_key)
    for call_s in (QUERY_BOUND_S, QUERY_BOUND_S / 2, QUERY_BOUND_S / 3):
        slow = SlowSls(client, clock, call_s=call_s)
        observed = observe(slow, clock, CursorCache(clock))
        assert len(slow.requested) == round(QUERY_BOUND_S / call_s)
        assert known(observed) == ([0] if len(slow.requested) == 3 else [])
        assert lag_condition(observed).reason == LagReason.TIMED_OUT


def test_the_lag_is_the_age_of_the_log_group_after_the_checkpoint(client: LogHub, clock: HandClock) -> None:
    save_all(client, range(SHARDS))
    client.put_logs("access", ONE, hash_key=client.list_shards("access")[5].begin_key)
    clock.now += 7.0
    observed = observe(SlowSls(client, clock, call_s=0.0), clock, CursorCache(clock))
    assert [(one.shard, one.lag_s, one.lag_groups) for one in observed.shards if one.lag_s] == [(5, 7.0, 1)]
    assert lag_condition(observed).reason == LagReason.AVAILABLE


def test_one_request_per_shard_is_enough_without_lag(client: LogHub, clock: HandClock) -> None:
    save_all(client, range(SHARDS))
    quick = SlowSls(client, clock, call_s=0.0)
    observe(quick, clock, CursorCache(clock))
    assert quick.requested == [(shard, "end") for shard in range(SHARDS)]


def test_the_end_of_a_read_only_shard_is_requested_once(client: LogHub, clock: HandClock) -> None:
    for shard in range(SHARDS // 2):
        client.split_shard("access", shard)
    save_all(client, range(2 * SHARDS))
    slow, cache = SlowSls(client, clock, call_s=1.0), CursorCache(clock)
    first = [one.state for one in observe(slow, clock, cache).shards].count("over")
    second = [one.state for one in observe(slow, clock, cache).shards].count("over")
    assert (first, second) == (30, SHARDS // 2)
    slow.call_s = 0.0
    slow.requested.clear()
    clock.now += END_VALID_S
    assert lag_condition(observe(slow, clock, cache)).reason == LagReason.AVAILABLE
    assert {shard for shard, _ in slow.requested} == set(range(SHARDS // 2, 2 * SHARDS))


def test_the_cached_ends_of_a_recreated_logstore_are_not_used(client: LogHub, clock: HandClock) -> None:
    cache = CursorCache(clock)

    def over_after(groups: int) -> bool:
        clock.now += 60.0
        client.delete_logstore("access")
        client.create_logstore("access", shards=1)
        create_group(client, KEY, CreateGroup(settings=GroupSettings(timeout_s=30, order=False)))
        for _ in range(groups):
            client.put_logs("access", ONE)
        begin = client.get_cursor("access", 0, "begin")
        client.split_shard("access", 0)
        client.update_checkpoint("access", "access", shard=0, cursor=begin, consumer="access-0", force=True)
        return observe(SlowSls(client, clock, call_s=0.0), clock, cache).shards[0].state == "over"

    assert over_after(groups=0)
    assert not over_after(groups=3)


def test_the_cache_is_bounded_and_evicts_the_least_recently_used(client: LogHub, clock: HandClock) -> None:
    cache, shards, name = (
        CursorCache(clock, maximum=2),
        client.list_shards("access"),
        ("embedded", "demo", "access"),
    )
    for shard in shards[:2]:
        cache.put(name, shard, "end", 7, valid_s=FOREVER_S)
    assert cache.get(name, shards[0], "end") == 7
    cache.put(name, shards[2], "end", 7, valid_s=FOREVER_S)
    assert [cache.get(name, shard, "end") for shard in shards[:3]] == [7, None, 7]


def test_groups_of_one_logstore_share_the_end_cursors_for_a_moment(client: LogHub, clock: HandClock) -> None:
    save_all(client, range(SHARDS))
    quick, cache = SlowSls(client, clock, call_s=0.0), CursorCache(clock)
    observe(quick, clock, cache)
    quick.requested.clear()
    clock.now += END_VALID_S - 1
    observe(quick, clock, cache)
    assert quick.requested == []
    clock.now += 1
    observe(quick, clock, cache)
    assert quick.requested == [(shard, "end") for shard in range(SHARDS)]


def test_an_end_read_before_a_split_is_not_that_of_the_read_only_shard(
    client: LogHub, clock: HandClock
) -> None:
    """It would count as consumed although logs followed."""
    save_all(client, range(SHARDS))
    quick, cache = SlowSls(client, clock, call_s=0.0), CursorCache(clock)
    observe(quick, clock, cache)
    client.put_logs("access", ONE, hash_key=client.list_shards("access")[0].begin_key)
    client.split_shard("access", 0)
    assert observe(quick, clock, cache).shards[0].state != "over"


def test_what_does_not_move_is_requested_once(client: LogHub, clock: HandClock) -> None:
    save_all(client, range(SHARDS))
    client.put_logs("access", ONE, hash_key=client.list_shards("access")[5].begin_key)
    quick, cache = SlowSls(client, clock, call_s=0.0), CursorCache(clock)
    observe(quick, clock, cache)
    assert [(shard, what) for shard, what in quick.requested if shard == 5] == [
        (5, "end"),
        (5, "begin"),
        (5, "time"),
    ]
    quick.requested.clear()
    clock.now += END_VALID_S
    assert [one.lag_s for one in observe(quick, clock, cache).shards if one.lag_s] == [END_VALID_S]
    assert [what for shard, what in quick.requested if shard == 5] == ["end"]
    quick.requested.clear()
    clock.now += BEGIN_VALID_S
    observe(quick, clock, cache)
    assert [what for shard, what in quick.requested if shard == 5] == ["end", "begin"]


def test_a_checkpoint_that_expired_since_the_begin_was_read_has_the_lag_of_the_new_begin(
    client: LogHub, clock: HandClock
) -> None:
    save_all(client, range(SHARDS))
    key = client.list_shards("access")[5].begin_key
    begin, age_s = wire_cursor.decode(client.get_cursor("access", 5, "begin")), 9.0
    for _ in range(3):
        client.put_logs("access", ONE, hash_key=key)
    expiring: Any = ExpiringSls(client, clock)
    cache, later = CursorCache(clock), wire_cursor.encode(begin + 2)
    observe(expiring, clock, cache)
    expiring.begin = later
    clock.now += age_s
    client.update_checkpoint(
        "access", "access", shard=5, cursor=wire_cursor.encode(begin + 1), consumer="access-0", force=True
    )
    assert [one.lag_s for one in observe(expiring, clock, cache).shards if one.lag_s] == [age_s]
    assert [what for shard, what in expiring.requested if shard == 5][-3:] == ["end", "begin", "time"]


class ExpiringSls(SlowSls):
    """Rejects the cursor of a log group that has expired."""

    def __init__(self, client: LogHub, clock: HandClock) -> None:
        super().__init__(client, clock, call_s=0.0)
        self.begin = ""

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        found = super().get_cursor(logstore, shard, position)
        return self.begin if self.begin and shard == 5 and position == "begin" else found

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        if self.begin and wire_cursor.decode(cursor) < wire_cursor.decode(self.begin):
            raise LogHubError("InvalidCursor", 400, "expired")
        return super().get_cursor_time(logstore, shard, cursor)


def test_requests_of_one_observation_run_at_a_time(client: LogHub, clock: HandClock) -> None:
    """Each of the first requests waits for the others, so one by one they would never end."""
    save_all(client, range(SHARDS))
    together = threading.Barrier(REQUESTS_AT_ONCE)
    slow, pool = SlowSls(client, clock, call_s=0.0), LogServicePool(lambda *_: client)
    first = {shard.shard for shard in client.list_shards("access")[:REQUESTS_AT_ONCE]}
    ends: Any = slow.get_cursor

    def get_cursor(logstore: str, shard: int, position: Position) -> str:
        if shard in first:
            together.wait(180)
        return ends(logstore, shard, position)

    slow.get_cursor = get_cursor  # type: ignore[method-assign]
    observed = service_observed(slow, resource(), silent=["access-0"], clock=clock, run_all=pool.run_all)
    pool.close()
    assert isinstance(observed, Available)
    assert known(observed) == list(range(SHARDS))


def test_an_error_of_one_request_ends_the_observation(client: LogHub, clock: HandClock) -> None:
    save_all(client, range(SHARDS))
    failing, pool = SlowSls(client, clock, call_s=0.0), LogServicePool(lambda *_: client)

    def get_cursor(_logstore: str, shard: int, _position: Position) -> str:
        failing.requested.append((shard, "end"))
        raise EndpointUnreachable("http://x", "no answer", definite=True)

    failing.get_cursor = get_cursor  # type: ignore[method-assign]
    observed = service_observed(failing, resource(), clock=clock, run_all=pool.run_all)
    pool.close()
    assert isinstance(observed, Unavailable)
    assert len(failing.requested) <= REQUESTS_AT_ONCE


def test_target_cursors_are_complete_before_the_deadline_or_not_reported(
    client: LogHub, clock: HandClock
) -> None:
    order = resource({"resetCheckpoints": {"to": "Begin", "nonce": "1"}})
    slow: Any = SlowSls(client, clock, call_s=1.0)
    shards = observe(slow, clock, CursorCache(clock)).shards
    for call_s, positions, error in ((1.0, 0, TOO_SLOW), (0.5, SHARDS, "")):
        slow.call_s, began = call_s, clock.now
        observed = resolve_targets(
            slow, order, shards, StoredCheckpoints(), last_initial_shard=None, clock=clock
        )
        assert (len(observed.positions), observed.error) == (positions, error)
        assert clock.now - began <= AHEAD_S + call_s
    assert QUERY_BOUND_S + AHEAD_S < MIN_BOUND_S


def test_checkpoints_not_forced_before_the_deadline_are_forced_by_the_next_reconcile(
    client: LogHub, clock: HandClock
) -> None:
    slow: Any = SlowSls(client, clock, call_s=1.0)
    moves = tuple((shard, client.get_cursor("access", shard, "begin")) for shard in range(SHARDS))
    forced = []
    while moves:
        commit_checkpoints(slow, KEY, CommitCheckpoints(moves), clock)
        saved = {one.shard for one in client.get_checkpoints("access", "access") if one.cursor}
        moves = tuple(move for move in moves if move[0] not in saved)
        forced.append(len(saved))
    assert forced == [int(FORCE_S), 2 * int(FORCE_S), SHARDS]
