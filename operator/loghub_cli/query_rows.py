"""Rows of a query's result as a table, lines of JSON, CSV or a file of Parquet.

A table is for people: a long cell is cut, and only the first rows are shown. The other formats have whole
values, and are written while the query runs, so a large result needs little memory.

In all but Parquet, times are ISO 8601 (with Z if they are instants), and bytes that are not UTF-8 are shown
as ``\\xNN``, as everywhere in `loghub`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol

import click
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from loghub_cli.output import Failed, aligned, is_numeric, on_one_line

TABLE_ROWS = 100  # more are read by a program, or not at all
CELL_CHARS = 100  # of a value in a table; the line of a terminal has about as many


class RowFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class RowWriter(Protocol):
    """Writes the rows of one result to standard output."""

    def write(self, rows: pa.RecordBatch) -> None: ...

    def end(self) -> None:
        """``more``: there are rows that were not written."""


def writer_of(form: RowFormat, schema: pa.Schema) -> RowWriter:
    """Raises click.UsageError if the format is not one for a terminal."""
    names = _distinct(schema.names)
    if form is RowFormat.JSON:
        return _JsonWriter(names)
    if form is RowFormat.CSV:
        return _CsvWriter(names)
    if form is RowFormat.TABLE:
        return _TableWriter(names)
    if sys.stdout.isatty():
        raise click.UsageError("-o parquet writes a file: redirect it, as in > logs.parquet")
    fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
    return _ParquetWriter(pa.schema(fields))


def _distinct(names: Sequence[str]) -> list[str]:
    """SELECT 1 AS a, 2 AS a has two columns of one name, of which an object could keep one."""
    found: list[str] = []
    for name in names:
        number, distinct = 1, name
        while distinct in found:
            number += 1
            distinct = f"{name}_{number}"
        found.append(distinct)
    return found


class _TableWriter:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._rows: list[list[Any]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += _rows(rows)

    def end(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._names)
        right = [is_numeric(column) or _is_decimal(column) for column in columns]
        cells = [[_cell(value) for value in row] for row in self._rows]
        click.echo(aligned([on_one_line(name) for name in self._names], cells, right=right))


def _is_decimal(column: Sequence[Any]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(value, Decimal) for value in values)


def _cell(value: Any) -> str:
    text = "-" if value is None else on_one_line(_text(value))
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]} (+{len(text) - CELL_CHARS:,})"


def _text(value: Any) -> str:
    """Writes a value as DuckDB does: ``{a=1}`` for a map or a struct, and ``[1, 2]`` for a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}={_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return "NULL" if value is None else str(value)


class _JsonWriter:
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._encoder = msgspec.json.Encoder(decimal_format="number")

    def write(self, rows: pa.RecordBatch) -> None:
        records = (dict(zip(self._names, row, strict=True)) for row in _rows(rows))
        sys.stdout.write("".join(f"{self._encoder.encode(record).decode()}\n" for record in records))
        sys.stdout.flush()

    def end(self) -> None:
        """All was written."""


class _CsvWriter:
    """Writes CSV by RFC 4180, with LF at the end of a line. A null is nothing, an empty text is ``""``."""

    def __init__(self, names: Sequence[str]) -> None:
        self._encoder = msgspec.json.Encoder(decimal_format="number")
        self._line(names)

    def write(self, rows: pa.RecordBatch) -> None:
        for row in _rows(rows):
            self._line(row)
        sys.stdout.flush()

    def end(self) -> None:
        sys.stdout.flush()

    def _line(self, values: Sequence[Any]) -> None:
        sys.stdout.write(",".join(map(self._field, values)) + "\n")

    def _field(self, value: Any) -> str:
        if value is None:
            return ""
        text = self._encoder.encode(value).decode() if isinstance(value, dict | list) else _text(value)
        if text and not any(character in text for character in ',"\r\n'):
            return text
        return '"' + text.replace('"', '""') + '"'


class _ParquetWriter:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        try:
            self._writer = pq.ParquetWriter(_CountedOutput(), schema)
        except pa.ArrowNotImplementedError as error:
            raise Failed(f"loghub: {error}: CAST the column to VARCHAR, or use another format") from None

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays(rows.columns, schema=self._schema))

    def end(self) -> None:
        self._writer.close()
        sys.stdout.flush()


class _CountedOutput:
    """Standard output for Arrow, which asks for the position: a pipe has none."""

    closed = False
    mode = "wb"

    def __init__(self) -> None:
        self._written = 0

    def write(self, data: Any) -> int:
        size = len(memoryview(data))
        sys.stdout.buffer.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def close(self) -> None:
        self.flush()


def _rows(rows: pa.RecordBatch) -> Iterator[list[Any]]:
    """The rows as values of JSON, and decimals."""
    columns = [_values(column) for column in rows.columns]
    return (list(row) for row in zip(*columns, strict=True))


def _values(column: pa.Array) -> list[Any]:
    try:
        values = column.to_pylist(maps_as_pydicts="lossy")
    except TypeError:  # a map whose keys are lists
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python lacks: its nanoseconds, or the year 290309
        values = column.cast(pa.string()).to_pylist()
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {_text(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return f"P{value.months}M{value.days}DT{Decimal(value.nanoseconds) / 10**9:f}S"
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
