"""Sinks without their targets, to check and to try a pipeline where nothing may be written.

Files and Delta tables are written by their own sinks into an empty folder of this process: partitions, types
and names of columns are as in the target. For the other sinks the rows are computed in the form in which they
would be sent, and go nowhere. What only the target knows is not checked: the columns of a table that exists,
whether a topic exists, whether the credentials are valid.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import assert_never

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    JsonSink,
    KafkaSink,
    LogstoreSink,
    NoSink,
    ParquetSink,
    PostgresqlSink,
    SparkSink,
)
from loghub.contract.worker import CopyPipeline, WorkerConfig
from loghub_consumer.log_service import LogServiceAddress
from loghub_worker.sink.batch_sink import TIMES, AtLeastOnceSink, BatchSink, InvalidSinkError
from loghub_worker.sink.sinks import make_sink

Form = Callable[[DataFrame], DataFrame]
# Of a sink that contacts no log service.
_NOWHERE = LogServiceAddress(endpoint="", project="", credentials_dir="")


class RowsInForm(AtLeastOnceSink):
    """Computes the rows in the form in which a sink sends them."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def check(self, empty: DataFrame) -> None:
        self._compute(empty)

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        self._compute(result)
        return result.count()

    def _compute(self, rows: DataFrame) -> None:
        # All columns of all rows: with `count`, Spark would leave out what it does not need.
        self._form(rows).write.format("noop").mode("overwrite").save()


def make_dry_sink(config: WorkerConfig, folder: Path) -> BatchSink:
    """A sink that takes the rows which the sink of these settings takes. It writes below `folder`, which is
    empty, or nowhere. Raises `InvalidSinkError`."""
    if isinstance(config.sink, ParquetSink | JsonSink | DeltaSink):
        _require_place(config.sink)
        here = msgspec.structs.replace(config.sink, path=str(folder.absolute()), s3=None)
        local = msgspec.structs.replace(config, sink=here)
        return make_sink(local, consumer="dry-run", source=_NOWHERE, scratch=folder.parent)
    return RowsInForm(_form(config))


def _require_place(sink: ParquetSink | JsonSink | DeltaSink) -> None:
    """What a path must be by itself."""
    from loghub_worker.sink.files.sink import require_path

    if isinstance(sink, DeltaSink):
        from loghub_worker.sink.delta.sink import require_table_path

        require_table_path(sink.path)
    else:
        require_path(sink.path)


def _form(config: WorkerConfig) -> Form:
    match config.sink:
        case KafkaSink():
            from loghub_worker.sink.kafka import records_in_order

            return partial(records_in_order, config.sink)
        case LogstoreSink(keep_order=keep_order):
            if isinstance(config.pipeline, CopyPipeline):
                return lambda rows: rows
            from loghub_worker.sink.logstore.sink import wire_rows

            return partial(wire_rows, keep_order=keep_order)
        case PostgresqlSink():
            return _copied
        case ConsoleSink():
            return lambda rows: rows.select(F.to_json(F.struct("*"), TIMES))
        case SparkSink():
            return lambda rows: rows
        case ParquetSink() | JsonSink() | DeltaSink() | NoSink() as other:
            raise AssertionError(f"{type(other).__name__} sends no rows")
        case unknown:
            assert_never(unknown)


def _copied(rows: DataFrame) -> DataFrame:
    from loghub_worker.sink.postgresql.table import copied, problems_of_names

    if messages := problems_of_names(rows.schema):
        raise InvalidSinkError("; ".join(messages))
    return rows.select([copied(field) for field in rows.schema.fields])
