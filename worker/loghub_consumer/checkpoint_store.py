"""Positions in the user's database, saved in the transaction with the user's own writes: exactly once.

The log service only knows which consumer holds a shard now, and a consumer may pause for minutes and then
continue. So each assignment takes a new number for its shard, the fence, and a transaction commits only under
the number that the shard has at that moment. Two owners of one shard cannot both commit. The update also
names the position that it replaces: an older copy of the database, or the standby after a failover, may lack
committed rows, including the number of an assignment.

`SqlCheckpointStore` uses any driver with Python's DB-API (PEP 249), for a database with ``ON CONFLICT`` and
``RETURNING``, such as PostgreSQL and SQLite since 3.35.
"""

import contextlib
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShard:
    """A shard of a consumer group. `created_unix_s` distinguishes a logstore from an earlier one of the same
    name."""

    project: str
    logstore: str
    consumer_group: str
    shard: int
    created_unix_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The result of acquiring a shard: the number of the assignment, and the last position that it has saved
    in the database, which is at first the cursor from which it continues."""

    shard: StoredShard
    fence: int
    position: int


class FencedError(Exception):
    """Another assignment of the shard has begun, so that this one can commit nothing any more."""


class PositionMovedError(Exception):
    """The database has another position than this assignment has saved: another program changed it, or it is
    an older copy."""


class CheckpointStore(Protocol):
    """Thread-safe; each shard is used by one thread."""

    def acquire(self, shard: StoredShard, *, position: int) -> Owned:
        """Begin an assignment, which ends all earlier ones. `position` is used for a shard that is new in the
        store."""

    def transaction(self, owned: Owned, *, position: int) -> AbstractContextManager[Any]:
        """A transaction that also saves this position; the value is the connection for the user's writes.
        Raises `FencedError` at its end, and then nothing is committed. It may raise any other error if the
        position in the database differs from `owned`: the shard is then acquired again."""


class SqlCheckpointStore:
    """A `CheckpointStore` in a table of a database, which is created if it does not exist."""

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        paramstyle: Literal["qmark", "format", "pyformat"],
        table: str = "loghub_positions",
    ) -> None:
        """`connect` returns a new connection, without autocommit, which the first assignment tests; each
        thread has its own connection. `paramstyle` is the driver's: ``psycopg.paramstyle``,
        ``sqlite3.paramstyle``."""
        if not IDENTIFIER.fullmatch(table):
            raise ValueError(f"table is {table!r}; it must be a plain name, with or without a schema")
        self._connect = connect
        self._mark = "?" if paramstyle == "qmark" else "%s"
        self._table = table
        self._local = threading.local()
        self._has_transactions = False  # True once this was tested

    def acquire(self, shard: StoredShard, *, position: int) -> Owned:
        columns = "project, logstore, consumer_group, shard, created"
        name = self._table.rpartition(".")[2]
        with self._connection() as connection:
            self._create(connection, columns)
            self._require_transactions(connection, columns)
            cursor = connection.cursor()
            cursor.execute(
                f"INSERT INTO {self._table} ({columns}, position, fence)"  # noqa: S608 - a plain name
                f" VALUES ({', '.join([self._mark] * 6)}, 1) ON CONFLICT ({columns})"
                f" DO UPDATE SET fence = {name}.fence + 1 RETURNING position, fence",
                (*_key(shard), position),
            )
            ((stored, fence),) = map(_values, cursor.fetchall())
            connection.commit()
        return Owned(shard=shard, fence=int(fence), position=int(stored))

    def _create(self, connection: Any, columns: str) -> None:
        """Create the table unless it exists; if it exists, the user may lack the right to create tables."""
        cursor = connection.cursor()
        try:
            cursor.execute(f"SELECT 1 FROM {self._table} WHERE 1 = 0")  # noqa: S608 - a plain name
        except Exception:  # noqa: BLE001 - each driver has its own errors; another problem shows below
            connection.rollback()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (project TEXT, logstore TEXT, consumer_group TEXT,"
                " shard INTEGER, created BIGINT, position BIGINT NOT NULL, fence BIGINT NOT NULL,"
                f" PRIMARY KEY ({columns}))"
            )
            connection.commit()

    def _require_transactions(self, connection: Any, columns: str) -> None:
        """Raises `ValueError` if statements are committed one by one: the writes of a consumer that has lost
        its shard would then stay. Drivers report this in different ways, if at all, so a row is written and
        rolled back."""
        if self._has_transactions:
            return
        trial = (f"trial of a rollback {secrets.token_hex(16)}",)
        cursor = connection.cursor()
        cursor.execute(
            f"INSERT INTO {self._table} ({columns}, position, fence)"  # noqa: S608 - a plain name
            f" VALUES ({self._mark}, '', '', 0, 0, 0, 0)",
            trial,
        )
        connection.rollback()
        where = f"FROM {self._table} WHERE project = {self._mark}"
        cursor.execute(f"SELECT 1 {where}", trial)
        if cursor.fetchall():
            cursor.execute(f"DELETE {where}", trial)
            raise ValueError(
                "connect returned a connection that commits each statement by itself, so nothing would be"
                " written exactly once: leave out autocommit=True of psycopg, isolation_level=None of"
                " sqlite3, or isolation_level='AUTOCOMMIT' of SQLAlchemy"
            )
        self._has_transactions = True

    @contextmanager
    def transaction(self, owned: Owned, *, position: int) -> Iterator[Any]:
        with self._connection() as connection:
            yield connection
            # At the end of the transaction, so that a program that pauses during its own writes does not keep
            # others from taking the shard.
            cursor = connection.cursor()
            where = (
                f" WHERE project = {self._mark} AND logstore = {self._mark} AND consumer_group = {self._mark}"
                f" AND shard = {self._mark} AND created = {self._mark}"
            )
            cursor.execute(
                f"UPDATE {self._table} SET position = {self._mark}{where}"  # noqa: S608 - a plain name
                f" AND fence = {self._mark} AND position = {self._mark}",
                (position, *_key(owned.shard), owned.fence, owned.position),
            )
            if cursor.rowcount != 1:
                cursor.execute(
                    f"SELECT position, fence FROM {self._table}{where}",  # noqa: S608 - a plain name
                    _key(owned.shard),
                )
                raise self._refusal(owned, [_values(row) for row in cursor.fetchall()])
            connection.commit()

    def _refusal(self, owned: Owned, rows: list[tuple[Any, ...]]) -> Exception:
        if any(int(fence) != owned.fence for _, fence in rows):
            return FencedError(f"shard {owned.shard.shard} has another owner in {self._table}")
        positions = ", ".join(str(position) for position, _ in rows) or "none"
        return PositionMovedError(
            f"shard {owned.shard.shard} was left at position {owned.position} in {self._table}, which now has"
            f" {positions}: another program has changed it, or the database was restored; the shard continues"
            " there"
        )

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """The connection of this thread. After an error it is rolled back and closed, because it may be
        broken."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        try:
            yield connection
        except BaseException:
            self._local.connection = None
            with contextlib.suppress(Exception):
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()
            raise


def _values(row: Any) -> tuple[Any, ...]:
    """A row as a tuple; some drivers can be set to return dictionaries."""
    return tuple(row.values() if isinstance(row, Mapping) else row)


def _key(shard: StoredShard) -> tuple[str, str, str, int, int]:
    return (shard.project, shard.logstore, shard.consumer_group, shard.shard, shard.created_unix_s)
