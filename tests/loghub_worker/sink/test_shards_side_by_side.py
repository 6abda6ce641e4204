"""Shards are opened and acknowledged by several threads at the same time: what one batch of a killed worker
left in all of them is settled once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from tests.loghub_worker.sink.commit_log_child import BEGIN, END, LineWorker
from tests.loghub_worker.sink.delta_tables import rows, table_sink

SHARDS = tuple(ShardIncarnation(shard=shard, created=1) for shard in range(8))
GUARD_S = 120.0


class Killed(BaseException):
    """Nothing may handle it."""


def at_the_same_time(do: Callable[[ShardIncarnation], object]) -> list[object]:
    """What that returns for each shard."""
    together = Barrier(len(SHARDS))

    def run(shard: ShardIncarnation) -> object:
        together.wait(GUARD_S)
        return do(shard)

    with ThreadPoolExecutor(len(SHARDS)) as pool:
        return list(pool.map(run, SHARDS))


@pytest.mark.parametrize(
    ("last_step", "position"),
    [("all ranges claimed", BEGIN), ("decided", END), ("file moved", END)],
)
def test_a_batch_that_a_killed_worker_left_is_settled_once(site: Path, last_step: str, position: int) -> None:
    def at_step(step: str) -> None:
        if step == last_step:
            raise Killed

    killed = LineWorker(site, "first", at_step=at_step).commit_log
    for shard in SHARDS:
        killed.open_shard(shard)
    for number in range(2):
        stage = killed.stage("first-1-a")
        stage.mkdir(parents=True, exist_ok=True)
        (stage / f"part-{number}.json").write_text(f'{{"n": {number}}}\n')
    with pytest.raises(Killed):
        killed.publish(
            "first-1-a", [(one, Range(one.shard, BEGIN, END)) for one in SHARDS], may_commit=lambda: True
        )
    second = LineWorker(site, "second").commit_log

    def resume(shard: ShardIncarnation) -> int:
        second.open_shard(shard)
        return second.resume(shard, BEGIN, confirm=lambda: None)

    assert at_the_same_time(resume) == [position] * len(SHARDS)
    moved = sorted(path.read_text() for path in (site / "sink").glob("*.json"))
    assert moved == ([] if position == BEGIN else ['{"n": 0}\n', '{"n": 1}\n'])
    at_the_same_time(lambda shard: second.acknowledge(shard, END))
    left = [path.name for path in (site / "sink" / "_loghub").rglob("range-claims/*")]
    delivered = [f"{shard.shard}-1-{BEGIN}-0" for shard in SHARDS]
    assert sorted(left) == ([] if position == BEGIN else delivered), "the last claims stay"


def test_a_delta_table_moves_all_shards_back_at_the_same_time(tmp_path: Path) -> None:
    sink = table_sink(str(tmp_path / "table"), tmp_path / "scratch")

    def resume(shard: ShardIncarnation, *, origin: CheckpointOrigin = CheckpointOrigin.UNKNOWN) -> int:
        sink.open_shard(shard)
        return sink.resume(shard, BEGIN, confirm=lambda: None, origin=origin)

    assert at_the_same_time(resume) == [BEGIN] * len(SHARDS)
    for shard in SHARDS:
        batch = f"first-{shard.shard}"
        sink.write(rows(shard.shard, BEGIN, END), batch)
        sink.publish(batch, (Range(shard.shard, BEGIN, END),), lambda: True)
    assert at_the_same_time(resume) == [END] * len(SHARDS)
    assert at_the_same_time(lambda shard: resume(shard, origin=CheckpointOrigin.MOVED)) == [BEGIN] * len(
        SHARDS
    )
