"""What the commit log costs as claims accumulate that are not yet acknowledged.

``python -m tests.loghub_worker.bench_commit_log [SHARDS [BATCHES]]`` publishes batches of all shards into a
temporary folder (set TMPDIR to measure another file system) and prints the time of a batch, of an
acknowledgement and of a resumed shard, with no claims and with those of BATCHES batches; also the flushes
of a batch. Compare the ratio of the two columns, not the times."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from loghub_worker.batch_plan import Range
from loghub_worker.sink.commit_log import CommitLog, ShardIncarnation
from loghub_worker.sink.folder_storage import FolderStorage

GROUPS, REPEATS = 100, 5


class Bench:
    """A worker that holds all shards and saves no checkpoint by itself."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.commit_log = CommitLog(FolderStorage(folder, group_path=("p", "l", "g")))
        self.shards = [ShardIncarnation(shard=shard, created=1) for shard in range(shards)]
        self.position = 0
        self.batches = 0
        for shard in self.shards:
            self.resume(shard)

    def resume(self, shard: ShardIncarnation, checkpoint: int = 0) -> int:
        self.commit_log.open_shard(shard)
        return self.commit_log.resume(shard, checkpoint, confirm=lambda: None)

    def publish(self) -> None:
        self.batches += 1
        batch = f"w-{self.batches}"
        stage = self.commit_log.stage(batch)
        stage.mkdir()
        (stage / "part-0.parquet").write_bytes(b"rows")
        end = self.position + GROUPS
        ranges = [(shard, Range(shard.shard, self.position, end)) for shard in self.shards]
        self.commit_log.publish(batch, ranges, may_commit=lambda: True)
        self.position = end

    def acknowledge(self) -> None:
        for shard in self.shards:
            self.commit_log.acknowledge(shard, self.position)


def ms(step: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    step()
    return (time.perf_counter() - began_s) * 1000


def flushes(step: Callable[[], object]) -> int:
    real, count = os.fsync, 0

    def counted(handle: int) -> None:
        nonlocal count
        count += 1
        real(handle)

    os.fsync = counted
    try:
        step()
    finally:
        os.fsync = real
    return count


def main(shards: int, batches: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), shards)
        empty, acknowledged = [], []
        for _ in range(REPEATS):
            empty.append(ms(bench.publish))
            acknowledged.append(ms(bench.acknowledge))
        empty_resume = [ms(lambda: bench.resume(bench.shards[0], bench.position)) for _ in range(REPEATS)]
        for _ in range(batches):
            bench.publish()
        full = [ms(bench.publish) for _ in range(REPEATS)]
        begin = bench.position - (batches + REPEATS) * GROUPS
        full_resume = [ms(lambda: bench.resume(bench.shards[0], begin)) for _ in range(REPEATS)]
        count = flushes(bench.publish)
        batches_left = batches + REPEATS + 1
        full_acknowledged = ms(bench.acknowledge) / batches_left
    print(f"{shards} shards; {batches} batches, {shards * batches} claims not acknowledged; medians in ms")
    print(f"{'':32}{'none':>10}{'all':>10}{'ratio':>8}")
    rows = {
        "publish a batch": (median(empty), median(full)),
        "acknowledge, for each batch": (median(acknowledged), full_acknowledged),
        "resume a shard": (median(empty_resume), median(full_resume)),
    }
    for label, (before, after) in rows.items():
        print(f"{label:32}{before:10.2f}{after:10.2f}{after / before:8.1f}")
    print(f"flushes of a batch: {count}")


if __name__ == "__main__":
    main(*(int(argument) for argument in (*sys.argv[1:], "32", "60")[:2]))
