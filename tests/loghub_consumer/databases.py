"""Databases for tests of a checkpoint store: a file of SQLite, or a PostgreSQL by its address."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from loghub_consumer import LogBatch, SqlCheckpointStore, Tracker

TABLE = "CREATE TABLE IF NOT EXISTS ids (id TEXT)"


def connect(address: str) -> Any:
    """``postgresql://...``, or the path of a file."""
    if address.startswith("postgresql://"):
        return psycopg.connect(address)
    return sqlite3.connect(address, timeout=60)


def store_of(address: str) -> SqlCheckpointStore:
    is_postgresql = address.startswith("postgresql://")
    paramstyle: Any = psycopg.paramstyle if is_postgresql else sqlite3.paramstyle
    return SqlCheckpointStore(lambda: connect(address), paramstyle=paramstyle)


def prepare(address: str) -> None:
    with closing(connect(address)) as connection:
        connection.execute(TABLE)
        connection.commit()


def ids_in(address: str) -> list[str]:
    with closing(connect(address)) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM ids").fetchall()]


def is_locked(address: str) -> bool:
    """Whether a program stands still in a transaction that keeps others from owning a shard."""
    with closing(connect(address)) as connection:
        try:
            if isinstance(connection, sqlite3.Connection):
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("BEGIN IMMEDIATE")
            else:
                connection.execute("SELECT 1 FROM loghub_positions FOR UPDATE NOWAIT")
        except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
            return True
        finally:
            connection.rollback()
    return False


def write_ids(logs: LogBatch, tracker: Tracker) -> None:
    """Write the ids of the logs and the position in one transaction."""
    with tracker.transaction(logs) as connection:
        mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
        rows = [(str(log.get("id")),) for group in logs.groups for log in group.logs]
        connection.cursor().executemany(f"INSERT INTO ids VALUES ({mark})", rows)
