"""A wall clock that jumps: nothing is deleted, and receive times are true again after the correction."""

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from loghub.domain.group import SaveCheckpoint
from loghub_service.api import extensions
from loghub_service.engine import Engine
from loghub_service.facts import LogstoreDeleted
from loghub_service.kafka.coordinator.group import GroupErrorCode, TopicPartition
from loghub_service.kafka.coordinator.requests import OffsetCommit
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.kafka.store.log_service import EngineLogService
from loghub_service.ports import SteadyClock
from loghub_service.retention import MAX_SEGMENTS, Retention
from tests.loghub_service.engines import STORE_ID, create_group_of_one_shard, live, request
from tests.loghub_service.inline_batches import InlineBatches

MINUTE_S, DAY_S = 60.0, 86_400.0
MONTH_S = 30 * DAY_S


class TwoClocks:
    """A wall clock that can be set, and a monotonic one that cannot."""

    def __init__(self) -> None:
        self.wall_s = 1_700_000_000.0
        self._monotonic_s = 5_000.0

    def unix_s(self) -> float:
        return self.wall_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def run(self, seconds: float) -> None:
        self.wall_s += seconds
        self._monotonic_s += seconds


async def put(engine: Engine, count: int) -> None:
    for _ in range(count):
        await engine.append(engine.logs[STORE_ID, 0], b"x" * 400, logs=1)


def kept(engine: Engine) -> int:
    extent = engine.logs[STORE_ID, 0].extent
    return extent.end_cursor - extent.oldest_cursor


def test_the_steady_clock_follows_small_steps_at_once_and_jumps_after_a_while() -> None:
    clock = TwoClocks()
    steady = SteadyClock(clock, settle_s=600)
    begin = steady.unix_s()
    clock.wall_s += 30
    assert steady.unix_s() == begin + 30
    clock.wall_s += MONTH_S
    clock.run(599)
    assert steady.unix_s() == begin + 30 + 599
    clock.run(599)  # noticed only at the look before
    assert steady.unix_s() == begin + 30 + 2 * 599
    clock.run(1)
    assert steady.unix_s() == clock.wall_s
    clock.wall_s -= MONTH_S
    assert steady.unix_s() == clock.wall_s + MONTH_S


def test_a_jump_that_is_taken_back_leaves_no_trace_in_the_steady_clock() -> None:
    clock = TwoClocks()
    steady = SteadyClock(clock, settle_s=600)
    for _ in range(20):
        clock.wall_s += MONTH_S
        steady.unix_s()
        clock.run(300)
        steady.unix_s()
        clock.wall_s -= MONTH_S
        assert steady.unix_s() == clock.wall_s


@pytest.mark.long
@pytest.mark.parametrize("minutes", [1, 60, 23 * 60])
def test_a_clock_that_is_a_month_ahead_for_a_while_deletes_nothing(tmp_path: Path, minutes: int) -> None:
    clock = TwoClocks()

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=2)
        await put(engine, 50)
        await retention.look()
        clock.wall_s += MONTH_S
        for _ in range(minutes):
            clock.run(MINUTE_S)
            await retention.look()
        assert kept(engine) == 50
        clock.wall_s -= MONTH_S
        for _ in range(10):
            clock.run(MINUTE_S)
            await retention.look()
        assert kept(engine) == 50
        # And it goes on with the right time.
        clock.run(2 * DAY_S)
        await retention.look()
        await retention.look()
        assert kept(engine) == 0

    live(tmp_path / "d", clock, scenario)


@pytest.mark.long
def test_a_clock_that_is_a_month_ahead_at_a_start_deletes_nothing(tmp_path: Path) -> None:
    clock = TwoClocks()

    async def before(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=2)
        await put(engine, 50)
        clock.run(3600)
        await retention.look()

    live(tmp_path / "d", clock, before)
    clock.run(300)
    clock.wall_s += MONTH_S

    async def ahead(engine: Engine) -> None:
        retention = Retention(engine)
        for _ in range(60):
            clock.run(MINUTE_S)
            await retention.look()
        assert kept(engine) == 50

    live(tmp_path / "d", clock, ahead)
    clock.wall_s -= MONTH_S
    live(tmp_path / "d", clock, ahead)


@pytest.mark.long
@pytest.mark.parametrize("corrected_between", [False, True])
def test_a_clock_that_is_a_month_ahead_at_many_starts_deletes_nothing(
    tmp_path: Path, corrected_between: bool
) -> None:
    """Each start that believed another day of the jump would delete another day of logs."""
    clock = TwoClocks()

    async def before(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=3)
        await put(engine, 50)
        clock.run(3600)
        await retention.look()

    async def look(engine: Engine) -> None:
        retention = Retention(engine)
        clock.run(MINUTE_S)
        await retention.look()
        assert kept(engine) == 50

    live(tmp_path / "d", clock, before)
    for _ in range(10):
        clock.wall_s += MONTH_S
        for _ in range(1 if corrected_between else 10):
            live(tmp_path / "d", clock, look)
        clock.wall_s -= MONTH_S
        live(tmp_path / "d", clock, look)


@pytest.mark.long
def test_after_a_long_pause_of_the_service_logs_expire_a_day_later(tmp_path: Path) -> None:
    clock = TwoClocks()

    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine, ttl_days=2)
        await put(engine, 50)

    live(tmp_path / "d", clock, before)
    clock.run(MONTH_S)

    async def after(engine: Engine) -> None:
        retention = Retention(engine)
        for minute in range(24 * 60 + 2):
            clock.run(MINUTE_S)
            await retention.look()
            if minute == 23 * 60:
                assert kept(engine) == 50
        assert kept(engine) == 0

    live(tmp_path / "d", clock, after)


def test_one_look_drops_a_bounded_number_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loghub_service.retention.MAX_SEGMENTS", 2)
    assert MAX_SEGMENTS > 2
    clock = TwoClocks()

    async def scenario(engine: Engine) -> None:
        retention = Retention(engine)
        await create_group_of_one_shard(engine, ttl_days=1)
        await put(engine, 50)
        clock.run(2 * DAY_S)
        left = [50]
        while left[-1]:
            await retention.look()
            left.append(kept(engine))
        steps = [before - after for before, after in pairwise(left)]
        assert len(steps) >= 3
        assert max(steps) <= 2 * (4096 // 400)

    live(tmp_path / "d", clock, scenario)


@pytest.mark.parametrize("ahead_s", [MINUTE_S, 3600.0])
def test_lag_and_cursors_by_time_are_right_after_a_corrected_jump(tmp_path: Path, ahead_s: float) -> None:
    """A jump of a minute leaves no trace; a longer one leaves times in the future, which say nothing."""
    clock = TwoClocks()

    async def lag_s(engine: Engine) -> float:
        answer = await extensions.group_status(engine, request("GET", path="/"), ls="ls", cg="g")
        return float(json.loads(answer.body)["shards"][0]["lag_s"])

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        log, group = engine.logs[STORE_ID, 0], engine.groups.of(STORE_ID)["g"]
        await put(engine, 20)
        clock.wall_s += MONTH_S
        for _ in range(int(ahead_s // MINUTE_S)):
            engine.now_us()
            clock.run(MINUTE_S)
        await put(engine, 20)
        clock.wall_s -= MONTH_S
        for _ in range(11):  # the correction is a jump, too
            engine.now_us()
            clock.run(MINUTE_S)
        good_s = clock.unix_s()
        await put(engine, 20)
        assert log.extent.received_us == int(good_s * 1_000_000)
        clock.run(3600)
        for cursor, age_s in ((1040, 3600.0), (1025, 3600 + 11 * 60.0)):
            saved = SaveCheckpoint(consumer="", shard=0, cursor=cursor, force=True, updated_unix_us=7)
            await engine.groups.apply_durably(group, saved)
            assert age_s <= await lag_s(engine) <= age_s + ahead_s
        now_us = engine.now_us()
        assert log.cursor_at(int(good_s * 1_000_000) + 1, now_us=now_us) == 1060
        assert log.cursor_at(int((good_s - 1) * 1_000_000), now_us=now_us) in (1020, 1040)

    live(tmp_path / "d", clock, scenario)


def test_a_logstore_that_is_created_again_after_the_clock_was_set_back_gives_no_cursor_twice(
    tmp_path: Path,
) -> None:
    clock = TwoClocks()

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, 3)
        end = engine.logs[STORE_ID, 0].extent.end_cursor
        engine.groups.forget_logstore(STORE_ID)
        await engine.persist_deletion(LogstoreDeleted(id=STORE_ID, project="p", name="ls"))
        await engine.remove_logs(STORE_ID)
        assert engine.first_cursor(0) >= end

    async def after(engine: Engine) -> None:
        assert engine.first_cursor(0) >= 1003

    live(tmp_path / "d", clock, scenario)
    live(tmp_path / "d", clock, after)


def test_a_clock_that_was_ahead_for_days_is_believed_at_a_start_that_is_a_day_after_its_correction(
    tmp_path: Path,
) -> None:
    clock, ahead_s = TwoClocks(), []

    async def run(engine: Engine) -> None:
        retention = Retention(engine)
        for _ in range(10):
            clock.run(3600)
            await retention.look()
        ahead_s.append(engine.now_us() / 1_000_000 - clock.unix_s())

    clock.wall_s += MONTH_S
    for _ in range(4):
        live(tmp_path / "d", clock, run, start_batches=InlineBatches)
    clock.wall_s -= MONTH_S
    for _ in range(4):
        live(tmp_path / "d", clock, run, start_batches=InlineBatches)
    assert [round(one / MONTH_S) for one in ahead_s] == [0, 0, 0, 0, 1, 1, 1, 0]


Step = tuple[Callable[[Engine, Retention], Awaitable[None]], float]  # and the jump of the clock before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A wall clock that is behind for a while, and what the shard and the service have seen before."""

    wrong_s: float = 3600.0
    idle_s: float  # since the log groups before, when it begins
    restarts: bool = False


BEHIND = {
    "a new shard": Behind(idle_s=0),
    "expired and dropped": Behind(idle_s=3 * DAY_S),
    "soon expired": Behind(idle_s=1.9 * DAY_S),
    "at a start": Behind(idle_s=3 * DAY_S, restarts=True),
    "for most of a day": Behind(idle_s=3 * DAY_S, wrong_s=23 * 3600.0),
}


DEEP_BEHIND = {"expired and dropped", "for most of a day"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.deep] if n in DEEP_BEHIND else []) for n in BEHIND]
)
def test_what_arrives_while_the_clock_is_behind_is_kept_as_long_as_anything_else(
    tmp_path: Path, name: str
) -> None:
    """The log groups, and what a group of Kafka clients without members commits."""
    row, clock, key = BEHIND[name], TwoClocks(), KafkaGroupKey("p", "readers")

    async def commit(engine: Engine, offset: int) -> None:
        now_ms = EngineLogService(engine, lambda _: None).now_ms()
        event = OffsetCommit(offsets=((TopicPartition(STORE_ID, 0), offset, ""),), unix_ms=now_ms)
        assert (await engine.kafka_groups.commit(key, event)).error is GroupErrorCode.NONE

    async def run(retention: Retention, seconds: float, *, looks: int) -> None:
        for _ in range(looks):
            clock.run(seconds / looks)
            await retention.look()

    async def before(engine: Engine, retention: Retention) -> None:
        await create_group_of_one_shard(engine, ttl_days=2)
        await commit(engine, 1)
        await put(engine, 20 if row.idle_s else 0)
        await run(retention, 8 * DAY_S, looks=16)  # the offset of a group without members expires after seven
        await put(engine, 20 if row.idle_s else 0)
        await run(retention, row.idle_s, looks=4)

    async def wrong(engine: Engine, retention: Retention) -> None:
        await run(retention, 20 * MINUTE_S, looks=2)  # the clock is wrong for a while when they arrive
        await put(engine, 50)
        await commit(engine, 2)
        await run(retention, row.wrong_s - 20 * MINUTE_S, looks=4)

    async def after(engine: Engine, retention: Retention) -> None:
        end = engine.logs[STORE_ID, 0].extent.end_cursor
        await run(retention, DAY_S, looks=24)
        assert end - engine.logs[STORE_ID, 0].extent.oldest_cursor >= 50
        ((_, committed),) = (await engine.kafka_groups.fetch(key, None)).offsets
        assert committed is not None
        assert committed.offset == 2
        await run(retention, 3 * DAY_S, looks=9)
        assert kept(engine) == 0

    steps = ((before, 0.0), (wrong, -MONTH_S), (after, MONTH_S))
    for these in [[step] for step in steps] if row.restarts else [steps]:

        async def one_run(engine: Engine, these: Iterable[Step] = these) -> None:
            retention = Retention(engine)
            for step, jump_s in these:
                clock.wall_s += jump_s
                await step(engine, retention)

        live(tmp_path / "d", clock, one_run, start_batches=InlineBatches)
