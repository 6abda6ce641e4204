"""A round at an endpoint that tells a lag by cursors only: bounded in time, and nothing asked twice."""

from typing import Any

import pytest

from loghub.client.port import LogHub, Position
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.api.conditions import LagReason
from loghub_operator.controller.liveness import SHORTEST_BOUND_S
from loghub_operator.logservice.checkpoints import (
    AHEAD_S,
    FORCE_S,
    TOO_SLOW,
    commit_checkpoints,
    resolve_targets,
)
from loghub_operator.logservice.group_changes import create_group
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.logservice.shard_cursors import QUERY_BOUND_S, EndCursorCache
from loghub_operator.model.actions import CommitCheckpoints, CreateGroup
from loghub_operator.model.observed import Available
from loghub_operator.plan.status.builder import lag_finding
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.observing import service_observed
from tests.support import HandClock

KEY = GroupKey(logstore="access", group="access")
SHARDS = 64
ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


class SlowSls:
    """No extensions, and each question about one shard takes its time."""

    def __init__(self, hub: LogHub, clock: HandClock, call_s: float) -> None:
        self._hub = hub
        self._clock = clock
        self.call_s = call_s
        self.asked: list[tuple[int, object]] = []

    def has_extensions(self) -> bool:
        return False

    def get_cursor(self, logstore: str, shard: int, position: Position) -> str:
        self._spend(shard, position)
        return self._hub.get_cursor(logstore, shard, position)

    def get_cursor_time(self, logstore: str, shard: int, cursor: str) -> int:
        self._spend(shard, "time")
        return self._hub.get_cursor_time(logstore, shard, cursor)

    def update_checkpoint(self, logstore: str, group: str, *, shard: int, **how: Any) -> None:
        self._spend(shard, "checkpoint")
        self._hub.update_checkpoint(logstore, group, shard=shard, **how)

    def _spend(self, shard: int, what: object) -> None:
        self.asked.append((shard, what))
        self._clock.now += self.call_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000_000.0)


@pytest.fixture
def hub(clock: HandClock) -> LogHub:
    made = MemoryServer(clock).client("demo")
    made.create_project()
    made.create_logstore("access", shards=SHARDS)
    create_group(made, KEY, CreateGroup(timeout_s=30, order=False))
    return made


def save_all(hub: LogHub, shards: range) -> None:
    for shard in shards:
        end = hub.get_cursor("access", shard, "end")
        hub.update_checkpoint("access", "access", shard=shard, cursor=end, consumer="access-0", force=True)


def look(hub: Any, clock: HandClock, ends: EndCursorCache) -> Available:
    seen = service_observed(hub, resource(), silent=["access-0"], ends=ends, clock=clock)
    assert isinstance(seen, Available)
    return seen


def known(seen: Available) -> list[int]:
    return [one.shard for one in seen.shards if one.lag_s is not None]


def test_a_slow_endpoint_ends_the_query_and_the_known_cursors_are_reported(
    hub: LogHub, clock: HandClock
) -> None:
    save_all(hub, range(SHARDS))
    slow, began = SlowSls(hub, clock, call_s=1.0), clock.now
    seen = look(slow, clock, EndCursorCache())
    assert clock.now - began <= QUERY_BOUND_S + slow.call_s
    assert QUERY_BOUND_S < SHORTEST_BOUND_S / 2
    assert known(seen) == list(range(int(QUERY_BOUND_S)))
    assert seen.group is not None
    assert {one.holder for one in seen.shards} == {"access-0"}
    assert all(one.checkpoint for one in seen.shards)
    told = lag_finding(seen)
    assert (told.status, told.reason) == ("False", LagReason.TIMED_OUT)
    assert "within 30 s" in told.message
    assert "shards 30, 31" in told.message


def test_no_request_begins_after_the_deadline_at_any_point_of_a_shard(hub: LogHub, clock: HandClock) -> None:
    """Behind its checkpoint a shard takes three questions."""
    save_all(hub, range(SHARDS))
    for shard in hub.list_shards("access"):
        hub.put_logs("access", ONE, hash_key=shard.begin_key)
    for call_s in (QUERY_BOUND_S, QUERY_BOUND_S / 2, QUERY_BOUND_S / 3):
        slow = SlowSls(hub, clock, call_s=call_s)
        seen = look(slow, clock, EndCursorCache())
        assert len(slow.asked) == round(QUERY_BOUND_S / call_s)
        assert known(seen) == ([0] if len(slow.asked) == 3 else [])
        assert lag_finding(seen).reason == LagReason.TIMED_OUT


def test_the_lag_is_the_age_of_the_log_group_after_the_checkpoint(hub: LogHub, clock: HandClock) -> None:
    save_all(hub, range(SHARDS))
    hub.put_logs("access", ONE, hash_key=hub.list_shards("access")[5].begin_key)
    clock.now += 7.0
    seen = look(SlowSls(hub, clock, call_s=0.0), clock, EndCursorCache())
    assert [(one.shard, one.lag_s, one.lag_groups) for one in seen.shards if one.lag_s] == [(5, 7.0, 1)]
    assert lag_finding(seen).reason == LagReason.AVAILABLE


def test_one_request_per_shard_is_enough_without_lag(hub: LogHub, clock: HandClock) -> None:
    save_all(hub, range(SHARDS))
    quick = SlowSls(hub, clock, call_s=0.0)
    look(quick, clock, EndCursorCache())
    assert quick.asked == [(shard, "end") for shard in range(SHARDS)]


def test_the_end_of_a_read_only_shard_is_requested_once(hub: LogHub, clock: HandClock) -> None:
    for shard in range(SHARDS // 2):
        hub.split_shard("access", shard)
    save_all(hub, range(2 * SHARDS))
    slow, ends = SlowSls(hub, clock, call_s=1.0), EndCursorCache()
    first = [one.state for one in look(slow, clock, ends).shards].count("over")
    second = [one.state for one in look(slow, clock, ends).shards].count("over")
    assert (first, second) == (30, SHARDS // 2)
    slow.call_s = 0.0
    slow.asked.clear()
    assert lag_finding(look(slow, clock, ends)).reason == LagReason.AVAILABLE
    assert {shard for shard, _ in slow.asked} == set(range(SHARDS // 2, 2 * SHARDS))


def test_the_cached_ends_of_a_recreated_logstore_are_not_used(hub: LogHub, clock: HandClock) -> None:
    ends = EndCursorCache()

    def over_after(groups: int) -> bool:
        clock.now += 60.0
        hub.delete_logstore("access")
        hub.create_logstore("access", shards=1)
        create_group(hub, KEY, CreateGroup(timeout_s=30, order=False))
        for _ in range(groups):
            hub.put_logs("access", ONE)
        begin = hub.get_cursor("access", 0, "begin")
        hub.split_shard("access", 0)
        hub.update_checkpoint("access", "access", shard=0, cursor=begin, consumer="access-0", force=True)
        return look(SlowSls(hub, clock, call_s=0.0), clock, ends).shards[0].state == "over"

    assert over_after(groups=0)
    assert not over_after(groups=3)


def test_the_cache_is_bounded_and_evicts_the_oldest_ends(hub: LogHub) -> None:
    for number in range(3):
        hub.split_shard("access", number)
    ends, shards, name = EndCursorCache(most=2), hub.list_shards("access"), ("embedded", "demo", "access")
    for shard in shards[:3]:
        ends.put(name, shard, 7)
    assert [ends.get(name, shard) for shard in shards[:3]] == [None, 7, 7]
    ends.put(name, shards[10], 7)
    assert ends.get(name, shards[10]) is None, "it is written to, and its end moves"


def test_target_cursors_are_complete_before_the_deadline_or_not_reported(
    hub: LogHub, clock: HandClock
) -> None:
    order = resource({"resetCheckpoints": {"to": "Begin", "nonce": "1"}})
    slow: Any = SlowSls(hub, clock, call_s=1.0)
    shards = look(slow, clock, EndCursorCache()).shards
    for call_s, positions, error in ((1.0, 0, TOO_SLOW), (0.5, SHARDS, "")):
        slow.call_s, began = call_s, clock.now
        seen = resolve_targets(slow, order, shards, backup=None, source=None, clock=clock)
        assert (len(seen.positions), seen.error) == (positions, error)
        assert clock.now - began <= AHEAD_S + call_s
    assert QUERY_BOUND_S + AHEAD_S < SHORTEST_BOUND_S


def test_checkpoints_not_forced_before_the_deadline_are_forced_by_the_next_reconcile(
    hub: LogHub, clock: HandClock
) -> None:
    slow: Any = SlowSls(hub, clock, call_s=1.0)
    moves = tuple((shard, hub.get_cursor("access", shard, "begin")) for shard in range(SHARDS))
    forced = []
    while moves:
        commit_checkpoints(slow, KEY, CommitCheckpoints(moves), clock)
        saved = {one.shard for one in hub.get_checkpoints("access", "access") if one.cursor}
        moves = tuple(move for move in moves if move[0] not in saved)
        forced.append(len(saved))
    assert forced == [int(FORCE_S), 2 * int(FORCE_S), SHARDS]
