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

from loghub_worker.query.text_casts import cast_text

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


# Letters that Spark knows, and Python's tables of Unicode not before its version 17. Next to one of them, a
# capital sigma may become the other small one.
_NEW = (
    (0x1C89, 0x1C8A), (0xA7CB, 0x264), (0xA7CC, 0xA7CD), (0xA7CE, 0xA7CF), (0xA7D2, 0xA7D3), (0xA7D4, 0xA7D5),
    (0xA7DA, 0xA7DB), (0xA7DC, 0x19B), *((letter, letter + 0x20) for letter in range(0x10D50, 0x10D66)),
    *((letter, letter + 0x1B) for letter in range(0x16EA0, 0x16EB9)),
)  # fmt: skip
# ASCII, and letters and signs of East Asia, which have no case.
_NO_OTHER_CASE = r"^[\x00-\x7f\x{3000}-\x{30ff}\x{3400}-\x{9fff}\x{ac00}-\x{d7a3}\x{ff01}-\x{ff20}]*$"
_NEW_LOWER = dict(_NEW)
_NEW_UPPER = {small: great for great, small in _NEW}


def lower(texts: pa.Array) -> pa.Array:
    return _in_case(texts, pc.ascii_lower(texts), lambda text: text.translate(_NEW_LOWER).lower())


def upper(texts: pa.Array) -> pa.Array:
    return _in_case(texts, pc.ascii_upper(texts), lambda text: text.translate(_NEW_UPPER).upper())


def _in_case(texts: pa.Array, changed: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """`changed` has the case of the letters of ASCII. Other letters may become two, or depend on the letters
    around them, and Arrow maps each to one. Python and Spark follow the same rules of Unicode."""
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return changed
    others = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _NO_OTHER_CASE)), False)
    distinct = texts.filter(others).dictionary_encode()
    made = pa.array([change(text) for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(changed, others, made.take(distinct.indices))


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
    "lower": lower,
    "upper": upper,
    "trim": trim,
    "ltrim": trim_start,
    "rtrim": trim_end,
    "key": value_of_key,
    "if": choose,
    "cast": cast,
    "cast text": cast_text,
}
