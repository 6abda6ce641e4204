"""The rows of a DataFrame in the form of `loghub_consumer.log_groups`: times in unix seconds and the
nanoseconds below, everything else as text.

A writer of Spark gets the rows unchanged, so the conversion is done here and not by Spark. Texts have the
form of JSON: 1.5, true, {"a": 1}. Times have the form of ISO 8601, in UTC. A null is omitted.
"""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loghub_consumer.log_groups import CONTENTS, HASH_KEY, SHARD, SOURCE, TAGS, TIME, TIME_NS, TOPIC
from loghub_spark.options import OptionError

# Where a log was read; not written.
POSITION = frozenset({SHARD, "__cursor__", "__index__"})
TEXTS = pa.map_(pa.string(), pa.string())
_MICROSECONDS = 1_000_000
_LAST_SECOND = 2**32 - 1  # of 32 bits


def check(schema: pa.Schema) -> None:
    """Raise `OptionError` for a column that cannot be written."""
    problems = {
        TIME: (
            lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind),
            "a timestamp, a date or whole unix seconds",
        ),
        TIME_NS: (pa.types.is_integer, "the nanoseconds below a second, as a whole number"),
        TAGS: (_is_map_of_scalars, "a map of texts"),
        TOPIC: (_is_scalar, "a text"),
        SOURCE: (_is_scalar, "a text"),
        HASH_KEY: (_is_text, "a text of 32 hex digits, such as md5(...) returns"),
    }
    for field in schema:
        accepts, form = problems.get(field.name, (None, ""))
        if accepts is not None and not (accepts(field.type) or pa.types.is_null(field.type)):
            raise OptionError(f"the column {field.name} must be {form}, not {field.type}")
    if not set(schema.names) - POSITION:
        raise OptionError("there is no column to write")


def to_wire(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch whose schema `check` accepts."""
    columns: dict[str, pa.Array] = {}
    below: pa.Array | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in POSITION:
            continue
        if name == TIME:
            columns[TIME], below = _time(column)
            _require_times(columns[TIME])
        elif name == TIME_NS:
            columns[TIME_NS] = column.cast(pa.int32())
        elif name in (TAGS, CONTENTS) and pa.types.is_map(column.type):
            columns[name] = _texts_of_map(column)
        else:
            columns[name] = _text(column)
    if below is not None:
        time_column = columns.get(TIME_NS)
        columns[TIME_NS] = below if time_column is None else pc.coalesce(time_column, below)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _time(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Unix seconds, and the nanoseconds below if the time has them. A time of whole seconds has none, like
    most logs."""
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.int64()), None
    micros = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None))).cast(pa.int64())
    # Arrow's division truncates, and a time before 1970 is negative.
    truncated = pc.divide(micros, _MICROSECONDS)
    is_less = pc.less(pc.subtract(micros, pc.multiply(truncated, _MICROSECONDS)), 0)
    seconds = pc.subtract(truncated, is_less.cast(pa.int64()))
    nanoseconds = pc.multiply(pc.subtract(micros, pc.multiply(seconds, _MICROSECONDS)), 1_000)
    return seconds, pc.if_else(pc.equal(nanoseconds, 0), None, nanoseconds).cast(pa.int32())


def _require_times(seconds: pa.Array) -> None:
    """Raises `ValueError` for a time that no log can have."""
    outside = pc.or_(pc.less(seconds, 0), pc.greater(seconds, _LAST_SECOND))
    row = pc.index(outside, True).as_py()
    if row >= 0:
        value = seconds[row].as_py()
        raise ValueError(
            f"the column {TIME} has {value} in row {row} of a batch of {len(seconds)}: the time of a log is"
            " in whole seconds from 1970-01-01 to 2106-02-07T06:28:15Z; change it in the query, for example"
            " to null, which is the present, or filter such rows"
        )


def _texts_of_map(column: pa.Array) -> pa.Array:
    if column.type.equals(TEXTS):
        return column
    pairs = column.to_pylist()
    texts = [None if row is None else [(_to_text(k), _to_text(v)) for k, v in row] for row in pairs]
    return pa.array(texts, TEXTS)


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_float32(kind):
        return column.cast(pa.string())  # 0.1 and not the double next to it
    return pa.array([_to_text(value) for value in column.to_pylist()], pa.string())


def _to_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bool | int | float | dict | list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False, default=_to_text, separators=(",", ":"))
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def _plain(value: Any) -> Any:
    """A map arrives as a list of pairs, and is an object in JSON."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, tuple) for part in value):
        return {_to_text(key): _plain(part) for key, part in value}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _is_map_of_scalars(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and _is_scalar(kind.item_type)
