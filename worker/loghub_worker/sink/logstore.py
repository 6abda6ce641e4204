"""Writes the rows of a query to another logstore, as `loghub_worker.sink.log_groups` describes.

The writer runs where the rows are: Spark's Python processes encode and write them, in log groups of bounded
size, and only return counts. It is the writer of a data source because that is Spark's only way to pass Arrow
to Python that does not need pandas. `loghub_worker.source.datasource` registers it.

In a group that consumes in order, the rows of a shard are written one after the other to the target shard
that holds the first key of their shard, so that a reader of the target finds them in their order."""

import json
import re
from collections.abc import Callable, Iterator
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
from loghub.clock import SystemClock
from loghub_worker.log_service import Address, shared_client, shared_shard_keys
from loghub_worker.sink.json_times import TIMES
from loghub_worker.sink.log_groups import (
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
    route_anywhere,
    route_by_hash_key,
    route_by_shard,
)
from loghub_worker.sink.put_rows import put_rows

# The worker's own. `loghub` is the format of `loghub_spark`, which may be registered in the same session.
FORMAT = "loghub-worker"
# Where a log was read; not written.
POSITION = frozenset({"__cursor__", "__index__"})
TEXTS = MapType(StringType(), StringType())
_SHUFFLE = re.compile(r"(?<!Broadcast)Exchange|ShuffleQueryStage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logstore:
    """One logstore of a project."""

    address: Address
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write; ``count_file`` receives the number of rows once all of them are written. ``source`` is
    the logstore that is read."""

    target: Logstore
    source: Logstore
    count_file: str

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_option(value: str) -> "WriteOptions":
        fields = json.loads(value)
        target, source = (
            Logstore(address=Address(**fields[name]["address"]), name=fields[name]["name"])
            for name in ("target", "source")
        )
        return WriteOptions(target=target, source=source, count_file=fields["count_file"])


@dataclass
class Put(WriterCommitMessage):
    """What one task has written."""

    rows: int


class LogstoreArrowWriter(DataSourceArrowWriter):
    """Writes the rows of each task. What a failed task has already written is written again."""

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

    def __init__(self, target: Logstore, source: Logstore, *, keep_order: bool, scratch: Path) -> None:
        self._options = WriteOptions(
            target=target, source=source, count_file=str(scratch.absolute() / "put-count")
        )
        self._keep_order = keep_order

    def put(self, result: DataFrame) -> int:
        """Write all rows and return their number. Each is written at least once. Raises `ValueError` for
        columns that cannot be written, or whose order is lost."""
        rows = result.select(wire_columns(result.schema, keep_order=self._keep_order))
        if self._keep_order:
            require_order(rows)
        writer = rows.write.format(FORMAT).mode("append")
        writer.option("settings", self._options.to_option()).save()
        return int(Path(self._options.count_file).read_bytes())


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
    given = [column_named(TIME_NS).cast("int")] if TIME_NS in types else []
    if isinstance(kind, NumericType):
        return [time.cast("bigint").alias(TIME), *(column.alias(TIME_NS) for column in given)]
    if isinstance(kind, TimestampType | DateType):
        micros = F.unix_micros(time.cast("timestamp"))
        # A timestamp of whole seconds has no nanoseconds, like most logs.
        below = F.nullif(F.pmod(micros, F.lit(1_000_000)) * 1000, F.lit(0)).cast("int")
        seconds = F.floor(micros / 1_000_000).cast("bigint")
        return [seconds.alias(TIME), F.coalesce(*given, below).alias(TIME_NS)]
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
