"""The claims of ranges in PostgreSQL: two tables in the schema of the sink's table, which say which ranges of
shards the table has, and which worker may deliver a shard.

``loghub_shards`` has one row for each shard: the token of the worker that opened it last.
``loghub_ranges`` has one row for each range that a batch delivered and no checkpoint is known to be past.

The rows of a batch and of its ranges are written in one transaction. Just before its end, the transaction
locks the rows of its shards and compares their tokens. What follows from that:

- A worker that opens a shard replaces the token and reads the ranges in one transaction, which waits for the
  lock. Either the batch was committed before, and the opener finds its range; or it was not, and the batch
  finds another token and is rolled back. So only the last opener of a shard delivers it, however long any
  process pauses between any two of its steps.
- The opener reads the ranges *before* it requests the checkpoint. A range that it no longer finds was
  removed because a checkpoint past it had been saved, so the checkpoint that it gets is past it too.
- Rows are removed only under the lock and by the last opener: those before a checkpoint that the service has
  accepted, and those at or after a checkpoint that was moved back on purpose.
- If the reply to COMMIT is lost, a worker that then takes the lock waits for the end of that transaction,
  and the row of the range says whether it was committed.
- The key of ``loghub_ranges`` admits one range for each begin. It refuses what the token should have refused
  before, for example after ``loghub_shards`` was edited.
"""

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.postgresql.database import Connection, lock_creation, missing_rights, table_identifier

SHARDS, RANGES = "loghub_shards", "loghub_ranges"
_GROUP = "project, logstore, consumer_group"
_CREATE = """
CREATE TABLE IF NOT EXISTS {shards} (
    project text, logstore text, consumer_group text, shard integer, created bigint, token text NOT NULL,
    PRIMARY KEY (project, logstore, consumer_group, shard, created));
CREATE TABLE IF NOT EXISTS {ranges} (
    project text, logstore text, consumer_group text, shard integer, created bigint,
    begins bigint, ends bigint NOT NULL, batch text NOT NULL,
    PRIMARY KEY (project, logstore, consumer_group, shard, created, begins))
"""
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class DeliveredRanges:
    """The statements on both tables, for one group. Each method is a part of the caller's transaction."""

    def __init__(self, schema: str, group_path: tuple[str, str, str]) -> None:
        self._schema = schema
        self._group = group_path
        self._names = {
            "shards": sql.Identifier(schema, SHARDS),
            "ranges": sql.Identifier(schema, RANGES),
            "group": sql.SQL(_GROUP),
        }

    def create(self, connection: Connection) -> None:
        """Create the tables if they do not exist. Raises `InvalidSinkError` if the user may not, or may not
        use them."""
        if any(self._identifier_of(connection, name) is None for name in (SHARDS, RANGES)):
            lock_creation(connection)
            try:
                connection.execute(self._sql(_CREATE))
            except psycopg.errors.InvalidSchemaName as error:
                raise InvalidSinkError(f"there is no schema {self._schema}: create it") from error
            except psycopg.errors.InsufficientPrivilege as error:
                raise InvalidSinkError(
                    f"the tables {SHARDS} and {RANGES} are missing in the schema {self._schema!r}, and the"
                    f" user may not create them ({error.diag.message_primary}): grant CREATE on the schema,"
                    " or create them as docs/sinks.md 3 says"
                ) from error
        for name in (SHARDS, RANGES):
            missing = missing_rights(connection, self._identifier_of(connection, name), _RIGHTS)
            if missing:
                raise InvalidSinkError(
                    f"the user may not {', '.join(missing)} in {name} of the schema {self._schema!r}"
                )

    def open(self, connection: Connection, shard: ShardIncarnation, token: str) -> list[tuple[int, int]]:
        """Make the owner of the token the one that may deliver the shard. Return begin and end of each range
        that is recorded for it."""
        connection.execute(
            self._sql(
                "INSERT INTO {shards} ({group}, shard, created, token) VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT ({group}, shard, created) DO UPDATE SET token = excluded.token"
            ),
            (*self._group, shard.shard, shard.created, token),
        )
        row = connection.execute(
            self._sql(
                "SELECT begins, ends FROM {ranges} WHERE ({group}, shard, created) = (%s, %s, %s, %s, %s)"
            ),
            (*self._group, shard.shard, shard.created),
        )
        return [(begins, ends) for begins, ends in row]

    def lock(self, connection: Connection, tokens: Mapping[ShardIncarnation, str]) -> None:
        """Keep these shards from being opened until the transaction ends. Raises `RangeTakenError` if one of
        them has another token."""
        shards = sorted(tokens, key=lambda shard: (shard.shard, shard.created))
        # Everyone locks in the same order. A row is read as it is once it is locked.
        rows = connection.execute(
            self._sql(
                "SELECT shard, created, token FROM {shards} WHERE ({group}) = (%s, %s, %s)"
                " AND (shard, created) IN (SELECT * FROM unnest(%s::integer[], %s::bigint[]))"
                " ORDER BY shard, created FOR UPDATE"
            ),
            (*self._group, [one.shard for one in shards], [one.created for one in shards]),
        )
        in_effect = {ShardIncarnation(shard=shard, created=created): token for shard, created, token in rows}
        for shard in shards:
            if in_effect.get(shard) != tokens[shard]:
                raise RangeTakenError(f"shard {shard.shard} was opened by another worker")

    def add(
        self, connection: Connection, batch: str, ranges: Sequence[tuple[ShardIncarnation, Range]]
    ) -> None:
        """Record the ranges of a batch. Raises `RangeTakenError` if a range of another batch begins where one
        of them does."""
        rows = [(one.shard, one.created, part.begin, part.end) for one, part in ranges]
        try:
            connection.execute(
                self._sql(
                    "INSERT INTO {ranges} ({group}, shard, created, begins, ends, batch)"
                    " SELECT %s, %s, %s, *, %s"
                    " FROM unnest(%s::integer[], %s::bigint[], %s::bigint[], %s::bigint[])"
                ),
                (*self._group, batch, *(list(column) for column in zip(*rows, strict=True))),
            )
        except psycopg.errors.UniqueViolation as error:
            raise RangeTakenError("another batch delivers one of the ranges") from error

    def remove_before(self, connection: Connection, checkpoints: Mapping[ShardIncarnation, int]) -> None:
        """Remove what begins before a checkpoint that the service has."""
        shards = list(checkpoints)
        connection.execute(
            self._sql(
                "DELETE FROM {ranges} r USING unnest(%s::integer[], %s::bigint[], %s::bigint[])"
                " AS c(shard, created, saved) WHERE ({group}) = (%s, %s, %s)"
                " AND (r.shard, r.created) = (c.shard, c.created) AND begins < saved"
            ),
            (
                [one.shard for one in shards],
                [one.created for one in shards],
                [checkpoints[one] for one in shards],
                *self._group,
            ),
        )

    def remove(self, connection: Connection, shard: ShardIncarnation, begins: Sequence[int]) -> None:
        """Let these ranges be delivered again."""
        connection.execute(
            self._sql(
                "DELETE FROM {ranges} WHERE ({group}, shard, created) = (%s, %s, %s, %s, %s)"
                " AND begins = ANY(%s)"
            ),
            (*self._group, shard.shard, shard.created, list(begins)),
        )

    def has(self, connection: Connection, batch: str, shard: ShardIncarnation, begin: int) -> bool:
        """Whether this batch has delivered the shard from this cursor on."""
        row = connection.execute(
            self._sql(
                "SELECT FROM {ranges} WHERE ({group}, shard, created, begins, batch)"
                " = (%s, %s, %s, %s, %s, %s, %s)"
            ),
            (*self._group, shard.shard, shard.created, begin, batch),
        )
        return row.fetchone() is not None

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(**self._names)

    def _identifier_of(self, connection: Connection, name: str) -> int | None:
        return table_identifier(connection, self._schema, name)
