"""The heartbeat thread on a log service without our extensions, as the real SLS: how a worker leaves a group.

Such a service has no request for leaving. The worker drains, saves its checkpoints, sends no further
heartbeat and reports itself as left; the operator learns it from the readiness probe.
"""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from loghub.client.port import GroupInfo, LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub_consumer.batch_plan import Range
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.log_service import ConsumerIdentity, ReportedError
from loghub_consumer.membership.heartbeat import Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings, ShutdownMode
from loghub_consumer.membership.shared_membership import SharedState
from loghub_worker.metrics import answer
from loghub_worker.status import Moment, QueryProgress, ShardReadings, member_of, status_of
from tests.fakes.fake_log_service import MemoryServer
from tests.support import HandClock

TIMEOUT_S = 30
READY, UNREADY = 200, 503


class Sls:
    """A log service as the real SLS: the calls of the protocol, and no others."""

    def __init__(self, client: LogHub) -> None:
        self._client = client
        self.heartbeats: list[tuple[int, ...]] = []

    def has_extensions(self) -> bool:
        return False

    def leave(self, *_: object, **__: object) -> None:
        raise AssertionError("the real SLS has no such call")

    group_status = leave

    def heartbeat(self, logstore: str, group: str, *, consumer: str, held: tuple[int, ...]) -> Any:
        self.heartbeats.append(held)
        return self._client.heartbeat(logstore, group, consumer=consumer, held=held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class SteppedWorker:
    """One worker's membership, stepped by the test, and its answers to the kubelet's probes."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock(1000.0)
        self.client = MemoryServer(self.clock).client("demo")
        self.client.create_project()
        self.client.create_logstore("access", shards=2)
        self.client.create_group("access", GroupInfo(name="readers", timeout_s=TIMEOUT_S, order=False))
        self.sls = Sls(self.client)
        timings = MembershipTimings(interval_s=5, timeout_s=TIMEOUT_S, margin_s=4)
        self.shared_state = SharedState(Membership(timings), ExchangeFiles(folder), self.clock)
        client: Any = self.sls
        identity = ConsumerIdentity(logstore="access", group="readers", consumer="readers-1")
        self.heartbeat = Heartbeats(self.shared_state, client, identity)

    def step(self, later_s: float = 5.0) -> None:
        self.clock.now += later_s
        with self.shared_state.use() as (membership, now):
            assert membership.wake_in_s(now) == 0, "a request is due"
        self.heartbeat.step()

    def work_on_both_shards(self) -> None:
        """Open both shards and commit a batch whose checkpoints are not saved."""
        self.step()
        with self.shared_state.use() as (membership, _):
            membership.source_started()
            for held in membership.shards:
                begin = decode_cursor(self.client.get_cursor("access", held.shard, "begin"))
                membership.opened(held.shard, epoch=held.epoch, position=begin, saved=begin)
                delivered = (Range(held.shard, begin, begin + 1),)
                membership.committed(delivered, logs={held.shard: 1}, read_bytes={})
        self.step()
        assert self.sls.heartbeats == [(), (0, 1)]

    def save(self) -> None:
        """Save both checkpoints, as the shard manager does."""
        for shard in (0, 1):
            with self.shared_state.use() as (membership, _):
                held = next(held for held in membership.shards if held.shard == shard)
                assert held.position is not None
                membership.saved(shard, epoch=held.epoch, cursor=held.position)

    def probe(self, path: str) -> int:
        with self.shared_state.use() as (membership, now):
            moment = Moment(monotonic_s=now, unix_s=now)
            status = status_of(
                member_of(membership),
                name="w",
                now=moment,
                error=ReportedError(),
                query=QueryProgress(batch_hung_after_s=630),
                readings=ShardReadings(),
            )
        return answer(path, CollectorRegistry(), status, now_unix_s=status.written_at)[0]


@pytest.fixture
def worker(tmp_path: Path) -> SteppedWorker:
    return SteppedWorker(tmp_path)


def test_a_leaving_worker_sends_heartbeats_and_is_ready_until_its_checkpoints_are_saved(
    worker: SteppedWorker,
) -> None:
    worker.work_on_both_shards()
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
        membership.source_saw(membership.version)
    worker.step(0.0)
    worker.step()
    assert worker.sls.heartbeats[-2:] == [(0, 1), (0, 1)], "what is not saved is still held"
    assert worker.probe("/readyz") == READY
    worker.save()
    assert worker.probe("/readyz") == READY, "it has not left yet"


def test_a_worker_that_has_left_is_not_ready_and_sends_no_heartbeat(worker: SteppedWorker) -> None:
    worker.work_on_both_shards()
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
        membership.source_saw(membership.version)
    worker.save()
    worker.step(0.0)
    assert (worker.probe("/readyz"), worker.probe("/healthz")) == (UNREADY, READY)
    heartbeats = list(worker.sls.heartbeats)
    worker.clock.now += TIMEOUT_S
    with worker.shared_state.use() as (membership, now):
        assert membership.poll(now) is None
    assert worker.sls.heartbeats == heartbeats
    # The service was not informed; it removes the consumer a timeout after its last heartbeat.
    assigned = worker.client.heartbeat("access", "readers", consumer="readers-0", held=())
    assert set(assigned) == {0, 1}


def test_a_fenced_worker_leaves_immediately(worker: SteppedWorker) -> None:
    worker.work_on_both_shards()
    worker.clock.now += TIMEOUT_S
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
    heartbeats = list(worker.sls.heartbeats)
    worker.step(0.0)
    assert worker.probe("/readyz") == UNREADY
    assert worker.sls.heartbeats == heartbeats
