"""How often checkpoints are saved: at most once an interval, immediately where another consumer waits for
one."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire.cursor import decode
from loghub_consumer.exchange_files import Report
from loghub_consumer.membership.membership import ShardPhase, ShutdownMode
from tests.loghub_consumer.membership.one_shard_worker import GROUP, OneShardWorker

INTERVAL_S = 60.0


@pytest.fixture
def worker(tmp_path: Path) -> OneShardWorker:
    return OneShardWorker(tmp_path, groups=20, checkpoint_interval_s=INTERVAL_S)


def saved(worker: OneShardWorker) -> int:
    """The number of log groups that the checkpoint covers."""
    return decode(worker.checkpoint()) - worker.begin


def saved_at_s(worker: OneShardWorker) -> float:
    """When the checkpoint was saved last."""
    saved_s = worker.shard_manager._attempts[0].saved_s
    assert saved_s is not None
    return saved_s


def advance(worker: OneShardWorker, groups: int) -> None:
    """Commit a batch of this many log groups."""
    with worker.shared_state.use() as (membership, _):
        (held,) = membership.shards
    assert held.position is not None
    worker.commit(held.position, held.position + groups)
    worker.shard_manager.save_all()


def wait(worker: OneShardWorker, steps: int) -> None:
    """Five seconds a step, with a heartbeat and a step of the shard manager in each."""
    for _ in range(steps):
        worker.step()


def test_a_checkpoint_is_saved_once_an_interval_with_or_without_a_new_batch(worker: OneShardWorker) -> None:
    advance(worker, 2)
    assert saved(worker) == 0
    wait(worker, 11)
    advance(worker, 2)
    assert saved(worker) == 0
    wait(worker, 1)
    assert saved(worker) == 4
    advance(worker, 2)
    assert saved(worker) == 4


@pytest.mark.parametrize("mode", [ShutdownMode.STOP, ShutdownMode.LEAVE])
def test_a_worker_that_stops_saves_immediately(worker: OneShardWorker, mode: ShutdownMode) -> None:
    advance(worker, 3)
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(mode)
    worker.shard_manager.step()
    assert saved(worker) == 3


def test_a_revoked_shard_is_saved_immediately(worker: OneShardWorker) -> None:
    advance(worker, 3)
    other = worker.client.heartbeat("ls", "g", consumer="d", held=())
    assert other == (), "the shard moves only once its holder releases it"
    with worker.shared_state.use() as (membership, _):
        membership.refused(0, epoch=99)  # another assignment: nothing happens
        (held,) = membership.shards
        membership._revoke(held)
    assert worker.phases() == {0: ShardPhase.DRAINING}
    worker.shard_manager.step()
    assert saved(worker) == 3


def test_the_end_of_a_read_only_shard_is_saved_immediately(worker: OneShardWorker) -> None:
    advance(worker, 19)
    worker.client.split_shard("ls", 0)
    worker.exchange.write_report(Report(version=0, ends={0: worker.begin + 20}))
    worker.clock.now += 11
    worker.shard_manager.step()
    assert saved(worker) == 0, "its end is not reached"
    advance(worker, 1)
    assert saved(worker) == 20


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, 18)),
        st.tuples(st.just("outage"), st.integers(1, 4)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=60)
def test_checkpoints_never_pass_the_sink_and_keep_the_interval(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        worker = OneShardWorker(Path(folder), groups=1, checkpoint_interval_s=INTERVAL_S, timeout_s=30.0)
        in_sink, before, saved_s = 0, 0, saved_at_s(worker)
        for action, amount in steps:
            if action == "commit":
                for _ in range(amount):
                    worker.client.put_logs("ls", GROUP)
                in_sink += amount
                advance(worker, amount)
            elif action == "wait":
                wait(worker, amount)
            elif action == "outage":
                worker.server.unreachable = True
                wait(worker, amount)
                worker.server.unreachable = False
                wait(worker, 1)  # two outages without a heartbeat between them would lose the shard
            now_saved = saved(worker)
            assert before <= now_saved <= in_sink
            if now_saved != before:
                assert saved_at_s(worker) - saved_s >= INTERVAL_S
                before, saved_s = now_saved, saved_at_s(worker)
