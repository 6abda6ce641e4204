"""The keys of logs, the types of their values, and a SELECT that makes columns of them. Pure.

A type is guessed only if it loses nothing: each value of the sample, read as this type, still says the same.
So ``007`` and an id of 40 digits stay texts, and so does a number with more digits than a DOUBLE keeps,
unless a DECIMAL has them. An empty value and ``-``, as servers write what they do not know, say nothing about
the type. Later logs may have other values, so the SELECT casts with TRY_CAST, which makes NULL of them.

The SELECT is one for Spark and for DuckDB. Names of columns are plain words, which neither has to quote. A
key is a text, in which the two read a quote, a backslash and a dollar sign differently: those are written as
chr().
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from loghub_cli.output import on_one_line

STRING, BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP = (
    "STRING",
    "BIGINT",
    "DOUBLE",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
)
VIEW_COLUMNS = ("__time__", "__topic__", "__source__")  # of the SELECT, before the keys
MAX_KEYS = 200  # a SELECT of more columns is read by nobody; each takes a pass over the sample
MAX_NAME_CHARS = 60  # of a column: PostgreSQL keeps 63
EXAMPLE_CHARS = 40  # to recognize what the key is
DOUBLE_DIGITS = 15  # a DOUBLE keeps any number of so many digits; of 17 it loses some
DECIMAL_DIGITS = 38  # the most that Spark and DuckDB have
_UNKNOWN = ("", "-")
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"
_PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# Without a zone, or in UTC: DuckDB leaves an offset out where Spark counts it.
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """A key of the contents: in how many logs it is, the type of its values, and one of them."""

    key: str
    logs: int
    type: str
    example: str


def keys_of(contents: pa.ChunkedArray) -> tuple[list[KeyInfo], int]:
    """The keys by the number of logs that have them, at most `MAX_KEYS`, and how many keys there are."""
    pairs = [_pairs(chunk) for chunk in contents.chunks]
    keys = pa.chunked_array([names for names, _ in pairs], pa.string()).dictionary_encode()
    values = pa.chunked_array([texts for _, texts in pairs], pa.string())
    counts = sorted(
        ((count["counts"], count["values"]) for count in keys.value_counts().to_pylist()),
        key=lambda one: (-one[0], one[1]),
    )
    infos = []
    for logs, key in counts[:MAX_KEYS]:
        own = values.filter(pc.equal(keys, key))
        example = own[0].as_py()
        infos.append(KeyInfo(key=key, logs=logs, type=type_of(own), example=example[:EXAMPLE_CHARS]))
    return infos, len(counts)


def _pairs(chunk: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """The keys and values of the logs of a chunk, which may be a slice of a larger one."""
    if not len(chunk):
        return pa.array([], pa.string()), pa.array([], pa.string())
    first, last = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
    return chunk.keys.slice(first, last - first), chunk.items.slice(first, last - first)


def type_of(values: pa.ChunkedArray) -> str:
    """The narrowest type that loses nothing of these texts."""
    known = values.filter(pc.invert(pc.is_in(values, pa.array(_UNKNOWN))))
    if not len(known):
        return STRING
    for name, fits in _TYPES:
        if fits(known):
            return name
    return _decimal(known) or STRING


def _all(values: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _casts(values: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _is_bigint(values: pa.ChunkedArray) -> bool:
    return _all(values, _INTEGER) and _casts(values, pa.int64())


def _is_boolean(values: pa.ChunkedArray) -> bool:
    return _all(values, r"^(?i)(true|false)$")


def _is_double(values: pa.ChunkedArray) -> bool:
    if not _all(values, _NUMBER):
        return False
    digits = _digits(pc.replace_substring_regex(values, "[eE].*$", ""))
    if pc.max(pc.utf8_length(digits)).as_py() > DOUBLE_DIGITS:
        return False
    numbers = values.cast(pa.float64())
    lost = pc.and_(pc.equal(numbers, 0.0), pc.not_equal(digits, ""))  # too small for a DOUBLE
    return bool(pc.all(pc.is_finite(numbers)).as_py()) and not pc.any(lost).as_py()


def _digits(plain: pa.ChunkedArray) -> pa.ChunkedArray:
    """The digits of plain numbers, without zeros in front."""
    return pc.utf8_ltrim(pc.replace_substring_regex(plain, "[-.]", ""), characters="0")


def _decimal(values: pa.ChunkedArray) -> str | None:
    if not _all(values, _PLAIN_NUMBER):
        return None
    whole = pc.utf8_length(pc.replace_substring_regex(values, r"^-|\..*$", ""))
    scale = pc.utf8_length(pc.replace_substring_regex(values, r"^-?[0-9]+\.?", ""))
    most = pc.max(whole).as_py() + pc.max(scale).as_py()
    return f"DECIMAL({most}, {pc.max(scale).as_py()})" if most <= DECIMAL_DIGITS else None


def _is_date(values: pa.ChunkedArray) -> bool:
    return _all(values, _DATE) and _all_parse(values)


def _is_timestamp(values: pa.ChunkedArray) -> bool:
    return _all(values, _TIMESTAMP) and _all_parse(values)


def _all_parse(values: pa.ChunkedArray) -> bool:
    try:
        for text in values.unique().to_pylist():
            datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_TYPES = (
    (BIGINT, _is_bigint),
    (BOOLEAN, _is_boolean),
    (DATE, _is_date),
    (TIMESTAMP, _is_timestamp),
    (DOUBLE, _is_double),
)


def select_of(keys: Sequence[KeyInfo]) -> tuple[str, tuple[str, ...]]:
    """A SELECT with a column for each key, and the keys that it leaves out: those with characters that
    control a terminal or are not seen."""
    shown = [one for one in keys if on_one_line(one.key) == one.key]
    names = _names(one.key for one in shown)
    columns = [*VIEW_COLUMNS, *(f"{_value(one)} AS {name}" for one, name in zip(shown, names, strict=True))]
    left_out = tuple(one.key for one in keys if one not in shown)
    return "SELECT\n  " + ",\n  ".join(columns) + "\nFROM logs", left_out


def _value(info: KeyInfo) -> str:
    value = f"contents[{_literal(info.key)}]"
    return value if info.type == STRING else f"TRY_CAST({value} AS {info.type})"


def _literal(text: str) -> str:
    parts = [part for part in re.split(r"(['\\$])", text) if part]
    written = [f"chr({ord(part)})" if part in ("'", "\\", "$") else f"'{part}'" for part in parts] or ["''"]
    return written[0] if len(written) == 1 else f"concat({', '.join(written)})"


def _names(keys: Iterable[str]) -> list[str]:
    """A name for each key: letters, digits and underscores, and no two that differ in case only."""
    names: list[str] = []
    taken = set(VIEW_COLUMNS)
    for key in keys:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_")[:MAX_NAME_CHARS].lower() or "key"
        plain = f"key_{plain}" if plain[0].isdigit() else plain
        number, name = 1, plain
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        names.append(name)
    return names
