"""One of several processes that all believe to hold all shards, and die now and then between two steps.

Run: ``python -m tests.loghub_worker.sink.racing_writer FOLDER NAME SEED``. It opens the shards, prints a
line, and begins to deliver once it has read a line, so that all writers can have opened them by then. It ends
when everything is delivered, and prints how many of its batches were committed, refused, and left behind by
its deaths.
"""

import fcntl
import random
import sys
import time
from collections import Counter
from pathlib import Path

from loghub_worker.sink.files.commit_log import RangeTakenError
from tests.loghub_worker.sink.commit_log_child import BEGIN, SHARDS, LineWorker

DEATHS = {"all ranges claimed": 0.05, "decided": 0.2, "file moved": 0.05}  # by step
END = BEGIN + 60
MAX_GROUPS, PAUSE_S, MAX_PAUSE_S = 7, 0.02, 2.0


class DiedError(Exception):
    """Stands for the end of the process, whose successor has the same name."""


class RacingWriter(LineWorker):
    """Its checkpoints only move forward, as the service's do."""

    def save(self, shard: int, position: int) -> None:
        with (self.checkpoints / f"{shard}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if position > self.checkpoint(shard)[0]:
                part = self.checkpoints / f"{shard}.part"
                part.write_text(str(position))
                part.rename(self.checkpoints / str(shard))
        self.commit_log.acknowledge(self.incarnation(shard), self.checkpoint(shard)[0])


def main(folder: Path, name: str, seed: str) -> None:
    dice = random.Random(seed)
    outcomes: Counter[str] = Counter()

    def at_step(step: str) -> None:
        if dice.random() < DEATHS.get(step, 0):
            raise DiedError

    position: dict[int, int] = {}
    refused, has_begun = 0, False
    while min(position.values(), default=0) < END:
        writer = RacingWriter(folder, name, at_step=at_step)
        writer.end = END
        writer.groups = lambda: dice.randint(1, MAX_GROUPS)
        position = writer.positions
        begun = dict(position)
        try:
            writer.assign(SHARDS)
            begun = dict(position)
            if not has_begun:
                has_begun = True
                print("opened", flush=True)
                sys.stdin.readline()
            while writer.deliver():
                outcomes["committed"] += 1
        except (RangeTakenError, OSError):  # a claim may be acknowledged by another before it is read back
            outcomes["refused"] += 1
        except DiedError:
            outcomes["died"] += 1
        # A writer that opens shards all the time keeps the others from delivering them.
        refused = refused + 1 if position == begun else 0
        time.sleep(dice.random() * min(PAUSE_S * 2**refused, MAX_PAUSE_S))
    print(dict(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
