"""CAST and TRY_CAST of texts to numbers, decimals and timestamps, with the values of Spark under ANSI.

Most texts of a column have a plain form, for which Arrow's casts have Spark's values; a regular expression
for each type says which these are. Each other text is read once by `loghub_worker.query.text_values`, however
often it occurs.
"""

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loghub_consumer.reading.decoding import TIME_TYPE
from loghub_worker.query.text_values import (
    DecimalRangeError,
    read_decimal,
    read_double,
    read_integer,
    read_timestamp,
)


class CastError(Exception):
    """The value of a row cannot be cast; the text is the message of Spark's own error."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    TIME_TYPE: "TIMESTAMP",
}
# So many digits always fit.
_DIGITS = {pa.int8(): 2, pa.int16(): 4, pa.int32(): 9, pa.int64(): 18}
# Of fewer digits and exponents than a double can have, so that none is infinite or zero.
_DOUBLE = r"^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE]-?[0-9]{1,2})?$"
# Years of four digits without the 29th of February, which not every year has.
_TIME = (
    r"^[1-9][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
)
# Digits of the fractions that are rounded, and of the integral parts next to them: so few that 64 bits have
# them. Arrow's rounding of more bits has errors: round(92233720368547712807.0) has another tenth digit.
_ROUNDED = 9


def is_castable(kind: pa.DataType) -> bool:
    """Whether texts are cast to this type."""
    return kind in _NAMES or pa.types.is_decimal(kind)


def cast_text(texts: pa.Array, kind: pa.DataType, strict: bool) -> pa.Array:
    """The values of texts; null for a text that is none, which raises `CastError` if `strict`."""
    if pa.types.is_decimal(kind):
        return _decimals(texts, kind, strict)
    if kind == TIME_TYPE:
        return _timestamps(texts, strict)
    if kind == pa.float64():
        return _cast(texts, kind, _DOUBLE, pc.cast, read_double, strict)
    bits = kind.bit_width
    plain = rf"^-?[0-9]{{1,{_DIGITS[kind]}}}$"
    return _cast(texts, kind, plain, pc.cast, lambda text: read_integer(text, bits), strict)


def _cast(
    texts: pa.Array,
    kind: pa.DataType,
    plain: str,
    cast: Callable[[pa.Array, pa.DataType], pa.Array],
    read: Callable[[str], Any],
    strict: bool,
) -> pa.Array:
    """Cast the texts of the plain form together, and read the others one by one."""
    is_plain = pc.match_substring_regex(texts, plain)
    if pc.all(is_plain, min_count=0).as_py():
        return cast(texts, kind)
    values = cast(pc.if_else(is_plain, texts, pa.scalar(None, pa.string())), kind)
    is_odd = pc.fill_null(pc.invert(is_plain), False)
    odd = texts.filter(is_odd).dictionary_encode()
    read_values, errors = _read(odd.dictionary, kind, read)
    if strict and errors:
        number = next(number for number, index in enumerate(odd.indices.to_pylist()) if index in errors)
        row = pc.indices_nonzero(is_odd)[number].as_py()
        raise CastError(row, errors[odd.indices[number].as_py()])
    return pc.replace_with_mask(values, is_odd, read_values.take(odd.indices))


def _read(texts: pa.Array, kind: pa.DataType, read: Callable[[str], Any]) -> tuple[pa.Array, dict[int, str]]:
    """The values of texts, and the messages of the errors of texts that have none, by their places."""
    values, errors = list[Any](), dict[int, str]()
    for text in texts.to_pylist():
        try:
            values.append(read(text))
        except DecimalRangeError as error:
            errors[len(values)] = str(error)
            values.append(None)
        except ValueError:
            errors[len(values)] = _malformed(text, kind)
            values.append(None)
    return pa.array(values, kind), errors


def _malformed(text: str, kind: pa.DataType) -> str:
    """Spark's message for a text that is no value of a type."""
    name = _NAMES.get(kind) or f"DECIMAL({kind.precision},{kind.scale})"
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return (
        f'[CAST_INVALID_INPUT] The value \'{quoted}\' of the type "STRING" cannot be cast to "{name}" because'
        " it is malformed. Correct the value as per the syntax, or change its target type. Use `try_cast` to"
        " tolerate malformed input and return NULL instead. SQLSTATE: 22018"
    )


def _decimal_forms(kind: pa.DataType) -> tuple[str, str]:
    """The form of texts that are exact, and of texts that are rounded: with a digit less than the type has,
    since rounding may add one."""
    integral = kind.precision - kind.scale
    digits = f"[0-9]{{1,{integral}}}" if integral else "0"
    exact = rf"^-?{digits}(\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else rf"^-?{digits}$"
    less = min(integral - 1, _ROUNDED)
    rounded = rf"^-?[0-9]{{1,{less}}}\.[0-9]{{1,{_ROUNDED}}}$"
    return exact, rounded if less > 0 and kind.scale < _ROUNDED else exact


def _decimals(texts: pa.Array, kind: pa.DataType, strict: bool) -> pa.Array:
    exact, rounded = _decimal_forms(kind)

    def cast(plain: pa.Array, kind: pa.DataType) -> pa.Array:
        is_exact = pc.match_substring_regex(plain, exact)
        if pc.all(is_exact, min_count=0).as_py():
            return pc.cast(plain, kind)
        nothing = pa.scalar(None, pa.string())
        values = pc.cast(pc.if_else(is_exact, plain, nothing), kind)
        others = pc.cast(pc.if_else(is_exact, nothing, plain), pa.decimal128(2 * _ROUNDED, _ROUNDED))
        nearest = pc.round(others, ndigits=kind.scale, round_mode="half_towards_infinity")
        return pc.coalesce(values, pc.cast(nearest, kind))

    def read(text: str) -> decimal.Decimal:
        return read_decimal(text, kind.precision, kind.scale)

    return _cast(texts, kind, f"{exact}|{rounded}", cast, read, strict)


def _timestamps(texts: pa.Array, strict: bool) -> pa.Array:
    """The session's time zone is UTC. A text has its own zone, or none, and Arrow reads both apart."""
    today = datetime.datetime.now(datetime.UTC)

    def read(text: str) -> int:
        return read_timestamp(text, today)

    has_zone = pc.fill_null(
        pc.match_substring_regex(texts, _TIME + r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"), False
    )
    nothing = pa.scalar(None, pa.string())
    zoned = pc.cast(pc.if_else(has_zone, texts, nothing), TIME_TYPE)

    def cast(plain: pa.Array, kind: pa.DataType) -> pa.Array:
        local = pc.cast(pc.if_else(has_zone, nothing, plain), pa.timestamp("us"))
        return pc.coalesce(local.cast(pa.int64()), zoned.cast(pa.int64())).cast(kind)

    plain = _TIME + r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?$"
    return _cast(texts, TIME_TYPE, plain, cast, read, strict)
