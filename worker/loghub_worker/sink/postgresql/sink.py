"""The sink that writes rows into a table of PostgreSQL, each log exactly once.

The rows of a batch are copied, and its ranges recorded, in one transaction on the worker's one connection
(`loghub_worker.sink.postgresql.delivered_ranges` says why nothing is lost or doubled). It begins in `copy`
and ends in `publish`. Shards are opened by other threads, on a few more connections that end with it.

Rows come from Spark through this process, in one stream of Arrow batches, into one COPY, as CSV with quoted
texts and empty nulls. Staging tables that Spark's tasks fill cost more CPU time, and a killed worker would
leave them behind (docs/decisions/sinks.md). `DataFrame.toArrow` returns the same batches in one table, which
would be too large for the batch of many shards. Here the rows of one task are together in Spark's JVM, and at
most 10,000 of them in this process.
"""

import contextlib
import io
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import structlog
from psycopg import sql
from psycopg.pq import TransactionStatus
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import _load_from_socket

from loghub.contract.sinks import PostgresqlSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation, continues_at, delivered_until
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.postgresql.database import (
    OPENING_CONNECTIONS,
    Connection,
    SinkDatabase,
    close,
)
from loghub_worker.sink.postgresql.delivered_ranges import DeliveredRanges
from loghub_worker.sink.postgresql.table import SinkTable, copied
from loghub_worker.sink.sink_start import CredentialFiles

log = structlog.get_logger()


_OPTIONS = pa.csv.WriteOptions(include_header=False)
# Arrow writes years with 16 bits, so that later years become other years, which the database takes. Years
# before 1 get a form that the database refuses.
_FIRST_DAY, _LAST_DAY = -719_162, 11_248_737  # since 1970: 0001-01-01 and 32767-12-31
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def csv_of(batch: pa.RecordBatch) -> memoryview:
    """The rows as UTF-8. Raises `RowsRejectedError` if there is a date or time that has no text."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _require_years(name, column)
    text = io.BytesIO()
    pa.csv.write_csv(batch, text, _OPTIONS)
    return text.getbuffer()


def _require_years(name: str, column: pa.Array) -> None:
    if pa.types.is_date32(column.type):
        numbers, day = column.cast(pa.int32()), 1
    elif pa.types.is_timestamp(column.type):
        numbers, day = column.cast(pa.int64()), _DAY[column.type.unit]
    else:
        return
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None:  # nulls only
        return
    # The last day of the last year is left to the time zone.
    if bounds["min"] < _FIRST_DAY * day or bounds["max"] >= _LAST_DAY * day:
        raise RowsRejectedError(
            f"the column {name!r} has a date or time before the year 1 or after 32767, perhaps because"
            " milliseconds were taken for seconds: change it in the query"
        )


def arrow_batches(rows: DataFrame) -> Generator[pa.RecordBatch, None, None]:
    """The batches, in any order. Raises Spark's errors."""
    port, secret, server = rows._jdf.collectAsArrowToPython()
    serializer: Any = ArrowCollectSerializer()  # type: ignore[no-untyped-call]
    try:
        with _load_from_socket((port, secret), serializer) as stream:
            try:
                # The last item is the order of the batches.
                yield from (batch for batch in stream if isinstance(batch, pa.RecordBatch))
            except GeneratorExit:
                # The reader has failed. The job ends first, so that none of it runs during the next batch.
                with suppress(Exception):
                    for _ in stream:
                        pass
                raise
    finally:
        # The error that was raised in the JVM; the broken stream is only its consequence.
        with unwrap_spark_exception():
            server.getResult()


def _ignore_step(_step: str) -> None:
    """The default of `Transactions.at_step`."""


def _ignore_connection(_connection: Connection) -> None:
    """The default of `check` in `Transactions.copy`."""


class Transactions:
    """The transactions of one worker."""

    def __init__(
        self,
        database: SinkDatabase,
        ranges: DeliveredRanges,
        *,
        at_step: Callable[[str], None] = _ignore_step,
    ) -> None:
        """`at_step` is called after each step with its name (tests end or hold the process there)."""
        self._database = database
        self._ranges = ranges
        self._at_step = at_step
        self._tokens: dict[ShardIncarnation, str] = {}
        self._created: dict[int, int] = {}
        self._found: dict[ShardIncarnation, dict[int, int]] = {}  # ends by begin, of shards being opened
        self._opening = threading.Semaphore(OPENING_CONNECTIONS)
        self._lock = threading.Lock()  # of `_saved`, which several threads change
        self._saved: dict[ShardIncarnation, int] = {}  # checkpoints before which ranges are still recorded
        self._connection: Connection | None = None
        self._batch = ""  # whose transaction is open

    # -- shards, in the shard manager's threads

    def open_shard(self, shard: ShardIncarnation) -> None:
        token = secrets.token_hex(16)
        with self._opening, self._database.transaction() as connection:
            position = self._ranges.open(connection, shard, token)
            self._at_step("opening")
        self._at_step("opened")
        self._created[shard.shard] = shard.created
        self._tokens[shard] = token
        self._found[shard] = dict(position)

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        ends = self._found.pop(shard)
        confirm()
        self._at_step("confirmed")
        position = continues_at(delivered_until(ends, checkpoint, origin), checkpoint, origin)
        # Left from before the checkpoint was moved back on purpose: these are delivered again.
        again = [begin for begin, end in ends.items() if end > position]
        if again:
            self._allow_redelivery(shard, again)
        return position

    def _allow_redelivery(self, shard: ShardIncarnation, begins: Sequence[int]) -> None:
        with self._opening, self._database.transaction() as connection:
            try:
                self._ranges.lock(connection, {shard: self._tokens[shard]})
            except RangeTakenError:
                # The worker that opened the shard since decides; this one will deliver nothing of it.
                return
            self._ranges.remove(connection, shard, begins)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The ranges before the checkpoint are removed with the next batch of the shard, in its
        transaction."""
        with self._lock:
            self._saved[self._incarnation(shard)] = checkpoint

    # -- batches, in the query's thread

    def copy(
        self,
        batch: str,
        statement: sql.Composed,
        batches: Generator[pa.RecordBatch, None, None],
        *,
        check: Callable[[Connection], None] = _ignore_connection,
    ) -> int:
        """Copy the rows of a batch by this statement, then check the table, and return the number of rows.
        Raises `RowsRejectedError`, `OSError`, and what `check` raises."""
        try:
            with contextlib.closing(batches), self._begin(batch).cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for arrow_batch in batches:
                        copy.write(csv_of(arrow_batch))
                check(cursor.connection)
                self._at_step("copied")
                return max(cursor.rowcount, 0)
        except psycopg.Error as error:
            raise self._database.translated(error, with_rows=True) from error

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        pairs = sorted(((self._incarnation(one.shard), one) for one in ranges), key=lambda pair: pair[1])
        try:
            # A batch that only skips log groups has written nothing.
            connection = self._connection if self._batch == batch else self._begin(batch)
            assert connection is not None  # as long as a batch is open
            self._ranges.lock(connection, {one: self._tokens.get(one, "") for one, _ in pairs})
            self._at_step("locked")
            if not may_commit():
                raise SessionLostError
            self._ranges.add(connection, batch, pairs)
            saved = self._take_saved(one for one, _ in pairs)
            if saved:
                self._ranges.remove_before(connection, saved)
            self._at_step("recorded")
        except psycopg.Error as error:
            self.abort(batch)
            raise self._database.translated(error) from error
        except BaseException:
            self.abort(batch)
            raise
        self._commit(connection, batch, pairs)
        self._at_step("committed")

    def abort(self, batch: str) -> None:
        if self._batch == batch and self._connection is not None:
            self._batch = ""
            try:
                self._connection.rollback()
            except psycopg.Error:
                self._disconnect()

    def _commit(
        self, connection: Connection, batch: str, pairs: Sequence[tuple[ShardIncarnation, Range]]
    ) -> None:
        if connection.info.transaction_status is not TransactionStatus.INTRANS:
            # COMMIT would then roll back, and succeed.
            self._disconnect()
            raise SinkUnreachableError(f"{self._database}: the transaction of batch {batch} has failed")
        try:
            connection.commit()
        except psycopg.Error as error:
            # As for a constraint that is checked at the end. What ends the session is no answer.
            is_answered = error.diag.severity_nonlocalized == "ERROR"
            self._disconnect()
            if is_answered or not self._is_committed(batch, pairs):
                raise self._database.translated(error, with_rows=True) from error
            log.warning("the reply to COMMIT was lost; the batch is committed", batch=batch)
        self._batch = ""

    def _is_committed(self, batch: str, pairs: Sequence[tuple[ShardIncarnation, Range]]) -> bool:
        """Whether a batch is committed to whose COMMIT there was no reply. If this cannot be found out now,
        the error is raised: the batch is planned again, finds its own range or not, and then its shards are
        opened again."""
        first, its_range = pairs[0]
        with self._database.transaction() as connection:
            # The transaction in question has these locks until it ends; if another worker has opened a shard
            # since, that one had them.
            with contextlib.suppress(RangeTakenError):
                self._ranges.lock(connection, {one: self._tokens.get(one, "") for one, _ in pairs})
            return self._ranges.has(connection, batch, first, its_range.begin)

    def _take_saved(self, shards: Iterable[ShardIncarnation]) -> dict[ShardIncarnation, int]:
        with self._lock:
            return {one: self._saved.pop(one) for one in shards if one in self._saved}

    def _incarnation(self, shard: int) -> ShardIncarnation:
        return ShardIncarnation(shard=shard, created=self._created[shard])

    def _begin(self, batch: str) -> Connection:
        """The connection, in a new transaction of this batch. One that was idle may have ended."""
        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.rollback()
                self._database.begin(self._connection)
            except psycopg.OperationalError:
                self._disconnect()
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect()
            self._database.begin(self._connection)
        self._batch = batch
        return self._connection

    def _disconnect(self) -> None:
        self._batch = ""
        if self._connection is not None:
            close(self._connection)
        self._connection = None


_CHECK = "check"  # the name of a batch that is always aborted


class TableSink:
    """Rows in a table, each batch and range exactly once."""

    def __init__(
        self, database: SinkDatabase, table: SinkTable, transactions: Transactions, *, create_table: bool
    ) -> None:
        self._database = database
        self._table = table
        self._transactions = transactions
        self._create_table = create_table

    def check(self, empty: DataFrame) -> None:
        with self._database.transaction() as connection:
            if self._create_table:
                self._table.create(connection, empty.schema)
            self._table.check(connection)
            self._table.check_columns(connection, empty.schema)
        try:
            self.write(empty, _CHECK)
        except RowsRejectedError as error:  # a trigger that runs once for a statement may raise it
            raise InvalidSinkError(f"a batch without rows fails: {error}") from error
        finally:
            self.abort(_CHECK)

    def open_shard(self, shard: ShardIncarnation) -> None:
        self._transactions.open_shard(shard)

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        return self._transactions.resume(shard, checkpoint, confirm=confirm, origin=origin)

    def write(self, result: DataFrame, batch: str) -> int:
        rows = result.select([copied(field) for field in result.schema.fields])
        statement = self._table.copy_statement(rows.columns)
        return self._transactions.copy(
            batch,
            statement,
            arrow_batches(rows),
            check=lambda connection: self._table.check_again(connection, result.schema),
        )

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        self._transactions.publish(batch, ranges, may_commit)

    def abort(self, batch: str) -> None:
        self._transactions.abort(batch)

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        self._transactions.acknowledge(shard, checkpoint)


def make_table_sink(
    sink: PostgresqlSink,
    credentials: CredentialFiles,
    *,
    group_path: tuple[str, str, str],
    owner: str,
    batch_timeout_s: float,
) -> TableSink:
    """The sink of these settings; `group_path` is project, logstore, group. Raises `InvalidSinkError`, or
    `OSError` if the database cannot be used."""
    database = SinkDatabase(sink, credentials, client=f"loghub {owner}", statement_timeout_s=batch_timeout_s)
    database.check_credentials()
    table, ranges = SinkTable(sink.schema, sink.table), DeliveredRanges(sink.schema, group_path)
    with database.transaction() as connection:
        ranges.create(connection)
        if not sink.create_table:
            table.check(connection)
    return TableSink(database, table, Transactions(database, ranges), create_table=sink.create_table)
