"""The shard manager on the fake log service; the tests call each step of the threads."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import GroupInfo, Position
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch_plan import Range
from loghub_consumer.exchange_files import ExchangeFiles, Report
from loghub_consumer.membership.heartbeat import Heartbeats
from loghub_consumer.membership.membership import Membership, MemberState, ShardPhase, ShutdownMode
from loghub_consumer.membership.shard_manager import READ_ONLY_CHECK_S
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from tests.loghub_consumer.membership.one_shard_worker import GROUP, IDENTITY, OneShardWorker
from tests.support import wait_until


@pytest.fixture
def worker(tmp_path: Path) -> OneShardWorker:
    return OneShardWorker(tmp_path, groups=5)


def test_shard_without_checkpoint_begins_at_the_start_position_and_saves_it(worker: OneShardWorker) -> None:
    assert worker.exchange.positions().shards == {0: worker.begin}
    assert decode(worker.checkpoint()) == worker.begin
    assert worker.sink.acknowledged == [(0, worker.begin)]


def test_start_at_the_end_is_saved_as_a_checkpoint_for_the_next_holder(tmp_path: Path) -> None:
    worker = OneShardWorker(tmp_path, groups=5, start_position="end")
    assert decode(worker.checkpoint()) == worker.begin + 5
    worker.client.put_logs("ls", GROUP)
    successor = OneShardWorker.__new__(OneShardWorker)
    successor.__dict__.update(worker.__dict__)
    successor.shared_state = SharedState(
        Membership(worker.shared_state._membership.timings), ExchangeFiles(tmp_path), worker.clock
    )
    successor.heartbeat = Heartbeats(successor.shared_state, worker.client, IDENTITY)
    successor.shard_manager = successor.make_shard_manager(worker.client)
    successor.step()
    assert worker.exchange.positions().shards == {0: worker.begin + 5}


def test_shard_resumes_where_the_sink_ends_and_saves_that_checkpoint(tmp_path: Path) -> None:
    first = OneShardWorker(tmp_path, groups=5)
    first.sink.ahead = 3
    with first.shared_state.use() as (membership, _):
        membership.reopen(0)
    first.shard_manager.step()
    assert first.exchange.positions().shards == {0: first.begin + 3}
    assert decode(first.checkpoint()) == first.begin + 3


def test_checkpoint_without_a_consumer_was_moved_on_purpose_and_is_saved_under_the_workers_name(
    worker: OneShardWorker,
) -> None:
    cursor = encode_cursor(worker.begin + 2)
    worker.client.update_checkpoint("ls", "g", shard=0, cursor=cursor, consumer="", force=True)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()
    assert worker.sink.moved == [False, True]
    (saved,) = worker.client.get_checkpoints("ls", "g")
    assert (saved.cursor, saved.consumer) == (cursor, IDENTITY.consumer)


def test_shard_resumes_at_the_oldest_log_group_if_its_checkpoint_has_expired(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = worker.client.get_cursor

    def trimmed(logstore: str, shard: int, position: Position) -> str:
        return encode_cursor(worker.begin + 2) if position == "begin" else real(logstore, shard, position)

    monkeypatch.setattr(worker.client, "get_cursor", trimmed)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()
    assert worker.exchange.positions().shards == {0: worker.begin + 2}
    assert decode(worker.checkpoint()) == worker.begin + 2


def test_checkpoint_follows_the_sink(worker: OneShardWorker) -> None:
    worker.commit(worker.begin, worker.begin + 4)
    assert decode(worker.checkpoint()) == worker.begin
    worker.shard_manager.save_all()
    assert decode(worker.checkpoint()) == worker.begin + 4
    assert worker.sink.acknowledged[-1] == (0, worker.begin + 4)


def test_failed_checkpoint_is_retried_and_a_draining_shard_waits_for_it(worker: OneShardWorker) -> None:
    worker.commit(worker.begin, worker.begin + 4)
    worker.server.unreachable = True
    worker.shard_manager.step()
    assert worker.shard_manager.error.reason == "EndpointUnreachable"
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
    worker.shard_manager.step()
    assert worker.phases() == {0: ShardPhase.DRAINING}
    worker.server.unreachable = False
    worker.clock.now += 2
    worker.shard_manager.step()
    assert worker.phases() == {}
    assert decode(worker.checkpoint()) == worker.begin + 4
    assert worker.shard_manager.error.reason == ""


def test_checkpoint_of_a_shard_that_was_lost_and_assigned_again_is_not_sent(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.commit(worker.begin, worker.begin + 2)
    with worker.shared_state.use() as (membership, _):
        stale = membership.unsaved()
        monkeypatch.setattr(membership, "unsaved", lambda: stale)
        membership.reopen(0)
    worker.shard_manager.save_all()
    assert decode(worker.checkpoint()) == worker.begin


def test_a_shard_is_opened_in_the_sink_before_its_checkpoint_is_requested(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another worker committed is then in its claims, or in the checkpoint."""
    opened: list[int] = []
    real = worker.client.get_checkpoints
    counting = lambda *request: (opened.append(len(worker.sink.opened)), real(*request))[1]  # noqa: E731
    monkeypatch.setattr(worker.client, "get_checkpoints", counting)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()
    assert opened == [2]


@pytest.mark.parametrize("noticed", [True, False], ids=["fenced", "not fenced yet"])
def test_shard_lost_while_its_checkpoint_is_requested_is_not_resumed_in_the_sink(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    real = worker.client.get_checkpoints

    def slow(*args: Any) -> Any:
        checkpoints = real(*args)
        worker.clock.now += 31
        if noticed:
            with worker.shared_state.use() as (membership, now):
                assert membership.poll(now) is not None
                assert membership.state is MemberState.FENCED
        return checkpoints

    monkeypatch.setattr(worker.client, "get_checkpoints", slow)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.sink.resumed = 0
    worker.shard_manager.step()
    assert worker.sink.resumed == 0
    assert worker.phases() == {}
    assert worker.shard_manager.error.reason == ""


def test_shard_lost_while_the_sink_resumes_it_is_not_saved(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was assigned again immediately, so the service would accept the old position from its holder."""
    worker.sink.ahead = 2

    def slow(
        shard: ShardIncarnation, checkpoint: int, *, confirm: Callable[[], None], origin: CheckpointOrigin
    ) -> int:
        position = real(shard, checkpoint, confirm=confirm, origin=origin)
        with worker.shared_state.use() as (membership, _):
            membership.opened(0, epoch=membership.shards[0].epoch, position=position, saved=position)
            membership.reopen(0)
        return position

    real = worker.sink.resume
    monkeypatch.setattr(worker.sink, "resume", slow)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()
    assert decode(worker.checkpoint()) == worker.begin


def test_unavailable_sink_is_reported_until_it_recovers(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = worker.sink.resume

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(worker.sink, "resume", full)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()
    assert worker.shard_manager.error.reason == "SinkUnavailable"
    assert worker.phases() == {0: ShardPhase.OPENING}
    monkeypatch.setattr(worker.sink, "resume", real)
    worker.clock.now += 2
    worker.shard_manager.step()
    assert worker.shard_manager.error.reason == ""
    assert worker.phases() == {0: ShardPhase.OPEN}


def test_checkpoint_of_a_read_only_shard_is_not_moved_back(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is committed and saved while the list of read-only shards is requested."""
    end = worker.begin + 3
    worker.commit(worker.begin, end)
    worker.shard_manager.step()
    worker.client.split_shard("ls", 0)
    worker.exchange.write_report(Report(version=0, ends={0: end}))
    real = worker.client.list_shards

    def slow(logstore: str) -> Any:
        if decode(worker.checkpoint()) == end:
            worker.commit(end, end + 1)
            worker.shard_manager.save_all()
        return real(logstore)

    monkeypatch.setattr(worker.client, "list_shards", slow)
    worker.clock.now += READ_ONLY_CHECK_S
    worker.shard_manager.step()
    assert decode(worker.checkpoint()) == end + 1


def test_shard_whose_checkpoint_the_service_refuses_is_released(worker: OneShardWorker) -> None:
    worker.clock.now += 31  # the service has removed this consumer and assigns the shard to another
    assert worker.client.heartbeat("ls", "g", consumer="other", held=()) == (0,)
    with worker.shared_state.use() as (membership, _):
        membership.last_good_s = worker.clock.now  # the worker itself has not noticed
        membership.committed((Range(0, worker.begin, worker.begin + 4),), logs={}, read_bytes={})
    worker.shard_manager.save_all()
    assert worker.phases() == {}
    assert decode(worker.checkpoint()) == worker.begin
    worker.shard_manager.step()
    assert worker.shard_manager.error.reason == "", "the error is cleared with its shard"


def test_report_of_the_source_ends_the_drain(worker: OneShardWorker) -> None:
    with worker.shared_state.use() as (membership, _):
        membership.source_started()
        membership.set_shutdown_mode(ShutdownMode.STOP)
        version = membership.version
    worker.shard_manager.step()
    assert worker.phases() == {0: ShardPhase.DRAINING}
    worker.exchange.write_report(Report(version=version, ends={}))
    worker.shard_manager.step()
    assert worker.phases() == {0: ShardPhase.DRAINED}


def test_read_only_shard_whose_end_was_saved_before_the_split_becomes_over(worker: OneShardWorker) -> None:
    end = worker.begin + 5
    worker.commit(worker.begin, end)
    worker.shard_manager.step()
    worker.client.split_shard("ls", 0)
    worker.exchange.write_report(Report(version=0, ends={0: end}))
    worker.clock.now += READ_ONLY_CHECK_S
    worker.shard_manager.step()
    states = {s.shard: s.state for s in worker.client.group_status("ls", "g").shards}
    assert states[0] == "over"


def test_missing_logstore_is_reported_until_it_exists(tmp_path: Path) -> None:
    worker = OneShardWorker(tmp_path)
    worker.client.delete_logstore("ls")
    worker.step()
    assert worker.heartbeat.error.reason == "LogstoreNotFound"
    worker.client.create_logstore("ls", shards=1)
    worker.client.create_group("ls", GroupInfo(name="g", timeout_s=30, order=False))
    worker.step()  # refused: it still reports a shard of the old group
    worker.step()
    assert worker.heartbeat.error.reason == ""


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Callable[[], OneShardWorker]]:
    """A worker on the real clock with heartbeats every 20 ms; its threads end with the test."""
    workers: list[OneShardWorker] = []

    def make() -> OneShardWorker:
        worker = OneShardWorker(tmp_path, interval_s=0.02, timeout_s=5.0, margin_s=1.0)
        # It goes on from the fake clock's time: the clock of a machine that has just booted is behind it.
        ahead_s = worker.clock.now - time.monotonic()
        worker.clock.monotonic_s = lambda: time.monotonic() + ahead_s  # type: ignore[method-assign]
        worker.sink.resume_waits_for = threading.Event()
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        assert worker.sink.resume_waits_for is not None
        worker.sink.resume_waits_for.set()
        worker.shard_manager.stop()
        worker.heartbeat.stop()


@pytest.mark.long
def test_a_blocked_opening_delays_no_heartbeat(
    blocked: Callable[[], OneShardWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = blocked()
    sent = []
    real = worker.client.heartbeat

    def counted(*args: Any, **kwargs: Any) -> tuple[int, ...]:
        sent.append(time.monotonic())
        return real(*args, **kwargs)

    monkeypatch.setattr(worker.client, "heartbeat", counted)
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.start()
    worker.heartbeat.start()
    wait_until(lambda: len(sent) >= 30, "thirty heartbeats")
    assert worker.phases() == {0: ShardPhase.OPENING}, "the opening is still blocked"


def test_a_position_beyond_the_end_is_reported_and_its_lag_is_unknown(worker: OneShardWorker) -> None:
    def report(end: int, reason: str, beyond_end: dict[int, int]) -> Report:
        return Report(version=1, ends={0: end}, reason=reason, message=reason, beyond_end=beyond_end)

    worker.exchange.write_report(report(worker.begin, "", {}))
    worker.shard_manager.step()
    assert worker.shard_manager.oldest_unix_s == {0: None}, "everything is read"
    worker.exchange.write_report(report(worker.begin - 1, "PositionBeyondEnd", {0: 1}))
    worker.shard_manager.step()
    assert worker.shard_manager.oldest_unix_s == {}
    assert worker.shard_manager.source_error.reason == "PositionBeyondEnd"
    assert worker.shard_manager.beyond_end == {0: 1}
    assert worker.phases() == {0: ShardPhase.OPEN}, "the worker keeps the shard"


def test_a_shard_that_cannot_be_saved_is_retried_after_growing_pauses(worker: OneShardWorker) -> None:
    """Of 1, 2 and 4 s, and so on; a saved checkpoint starts again with 1 s."""
    attempts = count_attempts(worker)
    for begin in (worker.begin, worker.begin + 2):
        worker.commit(begin, begin + 2)
        worker.server.unreachable = True
        worker.shard_manager.save_all()
        for pause_s in (1, 2, 4):
            before = attempts()
            worker.clock.now += pause_s - 0.125  # exact in binary
            worker.shard_manager.save_all()
            assert attempts() == before
            worker.clock.now += 0.125
            worker.shard_manager.save_all()
            assert attempts() == before + 1
        worker.server.unreachable = False
        worker.clock.now += 8
        worker.step()
        assert decode(worker.checkpoint()) == begin + 2


def count_attempts(worker: OneShardWorker) -> Callable[[], int]:
    """How often a checkpoint was sent so far."""
    sent, real = [], worker.client.update_checkpoint

    def update_checkpoint(*args: Any, **kwargs: Any) -> None:
        sent.append(kwargs["cursor"])
        real(*args, **kwargs)

    worker.client.update_checkpoint = update_checkpoint  # type: ignore[method-assign]
    return lambda: len(sent)
