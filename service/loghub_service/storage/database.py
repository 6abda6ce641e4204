"""Stores metadata, shard states and checkpoints in SQLite.

The database uses WAL with synchronous=FULL, so a commit is on stable storage when it returns. One
transaction contains all waiting facts, so waiting requests share one sync; the thread in `group_commit` calls
`Database.commit`. `schema` has the tables, and `rows` converts facts to rows and back.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from loghub.domain import group as domain
from loghub_service.errors import ServiceFault
from loghub_service.facts import (
    CatalogFact,
    ExpiryReached,
    FolderRemoved,
    KafkaGroupStepped,
    KnownEnd,
    LogstoreSaved,
    ProducerEpochSaved,
    ProducerLogMarked,
    ProjectSaved,
    SchemaSaved,
    ServiceFact,
)
from loghub_service.kafka.producers import SavedProducer
from loghub_service.pulsar.sequences import SavedSequence
from loghub_service.storage import kafka_rows, pulsar_rows, subscription_rows
from loghub_service.storage.rows import LOGSTORE_COLUMNS, WHOLE_LOGSTORE, entry_from, shard_from, statements
from loghub_service.storage.schema import SCHEMA_VERSION, SCHEMAS
from loghub_service.storage.subscription_rows import StoredSubscription
from loghub_service.subscription.cursor_format import BadSavedCursor

P = ParamSpec("P")
T = TypeVar("T")


class DatabaseUnusable(ServiceFault):
    """The metadata file has another schema version or is damaged; the message says which."""


class NewerSchema(DatabaseUnusable):
    """A newer release has written the metadata: it is not damaged, and nothing may be repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderHistory:
    """The data folder to which the metadata belongs, and how often the service has started on it.

    ``folder`` is "" before the first start. ``expiry`` is None before the first retention.
    """

    folder: str
    starts: int
    expiry: ExpiryReached | None
    min_cursor: int  # of every log that is created from now on


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedCursor:
    """A cursor that a consumer group or a subscription knows of a shard: a checkpoint, the end of a read-only
    shard, or where the last acknowledgment ends. ``known_by`` says which, in words."""

    logstore: int
    shard: int
    known_by: str
    cursor: int


def _readable(read: Callable[Concatenate["Database", P], T]) -> Callable[Concatenate["Database", P], T]:
    """A method that raises DatabaseUnusable if SQLite cannot read the file."""

    @wraps(read)
    def method(database: "Database", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(database, *args, **kwargs)
        except (apsw.Error, BadSavedCursor) as error:
            raise DatabaseUnusable(f"{database.path}: {error}") from error

    return method


class Database:
    """The metadata file. Open it once; `commit` must run on one thread at a time. Opening and every read
    raise DatabaseUnusable."""

    @_readable
    def __init__(self, path: str) -> None:
        self.path = path
        self._connection = apsw.Connection(path)
        self._prepare()

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
        # `close` must not remove the write-ahead log: only a clean stop that is recorded in the folder makes
        # it dispensable.
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = self._connection.pragma("user_version")
        if 0 <= version < SCHEMA_VERSION:
            with self._connection:
                run("".join(SCHEMAS[version:]))
                run(f"PRAGMA user_version={SCHEMA_VERSION}")
        elif version > SCHEMA_VERSION:
            raise NewerSchema(
                f"the metadata has schema version {version}, and this release knows {SCHEMA_VERSION}: use the"
                " release that has written it, or a newer one"
            )
        elif version < 0:
            raise DatabaseUnusable(f"{self.path} has schema version {version}, which no release has written")
        # A kill may have left a commit in the page cache only, so sync it before it is read.
        self.merge_write_ahead_log()

    @_readable
    def merge_write_ahead_log(self) -> None:
        """Make the file complete without its write-ahead log."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

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
        for sql, values in statements(fact):
            self._connection.execute(sql, values)

    @_readable
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
            LogstoreSaved(**dict(zip(LOGSTORE_COLUMNS, row, strict=True)))
            for row in run(f"SELECT {','.join(LOGSTORE_COLUMNS)} FROM logstore ORDER BY id")  # noqa: S608
        )
        facts.extend(shard_from(row) for row in run("SELECT * FROM shard ORDER BY logstore, shard"))
        return facts

    @_readable
    def next_logstore_id(self) -> int:
        """One more than the highest id ever assigned."""
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name='logstore'").fetchone()
        return int(row[0]) + 1 if row else 1

    @_readable
    def deletions(self) -> list[FolderRemoved]:
        """The deleted logstores and shards whose files are not removed yet."""
        rows = self._connection.execute("SELECT logstore, shard FROM deletion ORDER BY logstore, shard")
        return [
            FolderRemoved(logstore=logstore, shard=None if shard == WHOLE_LOGSTORE else shard)
            for logstore, shard in rows
        ]

    @_readable
    def known_ends(self) -> list[KnownEnd]:
        columns = ("logstore", "shard", "oldest_cursor", "end_cursor", "expired_logs")
        rows = self._connection.execute(f"SELECT {','.join(columns)} FROM log_end")  # noqa: S608
        return [KnownEnd(**dict(zip(columns, row, strict=True))) for row in rows]

    @_readable
    def deleted_names(self) -> dict[tuple[str, str], int]:
        """The next ordinals of deleted logstores by project and name, the oldest deletion first."""
        rows = self._connection.execute(
            "SELECT project, name, next_ordinal FROM deleted_name ORDER BY number"
        )
        return {(project, name): next_ordinal for project, name, next_ordinal in rows}

    @_readable
    def final_offsets(self) -> list[tuple[int, int, int]]:
        """The logstore, the number and the final offset of each deleted shard."""
        return list(self._connection.execute("SELECT logstore, shard, final_offset FROM final_offset"))

    @_readable
    def used_cursors(self) -> list[UsedCursor]:
        rows = self._connection.execute(
            "SELECT logstore, shard, name, max(coalesce(checkpoint, 0), coalesce(end_cursor, 0))"
            " FROM group_shard WHERE checkpoint IS NOT NULL OR end_cursor IS NOT NULL"
        )
        cursors = [
            UsedCursor(
                logstore=logstore,
                shard=shard,
                known_by=f"consumer group {group} has a checkpoint",
                cursor=cursor,
            )
            for logstore, shard, group, cursor in rows
        ]
        begins = {
            (logstore, shard): first_cursor - first_ordinal
            for logstore, shard, first_cursor, first_ordinal in self._connection.execute(
                "SELECT logstore, shard, first_cursor, first_ordinal FROM shard"
                " JOIN logstore ON logstore.id=shard.logstore"
            )
        }
        for logstore, shard, name, ordinal in subscription_rows.used_ordinals(self._connection):
            cursors.append(
                UsedCursor(
                    logstore=logstore,
                    shard=shard,
                    known_by=f"subscription {name} has an acknowledgment",
                    cursor=ordinal + begins[logstore, shard],
                )
            )
        return cursors

    @_readable
    def history(self) -> FolderHistory:
        values = dict(self._connection.execute("SELECT name, value FROM single_value"))
        expiry: ExpiryReached | None = None
        if "expiry_us" in values:
            unix_us = values["expiry_us"]
            # Earlier releases have not saved the times of the wall clock.
            wall_us, behind_us = values.get("expiry_wall_us", unix_us), values.get("expiry_behind_us", 0)
            expiry = ExpiryReached(unix_us=unix_us, wall_us=wall_us, behind_us=behind_us)
        return FolderHistory(
            folder=values.get("folder", ""),
            starts=values.get("starts", 0),
            expiry=expiry,
            min_cursor=values.get("least_cursor", 0),
        )

    @_readable
    def groups(self) -> list[tuple[int, str, float, bool]]:
        """(logstore id, name, timeout in seconds, ordered) of every group."""
        rows = self._connection.execute("SELECT logstore, name, timeout_s, ordered FROM consumer_group")
        return [(logstore, name, timeout_s, bool(ordered)) for logstore, name, timeout_s, ordered in rows]

    @_readable
    def group_entries(self, *, logstore: int, group: str) -> list[domain.ShardEntry]:
        rows = self._connection.execute(
            "SELECT * FROM group_shard WHERE logstore=? AND name=? ORDER BY shard", (logstore, group)
        )
        return [entry_from(row) for row in rows]

    @_readable
    def kafka_groups(self) -> list[KafkaGroupStepped]:
        """Every Kafka group with all its facts, as one step."""
        return kafka_rows.read_kafka_groups(self._connection)

    @_readable
    def producers(self) -> list[SavedProducer]:
        """The state of idempotent producers, least recently used first."""
        return kafka_rows.read_producers(self._connection)

    @_readable
    def producer_marks(self) -> list[ProducerLogMarked]:
        """The places from which the logs have later batches of producers."""
        return kafka_rows.read_marks(self._connection)

    @_readable
    def sequences(self) -> list[SavedSequence]:
        """What producers of Pulsar with a name have stored, the one unused for longest first."""
        return pulsar_rows.read_sequences(self._connection)

    @_readable
    def schemas(self) -> list[SchemaSaved]:
        """The schemas of Pulsar's topics, by logstore and version."""
        return pulsar_rows.read_schemas(self._connection)

    @_readable
    def producer_epochs(self) -> list[ProducerEpochSaved]:
        """The epochs of the last exclusive producers."""
        return pulsar_rows.read_epochs(self._connection)

    @_readable
    def subscriptions(self) -> list[StoredSubscription]:
        """Every subscription with the cursors of its shards."""
        return subscription_rows.read_subscriptions(self._connection)

    def close(self) -> None:
        with suppress(apsw.Error):
            self._connection.close()
