"""What a batch costs does not grow with the claims that are not yet acknowledged, nor its flushes with the
shards. `bench_commit_log` measures the times."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import ParquetSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.commit_log import TOMBSTONE_S, CommitLog
from loghub_worker.sink.files.storage import FolderStorage
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.sink.commit_log_child import date_back
from tests.loghub_worker.support import SOURCE, worker_config

GROUPS = 10


class Holder:
    """A worker that holds some shards and acknowledges nothing by itself."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.commit_log = CommitLog(FolderStorage(folder, group_path=("p", "l", "g")))
        self.shards = [ShardIncarnation(shard=shard, created=1) for shard in range(shards)]
        self.position = self.batches = 0
        for shard in self.shards:
            self.commit_log.open_shard(shard)
            self.commit_log.resume(shard, 0, confirm=lambda: None)

    def publish(self) -> None:
        self.batches += 1
        batch = f"w-{self.batches}"
        self.commit_log.stage(batch).mkdir()
        end = self.position + GROUPS
        ranges = [(shard, Range(shard.shard, self.position, end)) for shard in self.shards]
        self.commit_log.publish(batch, ranges, may_commit=lambda: True)
        self.position = end


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The operations on files so far, by kind; ``listed`` counts the names that listings returned."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, size: Callable[[Any], int] = lambda _: 1, kind: str = "") -> None:
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            counts[kind or name] += size(result)
            return result

        monkeypatch.setattr(owner, name, counted)

    for name in ("link", "fsync", "stat", "unlink"):
        count(os, name)
    count(Path, "read_bytes")
    count(os, "listdir", len, "listed")
    real_scandir = os.scandir

    def scandir(path: Any = ".") -> Any:
        with real_scandir(path) as entries:
            counts["listed"] += len(list(entries))
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return counts


def cost(operations: Counter[str], step: Callable[[], object]) -> Counter[str]:
    before = operations.copy()
    step()
    return operations - before


def test_a_batch_costs_the_same_with_any_number_of_claims(tmp_path: Path, operations: Counter[str]) -> None:
    holder = Holder(tmp_path, 4)
    holder.publish()
    first = cost(operations, holder.publish)
    for _ in range(30):
        holder.publish()
    assert cost(operations, holder.publish) == first


def test_an_acknowledgement_costs_the_same_for_each_claim(tmp_path: Path, operations: Counter[str]) -> None:
    holder = Holder(tmp_path, 4)

    def acknowledge_each(batches: int) -> Counter[str]:
        begin = holder.position
        for _ in range(batches):
            holder.publish()
        return cost(
            operations,
            lambda: [
                holder.commit_log.acknowledge(shard, cursor)
                for cursor in range(begin + GROUPS, holder.position + 1, GROUPS)
                for shard in holder.shards
            ],
        )

    acknowledge_each(1)  # the last claim of each shard stays, and is removed with the next one
    one, many = acknowledge_each(1), acknowledge_each(30)
    assert many == Counter({name: 30 * times for name, times in one.items()})
    records = tmp_path / "_loghub/p/l/g"
    assert [len([*records.glob(f"{kind}/*")]) for kind in ("range-claims", "batches", "parts")] == [4, 1, 0]


def test_the_flushes_of_a_batch_do_not_depend_on_the_shards(tmp_path: Path, operations: Counter[str]) -> None:
    few, many = Holder(tmp_path / "few", 2), Holder(tmp_path / "many", 20)
    assert cost(operations, few.publish)["fsync"] == cost(operations, many.publish)["fsync"]


def test_decisions_of_batches_whose_shards_moved_are_removed_with_their_last_claim(tmp_path: Path) -> None:
    """Each worker acknowledges one of two shards, in either order."""
    for first in (0, 1):
        sink = tmp_path / str(first)
        decisions = sink / "_loghub/p/l/g/batches"
        holder = Holder(sink, 2)
        holder.publish()
        other = CommitLog(FolderStorage(sink, group_path=("p", "l", "g")))
        moved = holder.shards[1]
        other.open_shard(moved)
        assert other.resume(moved, 0, confirm=lambda: None) == GROUPS
        workers = [(holder.commit_log, holder.shards[0]), (other, moved)]
        for worker, shard in workers:
            worker.publish(f"next-{shard.shard}", [(shard, Range(shard.shard, GROUPS, 20))], may_commit=yes)
        for done, (worker, shard) in enumerate(workers[first:] + workers[:first]):
            assert (decisions / "w-1.json").exists()
            worker.acknowledge(shard, 20)
            assert (decisions / "w-1.json").exists() == (done == 0)
        assert len(list(decisions.iterdir())) == len(workers), "those of the last claims"


def yes() -> bool:
    return True


def test_claims_of_the_earlier_layout_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    config = worker_config("http://x", ParquetSink(path=str(tmp_path)))
    claims = tmp_path.joinpath("_loghub", config.project, config.logstore, config.consumer_group, "claims")
    claims.mkdir(parents=True)

    def make() -> Any:
        return make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path)

    make()  # no claims are left
    (claims / "0-1-100-0").write_text('{"batch":"b","end":110}')
    with pytest.raises(InvalidSinkError, match=r"earlier release.*suspend the group"):
        make()


def test_files_that_never_got_their_name_are_removed_when_they_are_old(tmp_path: Path) -> None:
    commit_log = CommitLog(FolderStorage(tmp_path, group_path=("p", "l", "g")))
    part = tmp_path / "_loghub/p/l/g/parts/left"
    part.touch()
    date_back(part, TOMBSTONE_S - 100)
    commit_log.prune(owner="w-0")
    assert part.exists()
    date_back(part, TOMBSTONE_S + 10)
    commit_log.prune(owner="w-0")
    assert not part.exists()
