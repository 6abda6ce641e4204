"""Shards are opened and saved by several threads: none holds up another, and none is changed after it was
given up."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub.wire.cursor import decode
from loghub.wire.errors import Code, LogHubError
from loghub_consumer.batch_plan import Range
from loghub_consumer.membership.membership import ShardPhase, ShutdownMode
from loghub_consumer.membership.shard_manager import ParallelTasks
from loghub_consumer.resumption import ShardIncarnation
from tests.loghub_consumer.membership.one_shard_worker import GROUP, OneShardWorker
from tests.support import wait_until

SHARDS, SLOW = 4, 2
Request = Callable[..., Any]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[OneShardWorker]:
    """It has opened all shards."""
    one = OneShardWorker(tmp_path, shards=SHARDS, tasks=ParallelTasks())
    for info in one.client.list_shards("ls"):
        for _ in range(5):
            one.client.put_logs("ls", GROUP, hash_key=info.begin_key)
    until(one, lambda: set(one.phases().values()) == {ShardPhase.OPEN} and len(one.phases()) == SHARDS)
    yield one
    one.tasks.stop(60)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def until(worker: OneShardWorker, condition: Callable[[], bool]) -> None:
    """Step the manager until that is so."""

    def step() -> bool:
        worker.shard_manager.step()
        return condition()

    wait_until(step, "the shard manager")


def reopen_all(worker: OneShardWorker) -> None:
    with worker.shared_state.use() as (membership, _):
        for shard in range(SHARDS):
            membership.reopen(shard)


def commit_all(worker: OneShardWorker, groups: int) -> None:
    """A batch of each shard that is open."""
    with worker.shared_state.use() as (membership, _):
        for held in membership.shards:
            if held.position is None:
                continue
            part = Range(held.shard, held.position, held.position + groups)
            membership.committed((part,), logs={}, read_bytes={})


def hold(real: Request, gate: threading.Event, begun: threading.Event, *, shard: int) -> Request:
    """The request about this shard waits at the gate."""

    def request(*args: Any, **kwargs: Any) -> Any:
        if shard in (*args, kwargs.get("shard")):
            begun.set()
            gate.wait(60)
        return real(*args, **kwargs)

    return request


def opened_but(worker: OneShardWorker, shard: int) -> Callable[[], bool]:
    wanted = {n: ShardPhase.OPENING if n == shard else ShardPhase.OPEN for n in range(SHARDS)}
    return lambda: worker.phases() == wanted


def test_a_slow_opening_holds_up_no_other_shard(
    worker: OneShardWorker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    held = hold(worker.client.get_checkpoints, gate, begun, shard=SLOW)
    monkeypatch.setattr(worker.client, "get_checkpoints", held)
    reopen_all(worker)
    until(worker, opened_but(worker, SLOW))
    commit_all(worker, 1)
    until(worker, lambda: not worker.shared_state._membership.unsaved())
    for shard in set(range(SHARDS)) - {SLOW}:
        assert decode(worker.checkpoint(shard)) == worker.cursor("begin", shard) + 1
    gate.set()
    until(worker, lambda: worker.phases()[SLOW] is ShardPhase.OPEN)


def test_an_opening_that_was_decided_before_an_earlier_one_ended_changes_nothing(
    worker: OneShardWorker,
) -> None:
    """The manager's thread decides by what it has just seen, and the earlier task of the shard ends then."""
    with worker.shared_state.use() as (membership, _):
        membership.reopen(SLOW)
        seen = next(one for one in membership.shards if one.shard == SLOW)
    until(worker, opened_but(worker, -1))
    worker.shard_manager._open(seen)
    assert worker.phases()[SLOW] is ShardPhase.OPEN
    assert worker.shard_manager.error.reason == ""
    commit_all(worker, 1)
    until(worker, lambda: not worker.shared_state._membership.unsaved())


def test_a_failing_opening_keeps_its_error_while_others_succeed(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = worker.client.get_checkpoints, []

    def get_checkpoints(logstore: str, group: str, shard: int) -> Any:
        if shard == SLOW:
            failed.append(shard)
            raise LogHubError(Code.INTERNAL_SERVER_ERROR, 500, "not now")
        return real(logstore, group, shard)

    monkeypatch.setattr(worker.client, "get_checkpoints", get_checkpoints)
    reopen_all(worker)
    until(worker, opened_but(worker, SLOW))
    until(worker, lambda: worker.shard_manager.error.message == "not now")
    assert failed == [SLOW], "the next attempt waits for the clock, which the test has not moved"
    monkeypatch.setattr(worker.client, "get_checkpoints", real)
    worker.clock.now += 1
    until(worker, lambda: worker.phases()[SLOW] is ShardPhase.OPEN)
    assert worker.shard_manager.error.reason == ""


def test_a_shard_given_up_while_it_is_opened_is_neither_resumed_nor_saved_and_its_next_opening_need_not_wait(
    worker: OneShardWorker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a heartbeat takes the shard away and another one brings it back, while the opening for
    the first assignment still waits for the log service."""
    real, begun = worker.client.get_checkpoints, threading.Event()
    monkeypatch.setattr(worker.client, "get_checkpoints", hold(real, gate, begun, shard=SLOW))
    reopen_all(worker)
    until(worker, lambda: begun.is_set() and opened_but(worker, SLOW)())
    resumed, saved = worker.sink.resumed, count_saves(worker, SLOW)
    with worker.shared_state.use() as (membership, _):
        first = next(one for one in membership.shards if one.shard == SLOW)
        membership._apply_assignment(tuple(n for n in range(SHARDS) if n != SLOW))
        membership._apply_assignment(tuple(range(SHARDS)))
        second = next(one for one in membership.shards if one.shard == SLOW)
        assert second.epoch != first.epoch
    monkeypatch.setattr(worker.client, "get_checkpoints", real)
    for _ in range(3):
        worker.shard_manager.step()
    assert worker.phases()[SLOW] is ShardPhase.OPENING, "the second opening waits for the first one"
    assert saved() == 0
    gate.set()
    until(worker, lambda: worker.phases()[SLOW] is ShardPhase.OPEN)
    assert worker.sink.resumed - resumed == 1, "for the second assignment"
    assert worker.shard_manager.error.reason == ""


def count_saves(worker: OneShardWorker, shard: int) -> Callable[[], int]:
    sent, real = [], worker.client.update_checkpoint

    def update_checkpoint(*args: Any, **kwargs: Any) -> None:
        if kwargs["shard"] == shard:
            sent.append(kwargs["cursor"])
        real(*args, **kwargs)

    worker.client.update_checkpoint = update_checkpoint  # type: ignore[method-assign]
    return lambda: len(sent)


def test_an_opening_that_waited_until_its_shard_was_given_up_does_not_open_it_in_the_sink(
    worker: OneShardWorker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the next holder from delivering."""
    real, begun = worker.client.list_shards, threading.Event()

    def list_shards(logstore: str) -> Any:
        begun.set()
        gate.wait(60)
        return real(logstore)

    monkeypatch.setattr(worker.client, "list_shards", list_shards)
    opened = len(worker.sink.opened)
    reopen_all(worker)
    until(worker, begun.is_set)
    with worker.shared_state.use() as (membership, _):
        membership.abandon()
    gate.set()
    worker.tasks.stop(60)
    assert len(worker.sink.opened) == opened


def test_a_drain_saves_all_shards_at_the_same_time(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request waits until all of them are under way."""
    together, real = threading.Barrier(SHARDS), worker.client.update_checkpoint

    def update_checkpoint(*args: Any, **kwargs: Any) -> None:
        together.wait(60)
        real(*args, **kwargs)

    monkeypatch.setattr(worker.client, "update_checkpoint", update_checkpoint)
    commit_all(worker, 3)
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
    until(worker, lambda: worker.phases() == {})
    for shard in range(SHARDS):
        assert decode(worker.checkpoint(shard)) == worker.cursor("begin", shard) + 3


def test_a_sink_opens_and_resumes_several_shards_at_the_same_time(
    worker: OneShardWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, real = threading.Barrier(SHARDS), worker.sink.open_shard

    def open_shard(shard: ShardIncarnation) -> None:
        together.wait(60)
        real(shard)

    monkeypatch.setattr(worker.sink, "open_shard", open_shard)
    reopen_all(worker)
    until(worker, opened_but(worker, -1))


def test_the_next_batch_waits_for_the_checkpoints_of_the_last_one(
    worker: OneShardWorker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a request about an earlier position is still under way."""
    real, begun = worker.client.update_checkpoint, threading.Event()
    held = hold(real, gate, begun, shard=SLOW)
    monkeypatch.setattr(worker.client, "update_checkpoint", held)
    commit_all(worker, 1)
    until(worker, begun.is_set)
    commit_all(worker, 1)
    saving = threading.Thread(target=worker.shard_manager.save_all)
    saving.start()
    gate.set()
    saving.join(60)
    for shard in range(SHARDS):
        assert decode(worker.checkpoint(shard)) == worker.cursor("begin", shard) + 2
