"""What Arrow computes exactly as Spark does: the functions by which `arrow_expressions` evaluates an
expression, each over the columns of one record batch.

Where the two differ, the difference is handled here: Spark orders NaN after all other numbers and holds it
equal to itself; IN is unknown for a value that is not in a list with a null; positions of texts may be
negative.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Value = Any  # `pa.Array`, or `pa.Scalar` of a constant


def constant(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A literal, from the text that Spark writes for it; times are numbers."""
    if text is None or pa.types.is_string(kind):
        return pa.scalar(text, kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(text == "true", kind)
    if pa.types.is_floating(kind):
        return pa.scalar(float(text), kind)
    return pa.scalar(Decimal(text) if pa.types.is_decimal(kind) else int(text), kind)


def equal(left: Value, right: Value) -> Value:
    found = pc.equal(left, right)
    return pc.or_kleene(found, _both_nan(left, right)) if pa.types.is_floating(left.type) else found


def equal_null_safe(left: Value, right: Value) -> Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.coalesce(pc.and_(equal(left, right), pc.and_(pc.is_valid(left), pc.is_valid(right))), both_null)


def less(left: Value, right: Value) -> Value:
    found = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return found
    return pc.or_kleene(found, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def greater(left: Value, right: Value) -> Value:
    return less(right, left)


def at_most(left: Value, right: Value) -> Value:
    return pc.invert(less(right, left))


def at_least(left: Value, right: Value) -> Value:
    return pc.invert(less(left, right))


def _both_nan(left: Value, right: Value) -> Value:
    return pc.and_(pc.is_nan(left), pc.is_nan(right))


def is_in(values: pa.Array, *listed: str | None) -> pa.Array:
    """The values of the list as texts of literals."""
    known = [constant(one, values.type).as_py() for one in listed if one is not None]
    found = pc.is_in(values, value_set=pa.array(known, values.type))
    unknown = pa.scalar(None, pa.bool_())
    if len(known) < len(listed):
        return pc.if_else(found, found, unknown)
    return pc.if_else(pc.is_valid(values), found, unknown)


def concat(*texts: Value) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def substring(texts: pa.Array, position: int, length: int) -> pa.Array:
    """`length` code points from the one at `position`, which counts from 1, or backwards from the end if it
    is negative. One before the first code point is counted, too, though there is nothing."""
    begin = position - 1 if position > 0 else position
    if length <= 0:
        return pc.utf8_slice_codeunits(texts, 0, 0)
    end = begin + length
    return pc.utf8_slice_codeunits(texts, begin, None if begin < 0 <= end else end)


def starts_with(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.starts_with(texts, pattern=pattern)


def ends_with(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.ends_with(texts, pattern=pattern)


def contains(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring(texts, pattern=pattern)


def trim(texts: pa.Array, characters: str) -> pa.Array:
    return pc.utf8_trim(texts, characters=characters)


def trim_start(texts: pa.Array, characters: str) -> pa.Array:
    return pc.utf8_ltrim(texts, characters=characters)


def trim_end(texts: pa.Array, characters: str) -> pa.Array:
    return pc.utf8_rtrim(texts, characters=characters)


def value_of_key(pairs: pa.Array, key: str) -> pa.Array:
    return pc.map_lookup(pairs, query_key=key, occurrence="first")


def choose(condition: Value, then: Value, otherwise: Value) -> Value:
    return pc.if_else(pc.fill_null(condition, False), then, otherwise)


def cast(values: Value, kind: pa.DataType) -> Value:
    """A cast to a type that has all values, or the nearest number."""
    return pc.cast(values, kind, safe=False)


# By name, since a query is sent to the processes that read.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "=": equal,
    "<=>": equal_null_safe,
    "<": less,
    "<=": at_most,
    ">": greater,
    ">=": at_least,
    "in": is_in,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is null": pc.is_null,
    "is not null": pc.is_valid,
    "starts with": starts_with,
    "ends with": ends_with,
    "contains": contains,
    "length": pc.utf8_length,
    "coalesce": pc.coalesce,
    "concat": concat,
    "substring": substring,
    "trim": trim,
    "ltrim": trim_start,
    "rtrim": trim_end,
    "key": value_of_key,
    "if": choose,
    "cast": cast,
}
