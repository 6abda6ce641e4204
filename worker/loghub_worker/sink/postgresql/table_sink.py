"""The sink that writes rows into a table of PostgreSQL, each log exactly once.

Rows come from Spark through this process, in one stream of Arrow batches, into one COPY. Staging tables that
Spark's tasks fill cost more CPU time, and a killed worker would leave them behind
(docs/decisions/sinks.md)."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from loghub.sink_settings import PostgresqlSink
from loghub_worker.batch_plan import Range
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.postgresql.arrow_stream import arrow_batches
from loghub_worker.sink.postgresql.columns import copied
from loghub_worker.sink.postgresql.database import Database
from loghub_worker.sink.postgresql.delivered_ranges import DeliveredRanges
from loghub_worker.sink.postgresql.table import Table
from loghub_worker.sink.postgresql.transactions import Transactions
from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.resumption import CheckpointOrigin
from loghub_worker.sink.sink_credentials import SinkCredentials

_CHECK = "check"  # the name of a batch that is always aborted


class TableSink:
    """Rows in a table, each batch and range exactly once."""

    def __init__(
        self, database: Database, table: Table, transactions: Transactions, *, create_table: bool
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
        except RowsRejectedError as error:  # of a trigger that runs once for a statement
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
    credentials: SinkCredentials,
    *,
    group_path: tuple[str, str, str],
    owner: str,
    batch_timeout_s: float,
) -> TableSink:
    """The sink of these settings; `group_path` is project, logstore, group. Raises `InvalidSinkError`, or
    `OSError` if the database cannot be used."""
    database = Database(sink, credentials, client=f"loghub {owner}", statement_timeout_s=batch_timeout_s)
    database.check_credentials()
    table, ranges = Table(sink.schema, sink.table), DeliveredRanges(sink.schema, group_path)
    with database.transaction() as connection:
        ranges.create(connection)
        if not sink.create_table:
            table.check(connection)
    return TableSink(database, table, Transactions(database, ranges), create_table=sink.create_table)
