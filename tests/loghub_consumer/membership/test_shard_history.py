"""What the state of a pipeline learns of a shard that is opened."""

from pathlib import Path

import pytest

from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.resumption import ShardIncarnation
from tests.loghub_consumer.membership.one_shard_worker import IDENTITY, OneShardWorker


class History:
    """A state that has `ahead` log groups more than the position says."""

    def __init__(self) -> None:
        self.ahead = 0
        self.opened: list[tuple[int, bool, bool]] = []

    def continue_at(
        self,
        incarnation: ShardIncarnation,
        position: int,
        *,
        is_first: bool,
        moved: bool,
    ) -> int:
        self.opened.append((position, is_first, moved))
        return position + self.ahead


def opened(worker: OneShardWorker) -> History:
    """Open the shard again with a state."""
    history = History()
    worker.shard_manager.opening._history = history
    open_again(worker)
    return history


def open_again(worker: OneShardWorker) -> None:
    with worker.shared_state.use() as (membership, _):
        membership.reopen(0)
    worker.shard_manager.step()


def test_a_shard_of_which_nobody_has_read_a_log_is_new_although_it_has_a_checkpoint(tmp_path: Path) -> None:
    """Another worker may have held it for a moment."""
    worker = OneShardWorker(tmp_path, groups=5)
    assert decode(worker.checkpoint()) == worker.begin
    history = opened(worker)
    assert history.opened == [(worker.begin, True, False)]
    worker.sink.ahead = 2
    open_again(worker)
    assert history.opened[1] == (worker.begin + 2, False, False)


def test_a_shard_made_by_a_split_is_not_new(tmp_path: Path) -> None:
    worker = OneShardWorker(tmp_path, groups=5, last_initial_shard=-1)
    assert opened(worker).opened == [(worker.begin, False, False)]


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_checkpoint_that_was_moved_is_not_new(tmp_path: Path, ahead: int) -> None:
    worker = OneShardWorker(tmp_path, groups=5)
    cursor = encode_cursor(worker.begin + ahead)
    worker.client.update_checkpoint("ls", "g", shard=0, cursor=cursor, consumer="", force=True)
    assert opened(worker).opened == [(worker.begin + ahead, False, True)]


def test_a_shard_continues_where_the_state_ends_and_that_is_saved(tmp_path: Path) -> None:
    worker = OneShardWorker(tmp_path, groups=5)
    history = opened(worker)
    history.ahead = 3
    open_again(worker)
    assert worker.exchange.positions().shards == {0: worker.begin + 3}
    (saved,) = worker.client.get_checkpoints("ls", "g")
    assert (decode(saved.cursor), saved.consumer) == (worker.begin + 3, IDENTITY.consumer)
