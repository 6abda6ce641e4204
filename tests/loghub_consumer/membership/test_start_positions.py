"""Where shards begin that the group has no checkpoint of: at the start position, or at their first log."""

from pathlib import Path

import pytest

from loghub.client.port import GroupInfo, Position
from tests.loghub_consumer.membership.one_shard_worker import OneShardWorker

LONG_AGO, IN_AN_HOUR = 1, 1_700_010_000
POSITIONS: tuple[Position, ...] = ("begin", "end", LONG_AGO, IN_AN_HOUR)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("start_position", POSITIONS)
def test_children_of_a_split_and_of_a_merge_begin_at_their_own_first_log(
    tmp_path: Path, start_position: Position, order: bool
) -> None:
    worker = OneShardWorker(tmp_path, groups=3, start_position=start_position, last_initial_shard=0)
    worker.client.update_group("ls", GroupInfo(name="g", timeout_s=30, order=order))
    worker.client.split_shard("ls", 0)
    worker.put(20)
    worker.read_all()
    worker.client.merge_shards("ls", 1)
    worker.put(20)
    worker.read_all()
    firsts = {number: worker.cursor("begin", number) for number in (1, 2, 3)}
    assert {number: worker.opened_at[number] for number in firsts} == firsts


def test_without_a_checkpoint_only_initial_shards_begin_at_the_start_position(tmp_path: Path) -> None:
    worker = OneShardWorker(tmp_path, groups=3, start_position="end", last_initial_shard=0)
    assert worker.opened_at == {0: worker.cursor("end")} != {0: worker.begin}


def test_what_existed_when_its_parent_began_at_the_start_position_begins_there_too(tmp_path: Path) -> None:
    """Whenever it is assigned: in an ordered group that is when its parent was read."""
    worker = OneShardWorker(tmp_path, groups=3, start_position="end", is_started=False)
    worker.client.update_group("ls", GroupInfo(name="g", timeout_s=30, order=True))
    worker.client.split_shard("ls", 0)
    worker.put(4)
    worker.step()
    assert worker.opened_at == {0: worker.cursor("end")}
    ends = {number: worker.cursor("end", number) for number in (1, 2)}
    worker.put(5)
    worker.read_all()
    assert {number: worker.opened_at[number] for number in ends} == ends
