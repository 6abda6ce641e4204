"""What a sink has, seen from outside, for the tests that kill and pause real workers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import decode, split
from loghub_worker.sink.files.commit_log import BatchDecision
from tests import kafka
from tests.loghub_worker.support import GROUP, LOGSTORE, PROJECT, LogstoreReader, row_of
from tests.postgresql_server import PostgresqlServer

COPY = "copy"


class SinkView(Protocol):
    """What a sink has, seen from outside."""

    def last_begins(self) -> Mapping[int, int]:
        """The last cursor at which something begins that the sink has and that the service may not have a
        checkpoint after, by shard."""


class NothingView:
    """A sink that keeps nothing."""

    def last_begins(self) -> Mapping[int, int]:
        return {}


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


class CopiesView:
    """A logstore that gets the log groups as they are. Where one was read is looked up in the source, since a
    copy does not say it."""

    def __init__(self, client: HttpLogHub) -> None:
        self._client = client
        self._copies = LogstoreReader(client, COPY)
        self._sources: dict[int, int] = {}  # the cursor up to which each shard of the source was read
        self._places: dict[str, tuple[int, int]] = {}  # shard and cursor by id
        self._ids: Counter[str] = Counter()

    def ids(self) -> Counter[str]:
        self._ids.update(row_of(log)["id"] for log in self._copies.logs())
        return self._ids

    def last_begins(self) -> Mapping[int, int]:
        copied = self.ids().keys()  # first: whatever is copied is in the source by then
        for info in self._client.list_shards(LOGSTORE):
            self._read_source(info.shard)
        begins: dict[int, int] = {}
        for one in copied:
            shard, cursor = self._places[one]
            begins[shard] = max(cursor, begins.get(shard, 0))
        return begins

    def _read_source(self, shard: int) -> None:
        at = self._sources.get(shard)
        cursor = self._client.get_cursor(LOGSTORE, shard, "begin") if at is None else encode_cursor(at)
        pulled = self._client.pull_logs(LOGSTORE, shard, cursor=cursor, count=1000)
        begin = decode_cursor(cursor)
        for number, group in enumerate(split(pulled.body)):
            for log in decode(group).logs:
                self._places[row_of(log)["id"]] = (shard, begin + number)
        self._sources[shard] = decode_cursor(pulled.next_cursor) if pulled.count else begin


class LinesView:
    """A folder of JSON lines, which other files may join at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[Path, list[dict[str, Any]]] = {}  # a file that is there never changes

    def rows(self) -> list[dict[str, Any]]:
        for path in set(self.folder.glob("*.json")) - self._rows.keys():
            self._rows[path] = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        return [row for rows in self._rows.values() for row in rows]

    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in self.rows())

    def by_place(self) -> Counter[str]:
        """The ids without the rows of places that came before."""
        rows = self.rows()
        return Counter(
            {(row["__shard__"], row["__cursor__"], row["__index__"]): row["id"] for row in rows}.values()
        )

    def last_begins(self) -> Mapping[int, int]:
        begins: dict[int, int] = {}
        for row in self.rows():
            shard = row["__shard__"]
            begins[shard] = max(row["__cursor__"], begins.get(shard, 0))
        return begins


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
