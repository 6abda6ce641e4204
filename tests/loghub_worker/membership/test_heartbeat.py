"""The thread that beats, against a log service without our extensions: how a worker leaves there.

Nobody can be told that it goes. It drains, saves, beats no more, and says of itself that it left;
its readiness is what the operator hears.
"""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from loghub.client.port import GroupInfo, LogHub
from loghub_worker.batch_plan import Range
from loghub_worker.exchange_files import Handover
from loghub_worker.log_service import ServiceError, decode_cursor
from loghub_worker.membership.heartbeat import HeartbeatThread
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Membership, MembershipTimings, ShutdownMode
from loghub_worker.metrics import answer
from loghub_worker.status import status_of
from tests.fakes.fake_log_service import MemoryServer
from tests.support import HandClock

TIMEOUT_S = 30
READY, UNREADY = 200, 503


class Sls:
    """As the real one: the calls of the protocol, and no others."""

    def __init__(self, hub: LogHub) -> None:
        self._hub = hub
        self.beats: list[tuple[int, ...]] = []

    def has_extensions(self) -> bool:
        return False

    def leave(self, *_: object, **__: object) -> None:
        raise AssertionError("the real SLS has no such call")

    group_status = leave

    def heartbeat(self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]) -> Any:
        self.beats.append(held)
        return self._hub.heartbeat(logstore, group, consumer=consumer, held=held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)


class Stand:
    """One worker's membership, stepped by hand, and the probes that the kubelet would see."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock(1000.0)
        self.hub = MemoryServer(self.clock).client("demo")
        self.hub.create_project()
        self.hub.create_logstore("access", shards=2)
        self.hub.create_group("access", GroupInfo(name="readers", timeout_s=TIMEOUT_S, order=False))
        self.sls = Sls(self.hub)
        terms = MembershipTimings(interval_s=5, timeout_s=TIMEOUT_S, margin_s=4)
        self.session = SharedState(Membership(terms), Handover(folder), self.clock)
        asked: Any = self.sls
        self.membership = HeartbeatThread(
            self.session, asked, logstore="access", group="readers", name="readers-1"
        )

    def step(self, later_s: float = 5.0) -> None:
        self.clock.now += later_s
        with self.session.use() as (consumer, now):
            assert consumer.wake_in_s(now) == 0, "a request is due"
        self.membership.step()

    def works_on_all(self) -> None:
        """It holds both shards and has delivered something that is not saved."""
        self.step()
        with self.session.use() as (consumer, _):
            consumer.source_started()
            for held in consumer.shards:
                begin = decode_cursor(self.hub.get_cursor("access", held.shard, "begin"))
                consumer.opened(held.shard, epoch=held.epoch, position=begin, saved=begin)
                delivered = (Range(held.shard, begin, begin + 1),)
                consumer.committed(delivered, logs={held.shard: 1}, read_bytes={})
        self.step()
        assert self.sls.beats == [(), (0, 1)]

    def save(self) -> None:
        """As the keeper does."""
        for shard in (0, 1):
            with self.session.use() as (consumer, _):
                held = next(one for one in consumer.shards if one.shard == shard)
                assert held.position is not None
                consumer.saved(shard, epoch=held.epoch, cursor=held.position)

    def probe(self, path: str) -> int:
        with self.session.use() as (consumer, now):
            told = status_of(
                consumer, name="w", now=now, unix_s=now, trouble=ServiceError(), rows=0, oldest_unix_s={}
            )
        return answer(path, CollectorRegistry(), told, now_unix_s=told.written_at)[0]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_told_to_leave_it_beats_and_is_ready_until_all_is_saved(stand: Stand) -> None:
    stand.works_on_all()
    with stand.session.use() as (consumer, _):
        consumer.set_goal(ShutdownMode.LEAVE)
        consumer.source_saw(consumer.version)
    stand.step(0.0)
    stand.step()
    assert stand.sls.beats[-2:] == [(0, 1), (0, 1)], "what is not saved is still held"
    assert stand.probe("/readyz") == READY
    stand.save()
    assert stand.probe("/readyz") == READY, "it has not left yet"


def test_what_it_holds_no_more_it_says_by_being_unready_and_beats_no_more(stand: Stand) -> None:
    stand.works_on_all()
    with stand.session.use() as (consumer, _):
        consumer.set_goal(ShutdownMode.LEAVE)
        consumer.source_saw(consumer.version)
    stand.save()
    stand.step(0.0)
    assert (stand.probe("/readyz"), stand.probe("/healthz")) == (UNREADY, READY)
    beats = list(stand.sls.beats)
    stand.clock.now += TIMEOUT_S
    with stand.session.use() as (consumer, now):
        assert consumer.poll(now) is None
    assert stand.sls.beats == beats
    # Nobody was told; the service finds out by its timeout, which runs since the last beat.
    named = stand.hub.heartbeat("access", "readers", consumer="readers-0", held=())
    assert set(named) == {0, 1}


def test_a_fenced_worker_that_is_told_to_leave_has_nothing_to_wait_for(stand: Stand) -> None:
    stand.works_on_all()
    stand.clock.now += TIMEOUT_S
    with stand.session.use() as (consumer, _):
        consumer.set_goal(ShutdownMode.LEAVE)
    beats = list(stand.sls.beats)
    stand.step(0.0)
    assert stand.probe("/readyz") == UNREADY
    assert stand.sls.beats == beats
