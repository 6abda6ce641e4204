"""Stores metadata, shard states and checkpoints in SQLite: converts facts to rows and back.

The database uses WAL with synchronous=FULL, so a commit is on stable storage when it returns. One
transaction contains all waiting facts, so waiting requests share one sync; the thread in `batches` calls
`Database.commit`. This module contains the only SQL of the project.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import singledispatch

import apsw

from loghub.domain import group as domain
from loghub.domain.fsm import ShardState
from loghub.domain.hashrange import HashRange
from loghub.domain.shards import Shard
from loghub.service.facts import (
    CatalogFact,
    GroupDeleted,
    GroupStepped,
    LogstoreDeleted,
    LogstoreSaved,
    ProjectDeleted,
    ProjectSaved,
    ServiceFact,
    ShardDeleted,
    ShardSaved,
)
from loghub.service.faults import ServiceFault

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE project (
  name TEXT PRIMARY KEY, description TEXT NOT NULL, created_s INTEGER NOT NULL, modified_s INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE logstore (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL REFERENCES project(name), name TEXT NOT NULL,
  ttl_days INTEGER NOT NULL, next_shard INTEGER NOT NULL, options TEXT NOT NULL,
  created_s INTEGER NOT NULL, modified_s INTEGER NOT NULL,
  UNIQUE (project, name)
);
CREATE TABLE shard (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, shard INTEGER NOT NULL,
  begin_key TEXT NOT NULL, end_key TEXT NOT NULL, read_only INTEGER NOT NULL, parents TEXT NOT NULL,
  born_us INTEGER NOT NULL, first_cursor INTEGER NOT NULL, PRIMARY KEY (logstore, shard)
) WITHOUT ROWID;
CREATE TABLE consumer_group (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, name TEXT NOT NULL,
  timeout_s REAL NOT NULL, ordered INTEGER NOT NULL, PRIMARY KEY (logstore, name)
) WITHOUT ROWID;
CREATE TABLE group_shard (
  logstore INTEGER NOT NULL, name TEXT NOT NULL, shard INTEGER NOT NULL, parents TEXT NOT NULL,
  begin_cursor INTEGER NOT NULL, end_cursor INTEGER, state TEXT NOT NULL, holder TEXT, next_holder TEXT,
  last_holder TEXT,
  checkpoint INTEGER, checkpoint_consumer TEXT, checkpoint_us INTEGER,
  PRIMARY KEY (logstore, name, shard),
  FOREIGN KEY (logstore, name) REFERENCES consumer_group(logstore, name) ON DELETE CASCADE
) WITHOUT ROWID;
"""
_LOGSTORE_COLUMNS = (
    "id", "project", "name", "ttl_days", "next_shard", "options", "created_s", "modified_s"
)  # fmt: skip


class DatabaseUnusable(ServiceFault):
    """The metadata file has another schema version or is damaged; the message says which."""


class Database:
    """The metadata file. Open it once; `commit` must run on one thread at a time."""

    def __init__(self, path: str) -> None:
        try:
            self._connection = apsw.Connection(path)
            self._prepare()
        except apsw.Error as error:
            raise DatabaseUnusable(f"{path}: {error}") from error

    def _prepare(self) -> None:
        run = self._connection.execute
        for pragma in (
            "locking_mode=EXCLUSIVE",  # before WAL, so that SQLite creates no shared-memory file
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "fullfsync=ON",
        ):
            run(f"PRAGMA {pragma}").fetchall()
        version = self._connection.pragma("user_version")
        if version == 0:
            with self._connection:
                run(_SCHEMA)
                run(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise DatabaseUnusable(
                f"the metadata has schema version {version}, but this release needs {SCHEMA_VERSION}"
            )
        # A kill may have left a commit in the page cache only, so sync it before it is read.
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def commit(self, batch: Sequence[Sequence[ServiceFact]]) -> Sequence[object]:
        """Save all facts of all items in one durable transaction. Raises apsw.Error, which is final."""
        # Not `with self._connection`: it commits while it holds the interpreter's lock, so a
        # slow disk would block the event loop.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for facts in batch:
                for fact in facts:
                    self._save(fact)
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")
            raise
        return [None] * len(batch)

    def _save(self, fact: ServiceFact) -> None:
        if isinstance(fact, GroupStepped):
            for inner in fact.facts:
                self._connection.execute(*_group_row(inner, fact.logstore, fact.group))
        else:
            self._connection.execute(*_row(fact))

    def catalog_facts(self) -> list[CatalogFact]:
        """The facts of the catalog, in an order in which they can be applied."""
        run = self._connection.execute
        facts: list[CatalogFact] = [
            ProjectSaved(name=name, description=description, created_s=created, modified_s=modified)
            for name, description, created, modified in run(
                "SELECT name, description, created_s, modified_s FROM project ORDER BY name"
            )
        ]
        facts.extend(
            LogstoreSaved(**dict(zip(_LOGSTORE_COLUMNS, row, strict=True)))
            for row in run(f"SELECT {','.join(_LOGSTORE_COLUMNS)} FROM logstore ORDER BY id")  # noqa: S608
        )
        facts.extend(_shard_from(row) for row in run("SELECT * FROM shard ORDER BY logstore, shard"))
        return facts

    def next_logstore_id(self) -> int:
        """One more than the highest id ever assigned."""
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name='logstore'").fetchone()
        return int(row[0]) + 1 if row else 1

    def groups(self) -> list[tuple[int, str, float, bool]]:
        """(logstore id, name, timeout in seconds, ordered) of every group."""
        rows = self._connection.execute("SELECT logstore, name, timeout_s, ordered FROM consumer_group")
        return [(logstore, name, timeout_s, bool(ordered)) for logstore, name, timeout_s, ordered in rows]

    def group_entries(self, *, logstore: int, group: str) -> list[domain.ShardEntry]:
        rows = self._connection.execute(
            "SELECT * FROM group_shard WHERE logstore=? AND name=? ORDER BY shard", (logstore, group)
        )
        return [_entry_from(row) for row in rows]

    def durability(self) -> tuple[str, int]:
        """The current values of SQLite's (journal mode, synchronous)."""
        return (self._connection.pragma("journal_mode"), self._connection.pragma("synchronous"))

    def close(self) -> None:
        with suppress(apsw.Error):
            self._connection.close()


_Row = tuple[str, tuple[object, ...]]


@singledispatch
def _row(fact: ServiceFact) -> _Row:
    raise TypeError(f"{type(fact).__name__} has no table")


@_row.register
def _(fact: ProjectSaved) -> _Row:
    return (
        "INSERT INTO project VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET"
        " description=excluded.description, modified_s=excluded.modified_s",
        (fact.name, fact.description, fact.created_s, fact.modified_s),
    )


@_row.register
def _(fact: ProjectDeleted) -> _Row:
    return "DELETE FROM project WHERE name=?", (fact.name,)


@_row.register
def _(fact: LogstoreSaved) -> _Row:
    return (
        "INSERT INTO logstore VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET"
        " ttl_days=excluded.ttl_days, next_shard=excluded.next_shard,"
        " options=excluded.options, modified_s=excluded.modified_s",
        tuple(getattr(fact, column) for column in _LOGSTORE_COLUMNS),
    )


@_row.register
def _(fact: LogstoreDeleted) -> _Row:
    return "DELETE FROM logstore WHERE id=?", (fact.id,)


@_row.register
def _(fact: ShardSaved) -> _Row:
    return (
        "INSERT INTO shard VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET read_only=excluded.read_only",
        (
            fact.logstore,
            fact.shard,
            fact.spec.keys.begin_key,
            fact.spec.keys.end_key,
            fact.spec.read_only,
            _join(fact.spec.parents),
            fact.born_us,
            fact.first_cursor,
        ),
    )


@_row.register
def _(fact: ShardDeleted) -> _Row:
    return "DELETE FROM shard WHERE logstore=? AND shard=?", (fact.logstore, fact.shard)


@_row.register
def _(fact: GroupDeleted) -> _Row:
    return "DELETE FROM consumer_group WHERE logstore=? AND name=?", (fact.logstore, fact.group)


def _group_row(fact: domain.Fact, logstore: int, group: str) -> _Row:
    match fact:
        case domain.GroupSaved():
            return (
                "INSERT INTO consumer_group VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET"
                " timeout_s=excluded.timeout_s, ordered=excluded.ordered",
                (logstore, group, fact.timeout_s, fact.order),
            )
        case domain.GroupShardForgotten():
            return (
                "DELETE FROM group_shard WHERE logstore=? AND name=? AND shard=?",
                (logstore, group, fact.shard),
            )
        case domain.GroupShardSaved():
            return (
                "INSERT OR REPLACE INTO group_shard VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (logstore, group, *_entry_row(fact.entry)),
            )


def _entry_row(entry: domain.ShardEntry) -> tuple[object, ...]:
    saved = entry.checkpoint
    return (
        entry.shard,
        _join(entry.log_shard.parents),
        entry.log_shard.begin_cursor,
        entry.log_shard.end_cursor,
        entry.state.value,
        entry.holder,
        entry.next_holder,
        entry.last_holder,
        saved.cursor if saved else None,
        saved.consumer if saved else None,
        saved.updated_unix_us if saved else None,
    )


def _entry_from(row: tuple[object, ...]) -> domain.ShardEntry:
    _, _, shard, parents, begin, end, state, holder, next_holder, last_holder, cursor, consumer, updated = row
    checkpoint = None
    if cursor is not None:
        checkpoint = domain.SavedCheckpoint(cursor=cursor, consumer=consumer, updated_unix_us=updated)  # type: ignore[arg-type]
    return domain.ShardEntry(
        log_shard=domain.LogShard(shard=shard, parents=_split(parents), begin_cursor=begin, end_cursor=end),  # type: ignore[arg-type]
        state=ShardState(str(state)),
        holder=holder,  # type: ignore[arg-type]
        next_holder=next_holder,  # type: ignore[arg-type]
        last_holder=last_holder,  # type: ignore[arg-type]
        checkpoint=checkpoint,
    )


def _shard_from(row: tuple[object, ...]) -> ShardSaved:
    logstore, shard, begin, end, read_only, parents, born_us, first_cursor = row
    return ShardSaved(
        logstore=int(str(logstore)),
        spec=Shard(
            shard=int(str(shard)),
            keys=HashRange.parse(begin_key=str(begin), end_key=str(end)),
            read_only=bool(read_only),
            parents=_split(parents),
        ),
        born_us=int(str(born_us)),
        first_cursor=int(str(first_cursor)),
    )


def _join(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _split(text: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(",") if part)
