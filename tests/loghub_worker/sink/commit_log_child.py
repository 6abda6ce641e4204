"""A small worker over the ledger: a process of its own, so that it can be killed at any step.

What for: `test_commit_log` runs it, with files of text lines in place of Parquet. The log service is
a folder with one checkpoint file a shard. A shard's log group at cursor c is the line ``shard:c``.

Run: ``python -m tests.loghub_worker.sink.commit_log_child FOLDER STEP N`` kills itself at the N-th time of
STEP (``-`` for never).
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from loghub_worker.batch_plan import Range
from loghub_worker.sink.commit_log import CommitLog, Incarnation, LeaseLostError

BEGIN, END, SHARDS = 100, 130, (0, 1)
GROUPS = 10  # a shard and batch
FILES = 2  # a batch


class LineWorker:
    """Takes shards, delivers them to the end, batch by batch."""

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
        self.ledger = CommitLog(folder / "sink", home=("p", "l", "g"), at_step=at_step)
        self.at_step = at_step
        self.may_commit = may_commit
        self.name = name
        self.positions: dict[int, int] = {}
        self.batches = 0

    def incarnation(self, shard: int) -> Incarnation:
        return Incarnation(shard=shard, created=1)

    def checkpoint(self, shard: int) -> int:
        path = self.checkpoints / str(shard)
        return int(path.read_text()) if path.exists() else BEGIN

    def take(self, shards: Iterable[int]) -> None:
        for shard in shards:
            checkpoint = self.checkpoint(shard)
            self.at_step("checkpoint read")
            position = self.ledger.resume(self.incarnation(shard), checkpoint, confirm=self.confirm)
            self.at_step("resumed")
            self.positions[shard] = position
            self.save(shard, position)

    def confirm(self) -> None:
        if not self.may_commit():
            raise LeaseLostError

    def save(self, shard: int, position: int) -> None:
        (self.checkpoints / str(shard)).write_text(str(position))
        self.at_step("checkpoint saved")
        self.ledger.acknowledge(self.incarnation(shard), position)
        self.at_step("acknowledged")

    def deliver(self, *, save: bool = True) -> bool:
        """One batch over the taken shards; False when all are at their end."""
        begins = sorted((s, p) for s, p in self.positions.items() if p < END)
        ranges = [Range(s, p, min(p + GROUPS, END)) for s, p in begins]
        if not ranges:
            return False
        batch = f"{self.name}-{os.getpid()}-{self.batches}"
        self.batches += 1
        lines = [f"{r.shard}:{cursor}" for r in ranges for cursor in range(r.begin, r.end)]
        stage = self.ledger.stage(batch)
        stage.mkdir()
        for part in range(FILES):
            (stage / f"part-{part}.parquet").write_text("\n".join(lines[part::FILES]))
        pairs = [(self.incarnation(r.shard), r) for r in ranges]
        self.ledger.publish(batch, pairs, may_commit=self.may_commit)
        for piece in ranges:
            self.positions[piece.shard] = piece.end
            if save:
                self.save(piece.shard, piece.end)
        return True

    def run(self) -> None:
        self.take(SHARDS)
        while self.deliver():
            pass


def delivered(folder: Path) -> Counter[str]:
    """Every line in the sink."""
    files = (folder / "sink").glob("*.parquet")
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


if __name__ == "__main__":
    main(*sys.argv[1:])
