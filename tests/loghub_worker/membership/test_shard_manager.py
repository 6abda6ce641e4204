"""What is done for held shards, on the service in memory; the threads' rounds are called one by one."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import GroupInfo, Position
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.batch_plan import Range
from loghub_worker.exchange_files import Handover, Report
from loghub_worker.membership.heartbeat import HeartbeatThread
from loghub_worker.membership.shard_manager import SURVEY_S, ShardManager
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Membership, MembershipTimings, MemberState, Phase, ShutdownMode
from loghub_worker.sink.commit_log import Incarnation
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.support import wait_until

GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))
NAMES = {"logstore": "ls", "group": "g", "name": "c"}


class FakeClock:
    """Moved by the test; it goes on a little by itself so that nothing waits for ever."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return 1_700_000_000 + self.now


class RecordingSink:
    """A sink that stands `ahead` of the checkpoint."""

    def __init__(self) -> None:
        self.ahead = 0
        self.resume_waits_for: threading.Event | None = None
        self.resumed = 0
        self.moved: list[bool] = []
        self.acknowledged: list[tuple[int, int]] = []

    def resume(
        self, shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        if self.resume_waits_for is not None:
            self.resume_waits_for.wait(60)
        confirm()
        self.resumed += 1
        self.moved.append(moved)
        return checkpoint + self.ahead

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self.acknowledged.append((shard, checkpoint))


class World:
    """A logstore of one shard in memory, and one worker's parts around it."""

    def __init__(
        self,
        folder: Path,
        *,
        groups: int = 0,
        initial: Position = "begin",
        save_every_s: float = 0.0,
        **terms: float,
    ) -> None:
        self.save_every_s = save_every_s
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock)
        self.hub = self.server.client("proj")
        self.hub.create_project()
        self.hub.create_logstore("ls", shards=1)
        self.hub.create_group("ls", GroupInfo(name="g", timeout_s=30, order=False))
        for _ in range(groups):
            self.hub.put_logs("ls", GROUP)
        self.begin = self.cursor("begin")
        self.handover = Handover(folder)
        settings = {"interval_s": 5.0, "timeout_s": 30.0, "margin_s": 4.0} | terms
        self.session = SharedState(Membership(MembershipTimings(**settings)), self.handover, self.clock)
        self.sink = RecordingSink()
        self.membership = HeartbeatThread(self.session, self.hub, **NAMES)
        self.keeper = self.make_keeper(self.hub, initial)
        self.round()

    def make_keeper(self, hub: MemoryLogHub, initial: Position) -> ShardManager:
        sink: Any = self.sink
        parts = (self.session, hub, sink, self.handover, self.clock)
        return ShardManager(*parts, initial=initial, interval_s=self.save_every_s, **NAMES)

    def cursor(self, position: Position) -> int:
        return decode(self.hub.get_cursor("ls", 0, position))

    def round(self) -> None:
        """One beat and one look after the shards."""
        self.clock.now += 5
        self.membership.step()
        self.keeper.step()

    def checkpoint(self, shard: int = 0) -> str:
        return next(c.cursor for c in self.hub.get_checkpoints("ls", "g", shard) if c.shard == shard)

    def held(self) -> dict[int, Phase]:
        with self.session.use() as (consumer, _):
            return {s.shard: s.phase for s in consumer.shards}

    def commit(self, begin: int, end: int) -> None:
        with self.session.use() as (consumer, _):
            consumer.committed((Range(0, begin, end),), logs={}, read_bytes={})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, groups=5)


def test_shard_without_checkpoint_begins_at_the_initial_position_and_saves_it(world: World) -> None:
    assert world.handover.positions().shards == {0: world.begin}
    assert decode(world.checkpoint()) == world.begin
    assert world.sink.acknowledged == [(0, world.begin)]


def test_initial_end_is_pinned_by_its_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path, groups=5, initial="end")
    assert decode(world.checkpoint()) == world.begin + 5
    world.hub.put_logs("ls", GROUP)
    successor = World.__new__(World)
    successor.__dict__.update(world.__dict__)
    successor.session = SharedState(
        Membership(world.session._consumer.terms), Handover(tmp_path), world.clock
    )
    successor.membership = HeartbeatThread(successor.session, world.hub, **NAMES)
    successor.keeper = successor.make_keeper(world.hub, "end")
    successor.round()
    assert world.handover.positions().shards == {0: world.begin + 5}


def test_shard_goes_on_where_the_sink_stands_and_saves_that(tmp_path: Path) -> None:
    first = World(tmp_path, groups=5)
    first.sink.ahead = 3
    with first.session.use() as (consumer, _):
        consumer.reopen(0)
    first.keeper.step()
    assert first.handover.positions().shards == {0: first.begin + 3}
    assert decode(first.checkpoint()) == first.begin + 3


def test_checkpoint_in_nobodys_name_was_moved_on_purpose_and_is_saved_anew(world: World) -> None:
    cursor = encode_cursor(world.begin + 2)
    world.hub.update_checkpoint("ls", "g", shard=0, cursor=cursor, consumer="", force=True)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.keeper.step()
    assert world.sink.moved == [False, True]
    (saved,) = world.hub.get_checkpoints("ls", "g")
    assert (saved.cursor, saved.consumer) == (cursor, NAMES["name"])


def test_expired_groups_are_passed_over_at_the_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.hub.get_cursor

    def trimmed(logstore: str, shard: int, position: Position) -> str:
        return encode_cursor(world.begin + 2) if position == "begin" else real(logstore, shard, position)

    monkeypatch.setattr(world.hub, "get_cursor", trimmed)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.keeper.step()
    assert world.handover.positions().shards == {0: world.begin + 2}
    assert decode(world.checkpoint()) == world.begin + 2


def test_checkpoint_follows_the_sink(world: World) -> None:
    world.commit(world.begin, world.begin + 4)
    assert decode(world.checkpoint()) == world.begin
    world.keeper.save_all()
    assert decode(world.checkpoint()) == world.begin + 4
    assert world.sink.acknowledged[-1] == (0, world.begin + 4)


def test_checkpoint_that_failed_is_repeated_and_a_draining_shard_waits_for_it(world: World) -> None:
    world.commit(world.begin, world.begin + 4)
    world.server.unreachable = True
    world.keeper.step()
    assert world.keeper.trouble.reason == "EndpointUnreachable"
    with world.session.use() as (consumer, _):
        consumer.set_goal(ShutdownMode.LEAVE)
    world.keeper.step()
    assert world.held() == {0: Phase.DRAINING}
    world.server.unreachable = False
    world.clock.now += 2
    world.keeper.step()
    assert world.held() == {}
    assert decode(world.checkpoint()) == world.begin + 4
    assert world.keeper.trouble.reason == ""


def test_checkpoint_of_a_shard_lost_and_taken_again_meanwhile_is_not_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(world.begin, world.begin + 2)
    with world.session.use() as (consumer, _):
        stale = consumer.unsaved()
        monkeypatch.setattr(consumer, "unsaved", lambda: stale)
        consumer.reopen(0)
    world.keeper.save_all()
    assert decode(world.checkpoint()) == world.begin


@pytest.mark.parametrize("noticed", [True, False], ids=["fenced", "not fenced yet"])
def test_shard_lost_while_its_checkpoint_is_asked_for_is_not_touched_in_the_sink(
    world: World, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    real = world.hub.get_checkpoints

    def slow(*args: Any) -> Any:
        found = real(*args)
        world.clock.now += 31
        if noticed:
            with world.session.use() as (consumer, now):
                assert consumer.poll(now) is not None
                assert consumer.standing is MemberState.FENCED
        return found

    monkeypatch.setattr(world.hub, "get_checkpoints", slow)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.sink.resumed = 0
    world.keeper.step()
    assert world.sink.resumed == 0
    assert world.held() == {}
    assert world.keeper.trouble.reason == ""


def test_shard_lost_while_the_sink_is_asked_is_not_saved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken again at once, so the service would take the old position as the holder's."""
    world.sink.ahead = 2

    def slow(shard: Incarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False) -> int:
        position = real(shard, checkpoint, confirm=confirm, moved=moved)
        with world.session.use() as (consumer, _):
            consumer.opened(0, epoch=consumer.shards[0].epoch, position=position, saved=position)
            consumer.reopen(0)
        return position

    real = world.sink.resume
    monkeypatch.setattr(world.sink, "resume", slow)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.keeper.step()
    assert decode(world.checkpoint()) == world.begin


def test_sink_that_cannot_be_used_is_a_reason_and_heals(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.sink.resume

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.sink, "resume", full)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.keeper.step()
    assert world.keeper.trouble.reason == "SinkUnavailable"
    assert world.held() == {0: Phase.OPENING}
    monkeypatch.setattr(world.sink, "resume", real)
    world.clock.now += 2
    world.keeper.step()
    assert world.keeper.trouble.reason == ""
    assert world.held() == {0: Phase.OPEN}


def test_read_only_shard_that_moved_on_meanwhile_is_not_set_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is committed and saved while the survey asks which shards are read-only."""
    end = world.begin + 3
    world.commit(world.begin, end)
    world.keeper.step()
    world.hub.split_shard("ls", 0)
    world.handover.write_report(Report(version=0, ends={0: end}))
    real = world.hub.list_shards

    def slow(logstore: str) -> Any:
        if decode(world.checkpoint()) == end:
            world.commit(end, end + 1)
            world.keeper.save_all()
        return real(logstore)

    monkeypatch.setattr(world.hub, "list_shards", slow)
    world.clock.now += SURVEY_S
    world.keeper.step()
    assert decode(world.checkpoint()) == end + 1


def test_checkpoint_refused_by_the_service_gives_the_shard_up(world: World) -> None:
    world.clock.now += 31  # the service has timed this consumer out; another one takes the shard
    assert world.hub.heartbeat("ls", "g", consumer="other", held=()) == (0,)
    with world.session.use() as (consumer, _):
        consumer.last_good_s = world.clock.now  # even if it does not know
        consumer.committed((Range(0, world.begin, world.begin + 4),), logs={}, read_bytes={})
    world.keeper.save_all()
    assert world.held() == {}
    assert decode(world.checkpoint()) == world.begin
    world.keeper.step()
    assert world.keeper.trouble.reason == "", "it went with the shard"


def test_report_of_the_source_ends_the_drain(world: World) -> None:
    with world.session.use() as (consumer, _):
        consumer.source_started()
        consumer.set_goal(ShutdownMode.STOP)
        version = consumer.version
    world.keeper.step()
    assert world.held() == {0: Phase.DRAINING}
    world.handover.write_report(Report(version=version, ends={}))
    world.keeper.step()
    assert world.held() == {0: Phase.DRAINED}


def test_read_only_shard_saved_at_its_end_before_the_split_is_told_to_be_over(world: World) -> None:
    end = world.begin + 5
    world.commit(world.begin, end)
    world.keeper.step()
    world.hub.split_shard("ls", 0)
    world.handover.write_report(Report(version=0, ends={0: end}))
    world.clock.now += SURVEY_S
    world.keeper.step()
    states = {s.shard: s.state for s in world.hub.group_status("ls", "g").shards}
    assert states[0] == "over"


def test_wrong_logstore_is_a_reason_and_heals(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.hub.delete_logstore("ls")
    world.round()
    assert world.membership.trouble.reason == "LogstoreNotFound"
    world.hub.create_logstore("ls", shards=1)
    world.hub.create_group("ls", GroupInfo(name="g", timeout_s=30, order=False))
    world.round()
    assert world.membership.trouble.reason == ""


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Callable[[], World]]:
    """A world on the real clock with beats every 20 ms; its threads end with the test."""
    made: list[World] = []

    def make() -> World:
        world = World(tmp_path, interval_s=0.02, timeout_s=5.0, margin_s=1.0)
        world.clock.monotonic_s = time.monotonic  # type: ignore[method-assign]
        world.sink.resume_waits_for = threading.Event()
        made.append(world)
        return world

    yield make
    for world in made:
        assert world.sink.resume_waits_for is not None
        world.sink.resume_waits_for.set()
        world.keeper.stop()
        world.membership.stop()


def test_a_blocked_opening_delays_no_beat(
    blocked: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = blocked()
    beats = []
    real = world.hub.heartbeat

    def counted(*args: Any, **named: Any) -> tuple[int, ...]:
        beats.append(time.monotonic())
        return real(*args, **named)

    monkeypatch.setattr(world.hub, "heartbeat", counted)
    with world.session.use() as (consumer, _):
        consumer.reopen(0)
    world.keeper.start()
    world.membership.start()
    wait_until(lambda: len(beats) >= 30, "thirty beats")
    assert world.held() == {0: Phase.OPENING}, "the opening is still blocked"
