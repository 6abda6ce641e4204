"""Delivers batches of rows by transactions: the part of the sink that knows nothing of Spark.

The rows of a batch are copied, and its ranges recorded, in one transaction on the worker's one connection
(`loghub_worker.sink.postgresql.delivered_ranges` says why nothing is lost or doubled). It begins in `copy`
and ends in `publish`. Shards are opened by other threads, on a few more connections that end with it.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Sequence

import psycopg
import pyarrow as pa
import structlog
from psycopg import sql
from psycopg.pq import TransactionStatus

from loghub_worker.batch_plan import Range
from loghub_worker.sink.batch_sink import SinkUnreachableError
from loghub_worker.sink.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.postgresql.arrow_csv import csv_of
from loghub_worker.sink.postgresql.database import OPENING_CONNECTIONS, Database, close
from loghub_worker.sink.postgresql.delivered_ranges import Connection, DeliveredRanges
from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.resumption import CheckpointOrigin, continues_at, delivered_until

log = structlog.get_logger()


def _ignore_step(_step: str) -> None:
    """The default of `Transactions.at_step`."""


def _ignore_connection(_connection: Connection) -> None:
    """The default of `check` in `Transactions.copy`."""


class Transactions:
    """The transactions of one worker."""

    def __init__(
        self,
        database: Database,
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
            found = self._ranges.open(connection, shard, token)
            self._at_step("opening")
        self._at_step("opened")
        self._created[shard.shard] = shard.created
        self._tokens[shard] = token
        self._found[shard] = dict(found)

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
        """The ranges before it are removed with the next batch of the shard, in its transaction."""
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
        """Copy the rows of a batch by this statement, then check what it was copied to, and return their
        number. Raises `RowsRejectedError`, `OSError`, and what `check` raises."""
        try:
            with contextlib.closing(batches), self._begin(batch).cursor() as cursor:
                with cursor.copy(statement) as copy:
                    for one in batches:
                        copy.write(csv_of(one))
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
