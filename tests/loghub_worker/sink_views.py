"""What a sink has, seen from outside, for `tests.loghub_worker.test_worker_kills`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from loghub.client.http import HttpLogHub
from loghub_worker.sink.commit_log import BatchDecision
from tests import kafka
from tests.loghub_worker.support import (
    GROUP,
    LOGSTORE,
    PROJECT,
    LogstoreReader,
    row_of,
)
from tests.postgresql_server import PostgresqlServer

COPY = "copy"


class SinkView(Protocol):
    """What a sink has, seen from outside."""

    def last_begins(self) -> Mapping[int, int]:
        """The last cursor at which something begins that the sink has and that the service may not have a
        checkpoint after, by shard."""


class FilesView:
    """A folder, or the folder behind a bucket, with a commit log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = folder / "_loghub" / PROJECT / LOGSTORE / GROUP

    def last_begins(self) -> Mapping[int, int]:
        begins: dict[int, int] = {}
        for path in self.records.glob("batches/*.json"):
            with suppress(FileNotFoundError):  # it was acknowledged just now
                decision = msgspec.json.decode(path.read_bytes(), type=BatchDecision)
                for claim in decision.claims if decision.committed else ():
                    shard, _, begin, _ = map(int, claim.split("-"))
                    begins[shard] = max(begin, begins.get(shard, 0))
        return begins


class TableView:
    """A table of PostgreSQL with the ranges that were delivered."""

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server

    def last_begins(self) -> Mapping[int, int]:
        if not self._server.rows("SELECT FROM pg_tables WHERE tablename = 'loghub_ranges'"):
            return {}
        rows = self._server.rows("SELECT shard, max(begins) FROM loghub_ranges GROUP BY shard")
        return {int(str(shard)): int(str(begin)) for shard, begin in rows}

    def ids(self) -> Counter[str]:
        return Counter(str(one) for (one,) in self._server.rows("SELECT id FROM lines"))


@dataclass(frozen=True, slots=True)
class Copied:
    """One row of the logstore sink: which worker, counted from 0, wrote which log from where."""

    id: str
    shard: int
    cursor: int
    worker: int


class LogstoreView:
    """A logstore that gets the rows of `COPY_SQL`."""

    def __init__(self, client: HttpLogHub) -> None:
        self._reader = LogstoreReader(client, COPY)
        self._rows: list[Copied] = []
        self._begins: dict[int, int] = {}

    def rows(self) -> Sequence[Copied]:
        for log in self._reader.logs():
            row = row_of(log)
            copied = Copied(row["id"], int(row["shard"]), int(row["cursor"]), int(row["worker"]))
            self._rows.append(copied)
            self._begins[copied.shard] = max(copied.cursor, self._begins.get(copied.shard, 0))
        return self._rows

    def last_begins(self) -> Mapping[int, int]:
        self.rows()
        return dict(self._begins)  # as of now


class TopicView:
    """A topic of Kafka."""

    def __init__(self, broker: kafka.Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def last_begins(self) -> Mapping[int, int]:
        begins: dict[int, int] = {}
        for record in self._broker.records(self._topic):
            shard, cursor, _ = kafka.place_of(record)
            begins[shard] = max(cursor, begins.get(shard, 0))
        return begins
