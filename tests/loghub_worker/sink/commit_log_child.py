"""A small worker that uses the commit log, as a process of its own, so that it can be killed at any step.

`test_commit_log` runs it, with files of text lines in place of Parquet. The sink is a folder or, where a file
says so, a bucket that is the same folder to the tests. The log service is a folder with one checkpoint file
for each shard; `move` writes one as a person does. A shard's log group at cursor c is the
line ``shard:c``.

Run: ``python -m tests.loghub_worker.sink.commit_log_child`` reads lines with FOLDER, STEP and N, separated by
tabs. For each it forks a worker that kills itself at the N-th time of STEP, and prints its exit status.
"""

import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from loghub.contract.sinks import S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.files.bucket import Bucket, BucketStorage
from loghub_worker.sink.files.commit_log import CommitLog, SessionLostError
from loghub_worker.sink.files.storage import FolderStorage
from loghub_worker.sink.sink_start import CredentialFiles

BEGIN, END, SHARDS = 100, 130, (0, 1)
GROUPS = 10  # log groups per shard and batch
FILES = 2  # per batch
GROUP_PATH = ("p", "l", "g")
BUCKET = "bucket.json"


class BucketOfATest(msgspec.Struct):
    """The file that makes the sink of a folder a bucket."""

    url: str
    endpoint: str
    credentials: str  # a folder

    def open(self) -> Bucket:
        settings = S3Settings(endpoint=self.endpoint, allow_http=True)
        return Bucket(self.url, settings, CredentialFiles(Path(self.credentials)))


def storage_in(folder: Path, name: str) -> FolderStorage | BucketStorage:
    """The sink that all workers of a folder share, as the worker of this name uses it."""
    description = folder / BUCKET
    if not description.exists():
        return FolderStorage(folder / "sink", group_path=GROUP_PATH)
    bucket = msgspec.json.decode(description.read_bytes(), type=BucketOfATest).open()
    local = folder / "local" / f"{name}-{secrets.token_hex(4)}"
    return BucketStorage(bucket, local, group_path=GROUP_PATH)


class LineWorker:
    """Resumes the shards that are assigned to it, and delivers them to the end, batch by batch."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        at_step: Callable[[str], None] = lambda step: None,
        may_commit: Callable[[], bool] = lambda: True,
    ) -> None:
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir(exist_ok=True)
        self.storage = storage_in(folder, name)
        self.commit_log = CommitLog(self.storage, at_step=at_step)
        self.at_step = at_step
        self.may_commit = may_commit
        self.name = name
        self.positions: dict[int, int] = {}
        self.end = END
        self.groups: Callable[[], int] = lambda: GROUPS  # of the next range
        self.folders = [""] * FILES  # of the partitions that the files of a batch belong to

    def incarnation(self, shard: int) -> ShardIncarnation:
        return ShardIncarnation(shard=shard, created=1)

    def checkpoint(self, shard: int) -> tuple[int, CheckpointOrigin]:
        path = self.checkpoints / str(shard)
        if not path.exists():
            return BEGIN, CheckpointOrigin.NONE
        cursor, *others = path.read_text().split()
        return int(cursor), CheckpointOrigin[others[0]] if others else CheckpointOrigin.SAVED

    def assign(self, shards: Iterable[int]) -> None:
        for shard in shards:
            self.commit_log.open_shard(self.incarnation(shard))
            checkpoint, origin = self.checkpoint(shard)
            self.at_step("checkpoint read")
            position = self.commit_log.resume(
                self.incarnation(shard), checkpoint, confirm=self.confirm, origin=origin
            )
            self.at_step("resumed")
            self.positions[shard] = position
            self.save(shard, position)

    def resume(
        self,
        incarnation: ShardIncarnation,
        checkpoint: int,
        *,
        origin: CheckpointOrigin = CheckpointOrigin.UNKNOWN,
    ) -> int:
        self.commit_log.open_shard(incarnation)
        return self.commit_log.resume(incarnation, checkpoint, confirm=self.confirm, origin=origin)

    def confirm(self) -> None:
        if not self.may_commit():
            raise SessionLostError

    def save(self, shard: int, position: int) -> None:
        (self.checkpoints / str(shard)).write_text(str(position))
        self.at_step("checkpoint saved")
        self.commit_log.acknowledge(self.incarnation(shard), position)
        self.at_step("acknowledged")

    def deliver(self, *, save: bool = True) -> bool:
        """Deliver one batch of the assigned shards; return False if all are at their end."""
        begins = sorted((s, p) for s, p in self.positions.items() if p < self.end)
        ranges = [Range(s, p, min(p + self.groups(), self.end)) for s, p in begins]
        if not ranges:
            return False
        batch = f"{self.name}-{secrets.token_hex(8)}"
        lines = [f"{r.shard}:{cursor}" for r in ranges for cursor in range(r.begin, r.end)]
        stage = self.commit_log.stage(batch)
        stage.mkdir()
        for part, folder in enumerate(self.folders):
            (stage / folder).mkdir(parents=True, exist_ok=True)
            (stage / folder / f"part-{part}.parquet").write_text("\n".join(lines[part::FILES]))
        pairs = [(self.incarnation(r.shard), r) for r in ranges]
        self.commit_log.publish(batch, pairs, may_commit=self.may_commit)
        for shard_range in ranges:
            self.positions[shard_range.shard] = shard_range.end
            if save:
                self.save(shard_range.shard, shard_range.end)
        return True

    def run(self) -> None:
        self.assign(SHARDS)
        while self.deliver():
            pass


def move(folder: Path, shard: int, cursor: int, origin: CheckpointOrigin = CheckpointOrigin.MOVED) -> None:
    """Move a checkpoint, as a person does; UNKNOWN: at a service that does not say so."""
    (folder / "checkpoints" / str(shard)).write_text(f"{cursor} {origin.name}")


def date_back(path: Path, age_s: float) -> None:
    """Let a file of a sink be so old; in a bucket too, whose server has it as a file."""
    changed_s = path.stat().st_mtime - age_s
    os.utime(path, (changed_s, changed_s))


def delivered(folder: Path) -> Counter[str]:
    """Every line in the sink."""
    sink = folder / "sink"
    files = [*sink.glob("*.parquet"), *sink.glob("*=*/**/*.parquet")]
    return Counter(line for file in files for line in file.read_text().splitlines())


def lines_of(shard: int, begin: int, end: int) -> Counter[str]:
    """The lines of a range, once each."""
    return Counter(f"{shard}:{cursor}" for cursor in range(begin, end))


def everything() -> Counter[str]:
    return sum((lines_of(shard, BEGIN, END) for shard in SHARDS), Counter())


def main(folder: str, step: str, nth: str) -> None:
    seen = 0

    def at_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == int(nth):
            os.kill(os.getpid(), signal.SIGKILL)

    LineWorker(Path(folder), "child", at_step=at_step).run()


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            main(*line.rstrip("\n").split("\t"))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
