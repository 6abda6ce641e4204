"""Checkpoints of several shards go in one request where the service takes them, by the same rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loghub.wire.cursor import decode
from loghub.wire.errors import Code, ExtensionMissing, LogHubError, LogHubException
from loghub_consumer.batch_plan import Range
from loghub_consumer.membership.membership import ShardPhase
from tests.loghub_consumer.membership.one_shard_worker import OneShardWorker

SHARDS = 3


class Requests:
    """The requests for checkpoints of a worker: the shards of each."""

    def __init__(self, worker: OneShardWorker) -> None:
        self.together: list[list[int]] = []
        self.alone: list[int] = []
        self.error: LogHubException | None = None
        client: Any = worker.client
        self._save, self._update = client.save_checkpoints, client.update_checkpoint
        client.save_checkpoints, client.update_checkpoint = self.save, self.update

    def save(self, logstore: str, group: str, cursors: Mapping[int, str], *, consumer: str) -> Any:
        self.together.append(sorted(cursors))
        if self.error is not None:
            raise self.error
        return self._save(logstore, group, cursors, consumer=consumer)

    def update(self, *arguments: Any, shard: int, **options: Any) -> Any:
        self.alone.append(shard)
        return self._update(*arguments, shard=shard, **options)


def prepared(folder: Path, *, polls: bool = True) -> tuple[OneShardWorker, Requests]:
    """All shards are open, and have two log groups."""
    worker = OneShardWorker(folder, shards=SHARDS)
    worker.server.polls = polls
    worker.put(2)
    for _ in range(4):
        worker.step()
    assert set(worker.phases().values()) == {ShardPhase.OPEN}
    return worker, Requests(worker)


def commit_all(worker: OneShardWorker) -> None:
    with worker.shared_state.use() as (membership, _):
        ranges = [Range(s.shard, s.position, s.position + 1) for s in membership.shards if s.position]
        membership.committed(tuple(ranges), logs={}, read_bytes={})


def unsaved(worker: OneShardWorker) -> list[int]:
    with worker.shared_state.use() as (membership, _):
        return [held.shard for held in membership.unsaved()]


def test_one_request_saves_what_a_batch_has_moved(tmp_path: Path) -> None:
    worker, requests = prepared(tmp_path)
    commit_all(worker)
    worker.shard_manager.save_all()
    assert (requests.together, requests.alone, unsaved(worker)) == ([[0, 1, 2]], [], [])
    assert {decode(worker.checkpoint(shard)) for shard in range(SHARDS)} == {worker.begin + 1}


def test_without_the_call_each_shard_has_a_request(tmp_path: Path) -> None:
    worker, requests = prepared(tmp_path, polls=False)
    commit_all(worker)
    worker.shard_manager.save_all()
    assert (requests.together, sorted(requests.alone), unsaved(worker)) == ([], [0, 1, 2], [])


def test_a_shard_that_others_have_is_given_up_and_the_others_are_saved(tmp_path: Path) -> None:
    worker, requests = prepared(tmp_path)
    other = worker.client.heartbeat("ls", "g", consumer="other", held=())
    worker.client.heartbeat("ls", "g", consumer="c", held=())  # which has given up all of them
    (lost,) = worker.client.heartbeat("ls", "g", consumer="other", held=other)
    commit_all(worker)
    worker.shard_manager.save_all()
    assert requests.together == [[0, 1, 2]]
    assert lost not in unsaved(worker)
    assert worker.phases().get(lost) is not ShardPhase.OPEN
    kept = [shard for shard in range(SHARDS) if shard != lost]
    assert {decode(worker.checkpoint(shard)) for shard in kept} == {worker.begin + 1}


@pytest.mark.parametrize(
    "error", [ExtensionMissing("an older service"), LogHubError.of(Code.INVALID_METHOD, "no such path")]
)
def test_if_an_older_service_has_taken_its_place_the_checkpoints_are_saved_one_by_one(
    tmp_path: Path, error: LogHubException
) -> None:
    worker, requests = prepared(tmp_path)
    requests.error, worker.server.polls = error, False
    commit_all(worker)
    worker.shard_manager.save_all()
    assert unsaved(worker) == [0, 1, 2]
    worker.step()
    assert (len(requests.together), sorted(requests.alone), unsaved(worker)) == (1, [0, 1, 2], [])


def test_a_failed_request_is_retried_after_a_pause(tmp_path: Path) -> None:
    worker, requests = prepared(tmp_path)
    worker.server.unreachable = True
    commit_all(worker)
    worker.shard_manager.save_all()
    worker.shard_manager.step()
    assert len(requests.together) == 1
    worker.server.unreachable = False
    worker.step()
    assert (requests.together, unsaved(worker)) == ([[0, 1, 2]] * 2, [])
