"""Positions in the user's database: SQLite and a real PostgreSQL, with kills, pauses and lost answers."""

import os
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from loghub.wire.cursor import decode, encode
from loghub_consumer import (
    Consumer,
    FencedError,
    LogBatch,
    OnFailure,
    ShardLostError,
    SqlCheckpointStore,
    StoredShard,
    Tracker,
)
from tests.loghub_consumer.databases import connect, ids_in, is_locked, prepare, store_of, write_ids
from tests.loghub_consumer.support import Program, RecordingListener, Seen, Site, programs, running, wait_for
from tests.postgresql_server import DATABASE, PASSWORDS, USER, running_postgresql

SHARD = StoredShard(project="p", logstore="l", consumer_group="g", shard=0, created_unix_s=1)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as server:
        password = PASSWORDS[USER].replace(" ", "%20")
        yield f"postgresql://{USER}:{password}@127.0.0.1:{server.port}/{DATABASE}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database with an empty table."""
    if request.param == "sqlite":
        address = str(tmp_path / "database")
    else:
        address = request.getfixturevalue("postgresql")
        empty(address)
    prepare(address)
    return address


def empty(address: str) -> None:
    with closing(connect(address)) as connection:
        connection.execute("DROP TABLE IF EXISTS ids, loghub_positions")
        connection.commit()
    prepare(address)


@pytest.mark.long
def test_writes_and_position_are_committed_together_by_the_last_owner_only(database: str) -> None:
    store = store_of(database)
    first = store.acquire(SHARD, position=7)
    assert (first.position, first.fence) == (7, 1)

    def write(owned: Any, name: str, position: int) -> None:
        with store.transaction(owned, position=position) as connection:
            connection.cursor().execute(f"INSERT INTO ids VALUES ('{name}')")

    write(first, "a", 10)
    with pytest.raises(Exception, match=r"(?i)unterminated|unrecognized"):
        write(first, "of a failure'", 20)
    second = store.acquire(SHARD, position=99)
    assert (second.position, second.fence) == (10, 2)
    with pytest.raises(FencedError):
        write(first, "of the first owner", 30)
    write(second, "b", 12)
    assert ids_in(database) == ["a", "b"]
    other = StoredShard(project="p", logstore="l", consumer_group="g", shard=0, created_unix_s=2)
    assert store.acquire(other, position=0).position == 0, "of a logstore that was created again"


@pytest.mark.long
def test_a_connection_that_commits_each_statement_is_refused(database: str) -> None:
    """Otherwise what a consumer has written that lost its shard would stay."""
    is_postgresql = database.startswith("postgresql://")

    def without_transactions() -> Any:
        if is_postgresql:
            return psycopg.connect(database, autocommit=True)
        return sqlite3.connect(database, timeout=60, isolation_level=None)

    style: Any = psycopg.paramstyle if is_postgresql else sqlite3.paramstyle
    refused = SqlCheckpointStore(without_transactions, paramstyle=style)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"commits each statement by itself.*leave out autocommit=True"):
            refused.acquire(SHARD, position=7)
    with closing(connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM loghub_positions").fetchone() == (0,)
    assert store_of(database).acquire(SHARD, position=7).fence == 1


def test_an_owner_that_stands_still_in_a_transaction_cannot_commit_it_and_blocks_nobody(
    postgresql: str,
) -> None:
    """In SQLite a transaction that has written excludes all others until it ends."""
    empty(postgresql)
    store, other = store_of(postgresql), store_of(postgresql)
    first = store.acquire(SHARD, position=0)

    def stand_still() -> None:
        with store.transaction(first, position=5) as connection:
            connection.cursor().execute("INSERT INTO ids VALUES ('first')")
            assert other.acquire(SHARD, position=0).fence == 2

    with pytest.raises(FencedError):
        stand_still()
    assert ids_in(postgresql) == []


@pytest.mark.long
def test_a_consumer_continues_where_the_database_says(site: Site, database: str) -> None:
    site.prepare()
    ids = site.put(6, logs=1)
    settings = {"checkpoint_store": store_of(database), "max_bytes": 1, "checkpoint_interval_s": 3600.0}
    with running(Consumer(site.settings(**settings), Seen(write_ids_and_return).factory)):
        wait_for(lambda: ids_in(database) == ids, "the rows")
    site.client.update_checkpoint(
        site.logstore, "readers", shard=0, cursor=site.begin(), consumer="", force=True
    )
    more = site.put(2, logs=1)
    seen = Seen(write_ids_and_return)
    with running(Consumer(site.settings(**settings), seen.factory)):
        wait_for(lambda: ids_in(database) == ids + more, "the rows")
    assert seen.ids() == more, "the checkpoint of the log service does not count"


def write_ids_and_return(logs: LogBatch, tracker: Tracker) -> None:
    write_ids(logs, tracker)


class Unreliable:
    """A connection whose next commits do what is planned: lose the answer, or fail."""

    def __init__(self, connection: Any, plan: list[str]) -> None:
        self._connection = connection
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        what = self._plan.pop(0) if self._plan else "commit"
        if what != "fail":
            self._connection.commit()
        if what != "commit":
            raise sqlite3.OperationalError(what)


@pytest.mark.long
def test_a_commit_without_an_answer_is_looked_up_and_never_repeated(site: Site, tmp_path: Path) -> None:
    site.prepare()
    ids = site.put(8, logs=1)
    address = str(tmp_path / "database")
    prepare(address)
    # The first commits create the table and own the shard; after a failure, it is owned again.
    plan = ["commit", "commit", "commit", "lose", "commit", "commit", "fail", "commit", "lose"]
    store = SqlCheckpointStore(lambda: Unreliable(connect(address), plan), paramstyle="qmark")

    def process(logs: LogBatch, tracker: Tracker) -> None:
        with tracker.transaction(logs) as connection:
            rows = [(str(log.get("id")),) for group in logs.groups for log in group.logs]
            connection.cursor().executemany("INSERT INTO ids VALUES (?)", rows)

    seen = Seen(process)
    consumer = Consumer(site.settings(checkpoint_store=store, max_bytes=1), seen.factory)
    with running(consumer):
        wait_for(lambda: not plan and len(ids_in(address)) == len(ids), "the rows")
    assert ids_in(address) == ids
    assert len(seen.ids()) > len(ids), "what failed came again"


@pytest.mark.long
def test_a_database_that_is_away_at_the_start_or_later_loses_nothing(site: Site, tmp_path: Path) -> None:
    site.prepare()
    ids = site.put(2, logs=1)
    address = str(tmp_path / "database")
    prepare(address)
    away = threading.Event()
    away.set()

    def open_it() -> Any:
        if away.is_set():
            raise ConnectionError("no database")
        return Unreliable(connect(address), plan)

    plan: list[str] = []
    store = SqlCheckpointStore(open_it, paramstyle="qmark")

    def process(logs: LogBatch, tracker: Tracker) -> None:
        with tracker.transaction(logs) as connection:
            rows = [(str(log.get("id")),) for group in logs.groups for log in group.logs]
            connection.cursor().executemany("INSERT INTO ids VALUES (?)", rows)

    consumer = Consumer(site.settings(checkpoint_store=store), Seen(process).factory)
    with running(consumer):
        wait_for(lambda: any("no database" in error.message for error in consumer.errors()), "the error")
        away.clear()
        wait_for(lambda: ids_in(address) == ids, "the rows")
        away.set()
        plan += ["fail"]
        ids += site.put(2, logs=1)
        wait_for(lambda: any("no database" in error.message for error in consumer.errors()), "the error")
        away.clear()
        wait_for(lambda: ids_in(address) == ids, "the rows")
        wait_for(lambda: not consumer.errors(), "no error")


def test_a_transaction_that_failed_is_a_failure_though_process_returns(site: Site, tmp_path: Path) -> None:
    site.prepare()
    ids = site.put(2, logs=1)
    address = str(tmp_path / "database")
    prepare(address)
    failures = [LookupError()]

    def process(logs: LogBatch, tracker: Tracker) -> None:
        try:
            with tracker.transaction(logs) as connection:
                rows = [(str(log.get("id")),) for group in logs.groups for log in group.logs]
                connection.cursor().executemany("INSERT INTO ids VALUES (?)", rows)
                if failures:
                    raise failures.pop()
        except LookupError:
            with pytest.raises(ShardLostError, match="let process raise"), tracker.transaction(logs):
                pass

    with running(Consumer(site.settings(checkpoint_store=store_of(address)), Seen(process).factory)):
        wait_for(lambda: ids_in(address) == ids, "the rows")


def test_a_seek_of_the_listener_takes_precedence_over_the_database(site: Site, tmp_path: Path) -> None:
    site.prepare()
    ids = site.put(4, logs=1)
    address = str(tmp_path / "database")
    prepare(address)
    settings = site.settings(checkpoint_store=store_of(address))
    with running(Consumer(settings, Seen(write_ids_and_return).factory)):
        wait_for(lambda: ids_in(address) == ids, "the rows")
    to = encode(decode(site.begin()) + 2)
    listener = RecordingListener(lambda shards: consumer.seek(shards[0], to))
    consumer = Consumer(settings, Seen(write_ids_and_return).factory, listener)
    with running(consumer):
        wait_for(lambda: ids_in(address) == ids + ids[2:], "the rows again")


def test_with_a_database_the_logs_stay_in_order(site: Site, tmp_path: Path) -> None:
    site.prepare()
    site.put()
    errors: list[str] = []
    ended = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for method in (tracker.nack, tracker.reject):
            with pytest.raises(ValueError, match="let process raise") as error:
                method()
            errors.append(str(error.value))
        ended.set()

    store = store_of(str(tmp_path / "database"))
    with running(Consumer(site.settings(checkpoint_store=store), Seen(process).factory)):
        assert ended.wait(60)
    assert len(errors) == 2
    for wrong in ({"acknowledge": "log"}, {"on_failure": OnFailure(policy="Skip")}):
        with pytest.raises(ValueError, match="checkpoint_store needs"):
            site.settings(checkpoint_store=store, **wrong)
    with pytest.raises(ValueError, match="plain name"):
        SqlCheckpointStore(lambda: None, paramstyle="qmark", table="a; DROP TABLE b")


def is_paused_outside_a_transaction(program: Program, database: str) -> bool:
    """Pause the program, unless others then could not write (docs/processor.md says so of SQLite)."""
    program.process.send_signal(signal.SIGSTOP)
    os.waitpid(program.process.pid, os.WUNTRACED)  # until it stands still
    if is_locked(database):
        program.process.send_signal(signal.SIGCONT)
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.deep), "postgresql"], indirect=True
)
def test_kills_and_a_pause_write_each_log_exactly_once(site: Site, database: str) -> None:
    site.prepare(timeout_s=3)
    settings = {"database": database, "max_bytes": 300}
    with programs() as start:
        for attempt in range(2):
            site.put(40, logs=5)
            program = start(site, f"c-{attempt}", **settings)
            wait_for(lambda program=program: len(program.of("committed")) > 5, "some rows")  # type: ignore[misc]
            program.end(signal.SIGKILL)
        site.put(40, logs=5)
        paused = start(site, "c-2", **settings)
        wait_for(lambda: len(paused.of("committed")) > 5, "some rows")
        wait_for(lambda: is_paused_outside_a_transaction(paused, database), "a pause that blocks nobody")
        site.put(40, logs=5)
        last = start(site, "c-3", **settings)
        wait_for(lambda: len(last.of("committed")) > 5, "the next owner")
        paused.process.send_signal(signal.SIGCONT)
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert paused.end(signal.SIGTERM) == 0
        assert last.end(signal.SIGTERM) == 0
    found = Counter(ids_in(database))
    print(f"sent {site.sent.total()}, in the database {found.total()}")
    assert found == site.sent
