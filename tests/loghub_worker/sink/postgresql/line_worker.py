"""A small worker that delivers lines to a table, without Spark and as a process of its own if needed.

The log service is a folder with one checkpoint file for each shard. A shard's log group at cursor c is the
line ``shard:c``. Any number of workers may hold a shard at the same time, as none of them asks who does.

Run: ``python -m tests.loghub_worker.sink.postgresql.line_worker PORT FOLDER CREDENTIALS NAME SEED`` delivers
everything once it reads a line from its input. Now and then it loses its connection and all that it knows, at
a random step. At the end it prints how often that happened, and how many batches were refused.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from loghub.atomic_file import replace_file
from loghub.contract.sinks import PostgresqlSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.postgresql.database import SinkDatabase
from loghub_worker.sink.postgresql.delivered_ranges import DeliveredRanges
from loghub_worker.sink.postgresql.sink import Transactions
from loghub_worker.sink.postgresql.table import SinkTable
from loghub_worker.sink.sink_start import CredentialFiles
from tests.postgresql_server import DATABASE, PostgresqlServer

BEGIN, END, SHARDS = 100, 130, (0, 1)
TABLE = "lines"
CREATE = f"CREATE TABLE {TABLE} (line text)"
DEATHS = 0.05  # of all steps
PAUSE_S = 0.1  # who opens shards all the time keeps the others from delivering them


def sink_settings(port: int, *, table: str = TABLE, create_table: bool = False) -> PostgresqlSink:
    """The settings of a sink on the tests' server."""
    return PostgresqlSink(
        host="127.0.0.1",
        port=port,
        database=DATABASE,
        table=table,
        ssl_mode="disable",
        create_table=create_table,
    )


def arrow(lines: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
    yield pa.RecordBatch.from_pydict({"line": lines})


class LineWorker:
    """Opens shards and delivers them, batch by batch."""

    def __init__(
        self,
        folder: Path,
        port: int,
        credentials: Path,
        name: str,
        *,
        at_step: Callable[[str], None] = lambda step: None,
        groups: Callable[[], int] = lambda: 10,
        pause_s: Callable[[], float] = lambda: 0.0,
        may_commit: Callable[[], bool] = lambda: True,
        statement_timeout_s: float = 60.0,
    ) -> None:
        database = SinkDatabase(
            sink_settings(port),
            CredentialFiles(credentials),
            client=name,
            statement_timeout_s=statement_timeout_s,
        )
        ranges = DeliveredRanges("public", ("p", "l", "g"))
        with database.transaction() as connection:
            ranges.create(connection)
        self.sink = Transactions(database, ranges, at_step=at_step)
        self.name = name
        self.may_commit = may_commit
        self.positions: dict[int, int] = {}
        self.refused = self.batches = 0
        self.copy_statement = SinkTable("public", TABLE).copy_statement(["line"])
        self._checkpoints = folder / "checkpoints"
        self._checkpoints.mkdir(exist_ok=True)
        self._at_step = at_step
        self._groups = groups
        self._pause_s = pause_s  # after a refusal

    def checkpoint(self, shard: int) -> int:
        path = self._checkpoints / str(shard)
        return int(path.read_text()) if path.exists() else BEGIN

    def save(self, shard: int, position: int) -> None:
        """Only the holder may move a checkpoint back, so that nobody here does."""
        if position >= self.checkpoint(shard):
            replace_file(self._checkpoints / str(shard), b"%d" % position)
        self._at_step("checkpoint saved")
        self.sink.acknowledge(shard, position)

    def assign(self, shards: Iterable[int], *, origin: CheckpointOrigin = CheckpointOrigin.SAVED) -> None:
        for shard in shards:
            incarnation = ShardIncarnation(shard=shard, created=1)
            self.sink.open_shard(incarnation)
            checkpoint = self.checkpoint(shard)
            self._at_step("checkpoint read")
            position = self.sink.resume(incarnation, checkpoint, confirm=lambda: None, origin=origin)
            self._at_step("resumed")
            self.positions[shard] = position
            self.save(shard, position)

    def write(self, ranges: Iterable[Range]) -> str:
        self.batches += 1
        batch = f"{self.name}-{os.getpid()}-{self.batches}"
        lines = [f"{one.shard}:{cursor}" for one in ranges for cursor in range(one.begin, one.end)]
        assert self.sink.copy(batch, self.copy_statement, arrow(lines)) == len(lines)
        return batch

    def deliver(self, *, save: bool = True) -> bool:
        """Deliver one batch of the assigned shards; return False if all are at their end."""
        ranges = tuple(
            Range(shard, position, min(position + self._groups(), END))
            for shard, position in sorted(self.positions.items())
            if position < END
        )
        if not ranges:
            return False
        self.sink.publish(self.write(ranges), ranges, self.may_commit)
        for one in ranges:
            self.positions[one.shard] = one.end
            if save:
                self.save(one.shard, one.end)
        return True

    def run(self) -> None:
        """Deliver everything; open the shards again where another worker has opened them."""
        self.assign(SHARDS)
        while True:
            try:
                if not self.deliver():
                    return
            except RangeTakenError:
                self.refused += 1
                time.sleep(self._pause_s())
                self.assign(SHARDS)


def delivered(server: PostgresqlServer) -> Counter[str]:
    return Counter(str(line) for (line,) in server.rows(f"SELECT line FROM {TABLE}"))


def lines_of(shard: int, begin: int, end: int) -> Counter[str]:
    """The lines of a range, once each."""
    return Counter(f"{shard}:{cursor}" for cursor in range(begin, end))


def everything() -> Counter[str]:
    return sum((lines_of(shard, BEGIN, END) for shard in SHARDS), Counter())


class DiedError(Exception):
    """Stands for the end of a process."""


def main(port: str, folder: str, credentials: str, name: str, seed: str) -> None:
    chance = random.Random(seed)
    deaths = refused = batches = 0

    def at_step(_: str) -> None:
        if chance.random() < DEATHS:
            raise DiedError

    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        worker = LineWorker(
            Path(folder), int(port), Path(credentials), name,
            at_step=at_step, groups=lambda: chance.randint(1, 5), pause_s=lambda: chance.random() * PAUSE_S,
        )  # fmt: skip
        try:
            worker.run()
            break
        except DiedError:
            deaths += 1
            if worker.sink._connection is not None:
                os.close(worker.sink._connection.fileno())  # without a word to the server
        finally:
            refused, batches = refused + worker.refused, batches + worker.batches
    print(json.dumps({"deaths": deaths, "refused": refused, "batches": batches}))


if __name__ == "__main__":
    main(*sys.argv[1:])
