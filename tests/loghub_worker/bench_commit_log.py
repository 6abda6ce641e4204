"""What the commit log costs as claims accumulate that are not yet acknowledged.

``python -m tests.loghub_worker.bench_commit_log [SHARDS [BATCHES [MILLISECONDS]]]`` publishes batches of all
shards into a temporary folder (set TMPDIR to measure another file system), or, with MILLISECONDS, into a
bucket of a real S3 server to which each request takes longer by this time. It prints the time of a batch, of
an acknowledgement and of a resumed shard, with no claims and with those of BATCHES batches; also how many
flushes of the disk a batch waits for, one after another. Compare the ratio of the two columns, not the
times."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

from loghub.contract.sinks import S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.membership.shard_manager import ParallelTasks
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.files import exclusive_files
from loghub_worker.sink.files import storage as folder_storage
from loghub_worker.sink.files.bucket import Bucket, BucketStorage
from loghub_worker.sink.files.commit_log import CommitLog
from loghub_worker.sink.files.storage import FolderStorage, LogStorage
from loghub_worker.sink.sink_start import CredentialFiles
from tests.cluster.s3_server import program, running_s3_server
from tests.loghub_operator.latency import distant

GROUPS, REPEATS = 100, 5
GROUP_PATH = ("p", "l", "g")


class Bench:
    """A worker that holds all shards and saves no checkpoint by itself."""

    def __init__(self, storage: LogStorage, shards: int) -> None:
        self.commit_log = CommitLog(storage)
        self.shards = [ShardIncarnation(shard=shard, created=1) for shard in range(shards)]
        self.position = 0
        self.batches = 0
        self.tasks = ParallelTasks()
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
        """As the thread does that saves checkpoints."""
        for shard in self.shards:
            self.tasks.start(shard, partial(self.commit_log.acknowledge, shard, self.position))
        self.tasks.wait_for(set(self.shards))


def ms(step: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    step()
    return (time.perf_counter() - began_s) * 1000


def flushes(step: Callable[[], object]) -> int:
    """How many flushes follow one another in a step. Those that are made at the same time count once."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    with (
        patch.object(exclusive_files, "sync_all", counted),
        patch.object(folder_storage, "sync_all", counted),
        patch.object(folder_storage, "sync", counted),
    ):
        step()
    return count


@contextmanager
def storage_in(folder: Path, far_ms: float | None) -> Iterator[LogStorage]:
    """The folder itself, or a bucket of a server that has its data there."""
    if far_ms is None:
        yield FolderStorage(folder, group_path=GROUP_PATH)
        return
    with running_s3_server(program(), folder / "server") as server, distant(server.endpoint, far_ms) as far:
        server.bucket("bench")
        keys = CredentialFiles(server.credentials(folder / "keys"))
        bucket = Bucket("s3://bench", S3Settings(endpoint=far, allow_http=True), keys)
        yield BucketStorage(bucket, folder / "local", group_path=GROUP_PATH)


def main(shards: int, batches: int, far_ms: float | None) -> None:
    with tempfile.TemporaryDirectory() as name, storage_in(Path(name), far_ms) as storage:
        bench = Bench(storage, shards)
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
    if far_ms is None:
        print(f"flushes of a batch, one after another: {count}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [32, 60][len(given) :])[:2], given[2] if len(given) > 2 else None)
