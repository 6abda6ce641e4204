"""The sink of another logstore: writes the rows of a query to it, or copies log groups to it byte by byte.

Rows are written as `loghub_consumer.log_groups` describes. The writer runs where the rows are: Spark's Python
processes encode and write them, in log groups of bounded size, and only return counts. It is the writer of a
data source because that is Spark's only way to pass Arrow to Python that does not need pandas.
`loghub_worker.query.spark_session` registers it. In a group that consumes in order, the rows of a shard are
written one after the other to the target shard that holds the first key of their shard, so that a reader of
the target finds them in their order.

A copied log group is neither decoded nor passed through Spark. The log groups of a shard are written one
after the other to the target shard that holds the first key of their shard, so that their order is kept.
After an error no later log group is written: the range counts as read up to the log group that failed, and
the next batch begins with it. Only a log group whose write was not answered, or was not saved in a checkpoint
before a crash, is written again.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from loghub.atomic_file import replace_file
from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubError, LogHubException
from loghub.wire.loggroup import split
from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import rejects_content
from loghub_consumer.log_groups import (
    CONTENTS,
    HASH_KEY,
    RESERVED,
    SHARD,
    SOURCE,
    TAGS,
    TIME,
    TIME_NS,
    TOPIC,
    LogGroupBuilder,
    Route,
    Row,
    number_of_logs,
    route_anywhere,
    route_by_hash_key,
    route_by_shard,
)
from loghub_consumer.log_service import (
    PIPELINE_FAILED,
    LogServiceAddress,
    put_log_group,
    shared_client,
    shared_shard_keys,
    to_reported_error,
)
from loghub_consumer.reading.answers import ShortReadError, require_count
from loghub_consumer.reading.shard_reader import (
    RangeCounts,
    ReadCount,
    ReadFailure,
    pull_range,
)
from loghub_consumer.writing import put_rows
from loghub_worker.sink.batch_sink import TIMES, AtLeastOnceSink

MAX_SHARDS_AT_ONCE = 8  # each has an answer of about 10 MiB in memory


class LogGroupCopier:
    """Copies ranges of one logstore. `begin_key` is the first hash key of a shard of the source."""

    def __init__(
        self,
        source: LogHub,
        logstore: str,
        *,
        target: LogHub,
        target_logstore: str,
        begin_key: Callable[[int], str],
    ) -> None:
        self._source = source
        self._logstore = logstore
        self._target = target
        self._target_logstore = target_logstore
        self._begin_key = begin_key

    def copy_all(self, ranges: Sequence[Range]) -> dict[Range, ReadCount]:
        """Copy ranges of different shards at the same time."""
        with ThreadPoolExecutor(min(MAX_SHARDS_AT_ONCE, len(ranges))) as pool:
            copies = {shard_range: pool.submit(self.copy, shard_range) for shard_range in ranges}
        return {shard_range: copy.result() for shard_range, copy in copies.items()}

    def copy(self, shard_range: Range) -> ReadCount:
        """Copy a range, up to the first error. It is no exception even if nothing could be copied: Spark
        would discard the batch, and the other shards would be copied again."""
        counts, copied = RangeCounts(), shard_range.begin
        try:
            hash_key = self._begin_key(shard_range.shard)
            for first_cursor, pulled in pull_range(self._source, self._logstore, shard_range, counts):
                log_groups = list(split(pulled.body))
                require_count(pulled.count, len(log_groups))
                for cursor, log_group in enumerate(log_groups, first_cursor):
                    if cursor >= shard_range.end:
                        break
                    copied, logs = cursor, number_of_logs(log_group)  # the log groups before it have expired
                    self._put(shard_range.shard, cursor, bytes(log_group), hash_key)
                    copied = cursor + 1
                    counts.logs += logs
                    counts.bytes += len(log_group)
        except (LogHubException, ShortReadError) as error:
            if copied == shard_range.begin:
                counts.failure = failure_of(error)
            else:
                counts.end = copied
        return counts.count()

    def _put(self, shard: int, cursor: int, log_group: bytes, hash_key: str) -> None:
        try:
            put_log_group(self._target, self._target_logstore, log_group, hash_key=hash_key)
        except LogHubError as error:
            message = f"{error.message}, from shard {shard} at cursor {encode_cursor(cursor)}"
            raise LogHubError(error.code, error.status, message, error.request_id) from error


def failure_of(error: LogHubException | ShortReadError) -> ReadFailure:
    """Why nothing of a range could be copied."""
    if isinstance(error, ShortReadError):
        return ReadFailure(rejected=False, reason=PIPELINE_FAILED, message=f"ShortReadError: {error}")
    reported = to_reported_error(error)
    return ReadFailure(rejected=rejects_content(error), reason=reported.reason, message=reported.message)


# The worker's own. `loghub` is the format of `loghub_spark`, which may be registered in the same session.
FORMAT = "loghub-worker"
# Where a log was read; not written.
POSITION = frozenset({"__cursor__", "__index__"})
TEXTS = MapType(StringType(), StringType())
_SHUFFLE = re.compile(r"(?<!Broadcast)Exchange|ShuffleQueryStage")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLogstore:
    """One logstore of a project."""

    address: LogServiceAddress
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write; ``count_file`` receives the number of rows once all of them are written. ``source`` is
    the logstore that is read."""

    target: TargetLogstore
    source: TargetLogstore
    count_file: str

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_option(value: str) -> "WriteOptions":
        fields = json.loads(value)
        target, source = (
            TargetLogstore(address=LogServiceAddress(**fields[name]["address"]), name=fields[name]["name"])
            for name in ("target", "source")
        )
        return WriteOptions(target=target, source=source, count_file=fields["count_file"])


@dataclass
class Put(WriterCommitMessage):
    """What one task has written."""

    rows: int


class LogstoreArrowWriter(DataSourceArrowWriter):
    """Writes the rows of each task. When a failed task is repeated, its rows are written again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        target = self.options.target
        written = put_rows(shared_client(target.address), target.name, iterator, self._builder)
        return Put(written.rows)

    def _builder(self, columns: list[str]) -> LogGroupBuilder:
        target, source = self.options.target, self.options.source
        route: Callable[[Row], Route] = route_anywhere
        if HASH_KEY in columns:
            route = route_by_hash_key(shared_client(target.address).list_shards(target.name))
        elif SHARD in columns:
            route = route_by_shard(shared_shard_keys(source.address, source.name).begin_key)
        return LogGroupBuilder(now_s=int(SystemClock().unix_s()), route=route)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        rows = sum(message.rows for message in messages if isinstance(message, Put))
        replace_file(Path(self.options.count_file), b"%d" % rows)


class LogstoreWriter:
    """Writes the rows of a DataFrame to a logstore. With `keep_order` the rows of each shard are written in
    the order in which the shard has them."""

    def __init__(
        self, target: TargetLogstore, source: TargetLogstore, *, keep_order: bool, scratch: Path
    ) -> None:
        self._options = WriteOptions(
            target=target, source=source, count_file=str(scratch.absolute() / "put-count")
        )
        self._keep_order = keep_order

    def put(self, result: DataFrame) -> int:
        """Write all rows and return their number. Each is written at least once. Raises `ValueError` for
        columns that cannot be written, or whose order is lost."""
        rows = wire_rows(result, keep_order=self._keep_order)
        writer = rows.write.format(FORMAT).mode("append")
        writer.option("settings", self._options.to_option()).save()
        return int(Path(self._options.count_file).read_bytes())


COPIED_LOGS = "logs"  # the column with the number of logs in the log groups that a range was copied as


class LogstoreRows(AtLeastOnceSink):
    """The rows in another logstore, at least once."""

    def __init__(self, writer: LogstoreWriter) -> None:
        self._writer = writer

    def check(self, empty: DataFrame) -> None:
        self._writer.put(empty)

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return self._writer.put(result)


class LogGroupCopies(AtLeastOnceSink):
    """The log groups themselves in another logstore, at least once. The source writes them where it reads
    them (`LogGroupCopier`), and yields the numbers of their logs."""

    def check(self, empty: DataFrame) -> None:
        """There is nothing to check: every log group is accepted as it is."""

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        return sum(row[COPIED_LOGS] for row in result.collect())


def wire_rows(result: DataFrame, *, keep_order: bool) -> DataFrame:
    """The rows as `LogGroupBuilder` takes them. Raises `ValueError` for columns that cannot be written, or
    whose order is lost."""
    rows = result.select(wire_columns(result.schema, keep_order=keep_order))
    if keep_order:
        require_order(rows)
    return rows


def wire_columns(schema: StructType, *, keep_order: bool) -> list[Column]:
    """The columns as `LogGroupBuilder` takes them. Raises `ValueError`."""
    types = {field.name: field.dataType for field in schema.fields}
    columns = [
        _text(name, kind)
        for name, kind in types.items()
        if name not in RESERVED | POSITION or (name == CONTENTS and not _is_map_of_texts(kind))
    ]
    columns += [
        column_named(name).cast("string").alias(name) for name in (TOPIC, SOURCE, HASH_KEY) if name in types
    ]
    columns += _time_columns(types)
    if TAGS in types and not _is_map_of_texts(types[TAGS]):
        raise ValueError(f"the column {TAGS} must be a map of strings, not {types[TAGS].simpleString()}")
    columns += [
        column_named(name).cast(TEXTS).alias(name)
        for name in (TAGS, CONTENTS)
        if _is_map_of_texts(types.get(name))
    ]
    if keep_order and HASH_KEY not in types:
        if not isinstance(types.get(SHARD), NumericType):
            raise ValueError(
                f"the group consumes in order, so the query must return the column {SHARD}, whose shard's"
                f" order is then kept, or {HASH_KEY}"
            )
        columns.append(column_named(SHARD))
    return columns


def _time_columns(types: dict[str, DataType]) -> list[Column]:
    """Unix seconds, and the nanoseconds below a second if anything tells them."""
    if TIME not in types:
        return []
    kind, time = types[TIME], column_named(TIME)
    nanoseconds = [column_named(TIME_NS).cast("int")] if TIME_NS in types else []
    if isinstance(kind, NumericType):
        return [time.cast("bigint").alias(TIME), *(column.alias(TIME_NS) for column in nanoseconds)]
    if isinstance(kind, TimestampType | DateType):
        micros = F.unix_micros(time.cast("timestamp"))
        # A timestamp of whole seconds has no nanoseconds, like most logs.
        below = F.nullif(F.pmod(micros, F.lit(1_000_000)) * 1000, F.lit(0)).cast("int")
        seconds = F.floor(micros / 1_000_000).cast("bigint")
        return [seconds.alias(TIME), F.coalesce(*nanoseconds, below).alias(TIME_NS)]
    raise ValueError(
        f"the column {TIME} must be a timestamp, a date or unix seconds, not {kind.simpleString()}"
    )


def _is_map_of_texts(kind: DataType | None) -> bool:
    if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return False
    return not isinstance(kind.valueType, MapType | StructType | ArrayType)


def _text(name: str, kind: DataType) -> Column:
    column = column_named(name)
    is_nested = isinstance(kind, MapType | StructType | ArrayType)
    text = F.to_json(column, TIMES) if is_nested else column.cast("string")
    return text.alias(name)


def column_named(name: str) -> Column:
    """The column of exactly this name."""
    return F.col(f"`{name.replace('`', '``')}`")


def require_order(rows: DataFrame) -> None:
    """Raise `ValueError` if the rows of a shard may lose their order. The source yields them in their order,
    in one task. Only an exchange of rows between tasks ends that."""
    plan: Any = rows._jdf.queryExecution().executedPlan()
    if _SHUFFLE.search(plan.toString()):
        raise ValueError(
            "the group consumes in order, and the pipeline moves rows between Spark's tasks (a repartition,"
            " or a join that is no broadcast join), which loses the order of a shard"
        )
