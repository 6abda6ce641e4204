"""The columns of the rows: the columns of the view `logs`, or the columns that the user declares with
``.schema(...)``.

A declared column has the name of a column of the view, whose type it must have, or is a key of the contents,
whose text is converted to its type. Other columns are not decoded and never reach the JVM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from loghub_consumer.reading.decoding import SCHEMA, Selection
from loghub_spark.casts import days_of, decimal_of, microseconds_of
from loghub_spark.options import LogstoreError, OptionError

CURSOR = "__cursor__"
VIEW: StructType = from_arrow_schema(SCHEMA)
SHOWN_CHARS = 60  # enough to recognize the value; an error stays one line


@dataclass(frozen=True)
class ReadColumns:
    """The columns to read, with their types in Arrow. A text that is no value of its column's type fails the
    read if `fail_fast`, and becomes null otherwise."""

    schema: pa.Schema
    fail_fast: bool

    @property
    def selection(self) -> Selection:
        """The columns for the decoder: always with the cursor, by which a range is cut to its end."""
        view = tuple(name for name in self.schema.names if name in SCHEMA.names)
        keys = tuple(name for name in self.schema.names if name not in SCHEMA.names)
        return Selection(view=view if CURSOR in view else (*view, CURSOR), keys=keys)

    def convert(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that the decoder made, with the declared types and order."""
        cursors = rows.column(CURSOR)
        columns = [
            rows.column(field.name)
            if field.name in SCHEMA.names
            else self._typed(rows.column(field.name), field, cursors)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _typed(self, texts: pa.Array, field: pa.Field, cursors: pa.Array) -> pa.Array:
        if pa.types.is_string(field.type):
            return texts
        if pa.types.is_binary(field.type):
            return texts.cast(pa.binary())
        if (numbers := _numbers(texts, field.type)) is not None:
            return numbers
        distinct = texts.dictionary_encode()
        values = [_value(text, field.type) for text in distinct.dictionary.to_pylist()]
        if self.fail_fast and None in values:
            wrong = values.index(None)
            cursor = cursors[pc.index(distinct.indices, wrong).as_py()].as_py()
            raise LogstoreError(
                f"column {field.name}: {distinct.dictionary[wrong].as_py()[:SHOWN_CHARS]!r} at cursor"
                f" {cursor} is no {field.type}; declare another type, or set the option mode to PERMISSIVE,"
                " by which it is null"
            )
        return _array(values, field.type).take(distinct.indices)


def columns_of(schema: StructType, *, fail_fast: bool) -> ReadColumns:
    """The columns of a schema. Raises `OptionError` for a schema that cannot be read."""
    names = [name.lower() for name in schema.names]
    for declared in schema.fields:
        name = declared.name
        if names.count(name.lower()) > 1:
            raise OptionError(f"column {name} is declared twice")
        own = VIEW[name].dataType if name in VIEW.names else None
        if own is not None and declared.dataType != own:
            raise OptionError(
                f"column {name} is {own.simpleString()}, not {declared.dataType.simpleString()}; cast it in"
                " the query"
            )
        if name.startswith("__") and name.endswith("__") and own is None:
            raise OptionError(f"there is no column {name}; the data source has {', '.join(VIEW.names)}")
        if not declared.nullable:
            raise OptionError(f"column {name} must be nullable: a log need not have every key")
    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except Exception as error:
        raise OptionError(f"the declared schema has a type that cannot be read: {error}") from error
    for field in arrow:
        if field.name not in SCHEMA.names and not _is_supported(field.type):
            raise OptionError(
                f"column {field.name} cannot be {field.type}: declare it as STRING and take it apart in the"
                " query, for example by from_json"
            )
    return ReadColumns(arrow, fail_fast)


def _is_supported(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind) or _parser(kind) is not None


def _numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The numbers of texts that are all plain numbers, without an object for each; otherwise None."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    if pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        return None  # Arrow also reads hexadecimal numbers
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _value(text: str, kind: pa.DataType) -> Any:
    """The value of a text, or None if it is no value of this type. Dates and times are the numbers that Arrow
    has for them."""
    parse = _parser(kind)
    assert parse is not None  # `columns_of` has refused such a type
    try:
        value = parse(text)
        return value if pa.types.is_temporal(kind) else pa.scalar(value, kind).as_py()
    except (ValueError, ArithmeticError, pa.ArrowException):
        return None


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.array(values, kind)


def _parser(kind: pa.DataType) -> Callable[[str], Any] | None:
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return partial(decimal_of, precision=kind.precision, scale=kind.scale)
    if pa.types.is_date(kind):
        return days_of
    if pa.types.is_timestamp(kind):
        return partial(microseconds_of, in_utc=kind.tz is not None)
    return None


def _boolean(text: str) -> bool:
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    return _no() if value is None else value


def _no() -> Any:
    raise ValueError("no value of this type")


def _integer(text: str) -> int:
    return int(text) if text.isascii() and "_" not in text else _no()


def _float(text: str) -> float:
    return float(text) if text.isascii() and "_" not in text else _no()
