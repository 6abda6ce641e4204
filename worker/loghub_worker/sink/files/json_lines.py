"""Rows as lines of JSON with the bytes that Spark writes, without a step in Python for each row.

A field that is null is left out, as Spark does. Numbers that Java writes in its own way are not taken:
floating-point numbers, and decimals that may become so small that they get an exponent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Java writes a decimal without an exponent if it has no more digits after the point (BigDecimal.toString).
MAX_SCALE = 6
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
# What a text in JSON cannot have as it is. Jackson, which Spark uses, writes the digits in upper case.
_ESCAPES = {'"': '\\"'} | {chr(code): _SHORT.get(chr(code), f"\\u{code:04X}") for code in range(32)}
_SPECIAL = r'["\\\x00-\x1f]'
_PLAIN = frozenset({"string", "long", "integer", "short", "byte", "boolean", "timestamp"})
_SECONDS = pa.timestamp("s", "UTC")
# Of the years from 1 to 9999: others have a sign, or more digits.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def unwritten(schema: Mapping[str, Any]) -> Iterator[str]:
    """The columns that are not taken, with their types. `schema` is a schema of Spark's in JSON, decoded."""
    for field in schema["fields"]:
        kind = field["type"]
        if not _is_written(kind):
            yield f"{field['name']!r} has the type {kind if isinstance(kind, str) else kind['type']}"


def _is_written(kind: Any) -> bool:
    if isinstance(kind, str):
        scale = kind.removeprefix("decimal(").rstrip(")").rpartition(",")[2]
        return kind in _PLAIN or (kind.startswith("decimal(") and int(scale) <= MAX_SCALE)
    texts = {"type": "map", "keyType": "string", "valueType": "string"}
    return texts.items() <= {key: kind.get(key) for key in texts}.items()


def lines(rows: pa.RecordBatch) -> pa.Array:
    """The line of each row, without its end."""
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    pieces = [_piece(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    joined = pc.binary_join_element_wise(*pieces, "}", "").cast(pa.binary())
    begun = pc.binary_replace_slice(joined, 0, 1, b"{")  # in place of the first comma
    return pc.if_else(pc.equal(joined, b"}"), b"{}", begun).cast(pa.string())


def _piece(name: str, column: pa.Array) -> pa.Array:
    """``,"name":value`` for each row; an empty text for a null."""
    head = f",{_quoted(pa.array([name]))[0].as_py()}:"
    return pc.fill_null(pc.binary_join_element_wise(head, _value(column), ""), "")


def _value(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return _quoted(column)
    if pa.types.is_map(kind):
        return _object(column)
    if pa.types.is_timestamp(kind):
        return pc.binary_join_element_wise('"', _times(column), '"', "")
    return column.cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        texts = pc.replace_substring(texts, "\\", "\\\\")
        for character, escape in _ESCAPES.items():
            if pc.any(pc.match_substring(texts, character)).as_py():
                texts = pc.replace_substring(texts, character, escape)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _object(maps: pa.Array) -> pa.Array:
    values = pc.fill_null(_quoted(maps.items), "null")
    pairs = pc.binary_join_element_wise(_quoted(maps.keys), ":", values, "")
    lists = pa.ListArray.from_arrays(maps.offsets, pairs)
    if maps.null_count:
        lists = pc.if_else(maps.is_valid(), lists, None)
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


def _times(times: pa.Array) -> pa.Array:
    """In UTC, with six digits below a second."""
    micros = times.cast(pa.int64())
    is_plain = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US))
    texts = pc.strftime(pc.if_else(is_plain, times, None), "%Y-%m-%dT%H:%M:%SZ")
    if pc.all(is_plain).as_py() in (True, None):
        return texts
    odd = [None if us is None or FIRST_US <= us <= LAST_US else _odd_time(us) for us in micros.to_pylist()]
    return pc.coalesce(texts, pa.array(odd, pa.string()))


def _odd_time(micros: int) -> str:
    """A time of a year that Python's calendar does not have, as Java writes it: the calendar repeats itself
    every 400 years, which are 146,097 days."""
    cycle_us = 146_097 * 86_400_000_000
    cycles = (micros - FIRST_US) // cycle_us
    within = pa.array([micros - cycles * cycle_us], pa.timestamp("us", "UTC"))
    text = str(pc.strftime(within, "%Y-%m-%dT%H:%M:%SZ")[0].as_py())
    year = int(text[:4]) + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}{text[4:]}"
