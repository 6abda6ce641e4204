"""Positions in a database of the user's, when another position is sought, or the database has another one.

Each test runs a consumer in virtual time that writes what it reads into SQLite, one log group in each
transaction, and compares the rows with what must be there: each log once for each time that it was requested.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from loghub.wire.cursor import encode
from loghub_consumer import Consumer, FencedError, LogBatch, SqlCheckpointStore, StoredShard, Tracker
from loghub_consumer.checkpoint_store import PositionMovedError
from loghub_consumer.reading.answers import ShortReadError
from tests.loghub_consumer.databases import connect, ids_in, prepare, store_of
from tests.loghub_consumer.support import Seen
from tests.loghub_consumer.virtual import Program, World, world

IDS = [str(number) for number in range(8)]
HIT = "3"  # the log whose transaction is interfered with
SHARD = StoredShard(project="p", logstore="l", consumer_group="g", shard=0, created_unix_s=1)


class Connection:
    """Of SQLite; its next commit is answered, loses its answer, or fails, as `Database.commits` says."""

    def __init__(self, connection: Any, database: "Database") -> None:
        self._connection = connection
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        what = self._database.commits.pop(0) if self._database.commits else "answered"
        if what != "failed":
            self._connection.commit()
        if what != "answered":
            raise sqlite3.OperationalError(f"the commit {what}")


@dataclass
class Database:
    """A file, and what happens to the commits and while a connection is made."""

    address: str
    commits: list[str] = field(default_factory=list)
    on_connect: Callable[[], None] = lambda: None

    def connect(self) -> Connection:
        self.on_connect()
        connection = connect(self.address)
        connection.execute("PRAGMA synchronous = OFF")  # no test takes power from the machine
        return Connection(connection, self)

    def execute(self, statement: str) -> None:
        with closing(connect(self.address)) as connection:
            connection.execute(statement)
            connection.commit()

    @property
    def ids(self) -> list[str]:
        return ids_in(self.address)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    one = Database(str(tmp_path / "database"))
    prepare(one.address)
    return one


@pytest.fixture
def store(database: Database) -> SqlCheckpointStore:
    """Its `threading.local` is not of the virtual time."""
    return SqlCheckpointStore(database.connect, paramstyle=sqlite3.paramstyle)


@pytest.fixture
def one(store: SqlCheckpointStore) -> Iterator[World]:
    """After the store, which is made outside of the virtual time."""
    with world() as made:
        made.make_logstore("access")
        yield made


def write(logs: LogBatch, tracker: Tracker) -> None:
    with tracker.transaction(logs) as connection:
        rows = [(str(log.get("id")),) for group in logs.groups for log in group.logs]
        connection.cursor().executemany("INSERT INTO ids VALUES (?)", rows)


def start(one: World, store: SqlCheckpointStore, process: Callable[[LogBatch, Tracker], Any]) -> Program:
    settings = one.settings("access", checkpoint_store=store, max_bytes=1)
    return one.start(lambda: Consumer(settings, Seen(process).factory))


def settle(one: World) -> None:
    """Until everything is processed, and for as long as anything may come again."""
    one.until(lambda: one.is_saved("access"), "the end")
    one.pass_time(60)
    assert one.is_saved("access")


def first_id(logs: LogBatch) -> str:
    return str(next(iter(logs.groups[0].logs)).get("id"))


ASKED = "while the database is asked"
INTERFERED = [
    (commit, when) for commit in ("lost its answer", "failed") for when in ("before", "after", ASKED)
]


@pytest.mark.parametrize("to", [1, *(pytest.param(to, marks=pytest.mark.deep) for to in (None, 3, 6))])
@pytest.mark.parametrize(("commit", "when"), [("answered", "before"), ("answered", "after"), *INTERFERED])
def test_a_position_that_is_sought_counts_whatever_becomes_of_a_transaction(
    one: World, database: Database, store: SqlCheckpointStore, commit: str, when: str, to: int | None
) -> None:
    cursors = [one.put("access", [name]) for name in IDS]
    trackers: list[Tracker] = []
    sought: list[int] = []

    def seek(at: str) -> None:
        if to is not None and at == when and trackers and not sought:
            sought.append(to)
            trackers[0].seek(encode(cursors[to]))

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if first_id(logs) != HIT or trackers:
            write(logs, tracker)
            return
        trackers.append(tracker)
        database.commits = [commit]
        seek("before")
        try:
            write(logs, tracker)
        finally:
            seek("after")

    database.on_connect = lambda: seek(ASKED)
    start(one, store, process)
    # What is sought while the database is asked takes effect after the batch, as while it is processed.
    is_written = commit != "failed" or when == ASKED
    once = [name for name in IDS if name < HIT or (name == HIT and is_written)]
    expected = IDS if to is None else once + IDS[to:]
    settle(one)
    assert database.ids == expected


@pytest.mark.parametrize(
    "commits", [pytest.param([], marks=pytest.mark.deep), ["lost its answer"], ["failed"]]
)
@pytest.mark.parametrize("before", [[], ["answered"]])
@pytest.mark.parametrize("by_return", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_batch_that_ends_where_the_database_is_already_is_written_once(
    one: World,
    database: Database,
    store: SqlCheckpointStore,
    before: list[str],
    commits: list[str],
    by_return: bool,
) -> None:
    """After a position was sought, or `process` has returned one, the position alone does not say whether a
    transaction was committed."""
    cursors = [one.put("access", [name]) for name in IDS]
    turned: list[bool] = []

    def process(logs: LogBatch, tracker: Tracker) -> str | None:
        write(logs, tracker)
        if first_id(logs) != IDS[-1] or turned:
            return None
        turned.append(True)
        database.commits = before + commits
        if by_return:
            return encode(cursors[-1])
        tracker.seek(encode(cursors[-1]))
        return None

    start(one, store, process)
    settle(one)
    one.put("access", ["new"])
    settle(one)
    assert database.ids == [*IDS, IDS[-1], "new"]
    assert not database.commits


def test_what_was_committed_counts_although_the_logs_turn_out_to_be_damaged(
    one: World, database: Database, store: SqlCheckpointStore
) -> None:
    """They are pulled again, which seeks no other position."""
    for name in IDS:
        one.put("access", [name])

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if first_id(logs) == HIT:
            database.commits = ["lost its answer"]
        try:
            write(logs, tracker)
        except sqlite3.OperationalError as error:
            raise ShortReadError("of what was not looked at before") from error

    start(one, store, process)
    settle(one)
    assert database.ids == IDS


@pytest.mark.parametrize("position", [2, pytest.param(5, marks=pytest.mark.deep), None])
def test_a_position_that_another_program_has_changed_counts(
    one: World, database: Database, store: SqlCheckpointStore, position: int | None
) -> None:
    """An older copy of the database, or the standby after a failover behind a pooler, lacks rows, and the
    connection goes on; or the user has reset the position."""
    cursors = [one.put("access", [name]) for name in IDS[:5]]
    cursors += [cursors[-1] + 1]
    start(one, store, lambda logs, tracker: write(logs, tracker))
    settle(one)
    if position is None:
        database.execute("DELETE FROM loghub_positions")
    else:
        database.execute(f"UPDATE loghub_positions SET position = {cursors[position]}")
        database.execute(f"DELETE FROM ids WHERE id >= '{position}'")
    for name in IDS[5:]:
        one.put("access", [name])
    settle(one)
    assert database.ids == IDS


def test_of_two_owners_with_the_same_number_each_log_is_written_once(database: Database) -> None:
    """A failover has lost the assignment of the first, who knows nothing of it."""
    store, other = store_of(database.address), store_of(database.address)
    first = store.acquire(SHARD, position=0)
    with store.transaction(first, position=5):
        pass
    database.execute("UPDATE loghub_positions SET fence = 0, position = 0")
    second = other.acquire(SHARD, position=0)
    assert second.fence == first.fence
    with other.transaction(second, position=5):
        pass
    with other.transaction(replace(second, position=5), position=9):
        pass
    words = r"left at position 5 .*now has 9.*the shard continues there"
    with (
        pytest.raises(PositionMovedError, match=words),
        store.transaction(replace(first, position=5), position=9),
    ):
        pass
    assert store.acquire(SHARD, position=0).position == 9
    with pytest.raises(FencedError), other.transaction(replace(second, position=9), position=10):
        pass


def test_rows_may_be_dictionaries(database: Database) -> None:
    """As with ``row_factory=dict_row`` of psycopg."""

    def connect_with_names() -> Any:
        connection = connect(database.address)
        connection.row_factory = lambda cursor, row: dict(
            zip((about[0] for about in cursor.description), row, strict=True)
        )
        return connection

    store = SqlCheckpointStore(connect_with_names, paramstyle=sqlite3.paramstyle)
    first = store.acquire(SHARD, position=7)
    assert (first.position, first.fence) == (7, 1)
    assert store.acquire(SHARD, position=0).fence == 2
    with pytest.raises(FencedError), store.transaction(first, position=8):
        pass
