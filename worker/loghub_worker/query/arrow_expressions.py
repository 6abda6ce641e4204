"""The closed list of expressions of Spark that Arrow computes exactly as Spark does.

`computation` makes of an expression of the optimizer's plan what Arrow computes, or raises `RefusedError`
with the reason. Everything that is not on the list is refused; a new entry needs its query in
tests/loghub_worker/query/test_arrow_query.py, which compares it with Spark.

A CAST may fail for a row, and then only if Spark would evaluate it for that row. Spark skips an operand
whose value is not needed, such as the second one of AND, but does not promise it: whether it evaluates an
operand may depend on other columns, and on whether it generates code. So an expression that may fail is
refused where it may be skipped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from loghub_consumer.reading.decoding import TIME_TYPE
from loghub_worker.query.arrow_functions import FUNCTIONS, Value, constant
from loghub_worker.query.plan import EVAL_MODE, VALUES, Expression
from loghub_worker.query.text_casts import is_castable

COLUMN, CONSTANT = "column", "constant"
CAST, IN_SET = "Cast", "InSet"  # Spark's classes, of which more than the operands counts
# Operands of one concat(): with more of them, the texts of a batch could have more bytes than Arrow's 2 GiB.
MAX_TEXTS = 64
_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIME_TYPE,
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class RefusedError(Exception):
    """Arrow does not compute an expression as Spark does; the text names it."""


@dataclass(frozen=True, slots=True)
class Computation:
    """A function of `FUNCTIONS`, its operands and its parameters; or a column; or a constant. `may_fail` says
    whether it raises an error for some rows."""

    function: str
    kind: pa.DataType
    operands: tuple["Computation", ...] = ()
    parameters: tuple[Any, ...] = ()
    may_fail: bool = False

    @property
    def is_constant(self) -> bool:
        return self.function == CONSTANT

    def columns(self) -> frozenset[str]:
        """The names of the columns that it reads."""
        if self.function == COLUMN:
            return frozenset(self.parameters)
        return frozenset[str]().union(*(operand.columns() for operand in self.operands))


class Evaluation:
    """The values of computations for the rows of one batch. Each is computed once."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self._values: dict[Computation, Value] = {}

    def of(self, wanted: Computation) -> Value:
        """The values, or the one value of a constant."""
        value = self._values.get(wanted)
        if value is None:
            value = self._values[wanted] = self._computed(wanted)
        return value

    def column(self, wanted: Computation) -> pa.Array:
        """The values for each row."""
        value = self.of(wanted)
        return pa.repeat(value, len(self._rows)) if isinstance(value, pa.Scalar) else value

    def _computed(self, wanted: Computation) -> Value:
        if wanted.function == COLUMN:
            return self._rows.column(wanted.parameters[0])
        if wanted.is_constant:
            return constant(wanted.parameters[0], wanted.kind)
        operands = map(self.of, wanted.operands)
        return FUNCTIONS[wanted.function](*operands, *wanted.parameters)


Columns = Mapping[int, Computation]
Entry = Callable[[list[Computation]], Computation]


def computation(expression: Expression, columns: Columns) -> Computation:
    """What Arrow computes in place of an expression over columns with these ids. Raises `RefusedError`."""
    kind = expression.kind
    if kind == "AttributeReference":
        if expression.id not in columns:
            raise RefusedError(f"the column {expression.fields['name']}")
        return columns[expression.id]
    if kind == "Literal":
        return _literal(expression)
    if kind == "Alias":
        return computation(expression.operands[0], columns)
    if kind not in ENTRIES and kind not in (CAST, IN_SET):
        raise RefusedError(kind.lower())
    operands = [computation(one, columns) for one in expression.operands]
    if kind == CAST:
        made = _cast(operands[0], expression)
    elif kind == IN_SET:
        made = _in_list(operands[0], tuple(expression.fields[VALUES]))
    else:
        made = ENTRIES[kind](operands)
    if all(one.is_constant for one in made.operands):
        raise RefusedError(f"{kind.lower()} of constants")
    return made


def type_of(name: Any) -> pa.DataType:
    """Arrow's type for one of Spark's. Raises `RefusedError`."""
    decimal = _DECIMAL.fullmatch(name) if isinstance(name, str) else None
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise RefusedError(f"the type {name if isinstance(name, str) else name.get('type')}")
    return kind


def _literal(expression: Expression) -> Computation:
    value = expression.fields["value"]
    return Computation(CONSTANT, type_of(expression.fields["dataType"]), parameters=(value,))


def _parameter(operand: Computation, what: str) -> Any:
    """The value of an operand that must be a constant."""
    if not operand.is_constant or operand.parameters[0] is None:
        raise RefusedError(what)
    return constant(operand.parameters[0], operand.kind).as_py()


def _require_sure(operands: Sequence[Computation], what: str) -> None:
    """Raise `RefusedError` if one of these operands may fail: Spark may skip them."""
    if any(operand.may_fail for operand in operands):
        raise RefusedError(f"a CAST that {what} may skip")


def _call(function: str, kind: pa.DataType, operands: Sequence[Computation], *parameters: Any) -> Computation:
    may_fail = any(operand.may_fail for operand in operands)
    return Computation(function, kind, tuple(operands), parameters, may_fail)


def _comparison(function: str) -> Entry:
    def entry(operands: list[Computation]) -> Computation:
        left, right = operands
        kind = left.kind
        if kind != right.kind or pa.types.is_nested(kind):
            raise RefusedError(f"{function} of {kind} and {right.kind}")
        if pa.types.is_boolean(kind) and function not in ("=", "<=>"):
            raise RefusedError(f"{function} of {kind}")
        if function != "<=>" and not (left.is_constant and left.parameters[0] is not None):
            _require_sure([right], f"{function} of a null")
        return _call(function, pa.bool_(), operands)

    return entry


def _logic(function: str) -> Entry:
    def entry(operands: list[Computation]) -> Computation:
        _require_sure(operands[1:], function.upper())
        return _call(function, pa.bool_(), operands)

    return entry


def _null_test(function: str) -> Entry:
    return lambda operands: _call(function, pa.bool_(), operands)


def _of_text(function: str, kind: pa.DataType) -> Entry:
    def entry(operands: list[Computation]) -> Computation:
        _require_texts(operands, function)
        return _call(function, kind, operands)

    return entry


def _pattern(function: str) -> Entry:
    def entry(operands: list[Computation]) -> Computation:
        _require_texts(operands, function)
        pattern = _parameter(operands[1], f"{function} of a text that is not constant")
        return _call(function, pa.bool_(), operands[:1], pattern)

    return entry


def _require_texts(operands: Sequence[Computation], function: str) -> None:
    bad = next((one for one in operands if not pa.types.is_string(one.kind)), None)
    if bad is not None:
        raise RefusedError(f"{function} of {bad.kind}")


def _in(operands: list[Computation]) -> Computation:
    if not all(operand.is_constant for operand in operands[1:]):
        raise RefusedError("IN with a list that is not constant")
    return _in_list(operands[0], tuple(operand.parameters[0] for operand in operands[1:]))


def _in_list(value: Computation, listed: tuple[str | None, ...]) -> Computation:
    kind = value.kind
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        raise RefusedError(f"IN of {kind}")
    return _call("in", pa.bool_(), [value], *listed)


def _coalesce(operands: list[Computation]) -> Computation:
    _require_sure(operands[1:], "coalesce")
    return _call("coalesce", _one_kind(operands, "coalesce"), operands)


def _one_kind(operands: Sequence[Computation], function: str) -> pa.DataType:
    kinds = {operand.kind for operand in operands}
    if len(kinds) > 1 or any(map(pa.types.is_nested, kinds)):
        raise RefusedError(f"{function} of {' and '.join(sorted(map(str, kinds)))}")
    return operands[0].kind


def _concat(operands: list[Computation]) -> Computation:
    _require_texts(operands, "concat")
    _require_sure(operands[1:], "concat")
    if len(operands) > MAX_TEXTS:
        raise RefusedError(f"concat of more than {MAX_TEXTS} texts")
    return _call("concat", pa.string(), operands)


def _substring(operands: list[Computation]) -> Computation:
    _require_texts(operands[:1], "substring")
    what = "substring with positions that are not constant"
    numbers = [_parameter(operand, what) for operand in operands[1:]]
    return _call("substring", pa.string(), operands[:1], *numbers)


def _trim(function: str) -> Entry:
    def entry(operands: list[Computation]) -> Computation:
        _require_texts(operands, function)
        what = f"{function} of characters that are not constant"
        characters = _parameter(operands[1], what) if len(operands) > 1 else " "
        return _call(function, pa.string(), operands[:1], characters)

    return entry


def _key(operands: list[Computation]) -> Computation:
    pairs, key = operands
    if not pa.types.is_map(pairs.kind):
        raise RefusedError(f"element_at of {pairs.kind}")
    return _call("key", pa.string(), [pairs], _parameter(key, "a key that is not constant"))


def _if(operands: list[Computation]) -> Computation:
    _require_sure(operands[1:], "IF or CASE")
    return _call("if", _one_kind(operands[1:], "IF or CASE"), operands)


def _case(operands: list[Computation]) -> Computation:
    _require_sure(operands[1:], "IF or CASE")
    kind = operands[1].kind
    otherwise = operands.pop() if len(operands) % 2 else Computation(CONSTANT, kind, parameters=(None,))
    for condition, value in reversed(list(zip(operands[::2], operands[1::2], strict=True))):
        otherwise = _if([condition, value, otherwise])
    return otherwise


def _cast(operand: Computation, expression: Expression) -> Computation:
    to = type_of(expression.fields["dataType"])
    if pa.types.is_string(operand.kind) and is_castable(to):
        return _text_cast(operand, to, expression.fields[EVAL_MODE])
    if not _is_widening(operand.kind, to):
        raise RefusedError(f"CAST of {operand.kind} to {to}")
    return _call("cast", to, [operand], to)


def _text_cast(operand: Computation, to: pa.DataType, mode: str) -> Computation:
    if mode not in ("ANSI", "TRY"):
        raise RefusedError("a CAST without ANSI")
    is_strict = mode == "ANSI"
    may_fail = is_strict or operand.may_fail
    return Computation("cast text", to, (operand,), (to, is_strict), may_fail)


_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def _is_widening(kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether a cast of numbers changes none of them, or to the nearest double."""
    if pa.types.is_integer(kind):
        if pa.types.is_integer(to):
            return bool(kind.bit_width <= to.bit_width)
        if pa.types.is_decimal(to):
            return bool(_DIGITS[kind] <= to.precision - to.scale)
        return bool(pa.types.is_float64(to) or pa.types.is_string(to))
    if pa.types.is_decimal(kind) and pa.types.is_decimal(to):
        return bool(kind.scale <= to.scale and kind.precision - kind.scale <= to.precision - to.scale)
    return False


# By the name of Spark's class.
ENTRIES: dict[str, Entry] = {
    "GetMapValue": _key,
    "ElementAt": _key,
    "EqualTo": _comparison("="),
    "EqualNullSafe": _comparison("<=>"),
    "LessThan": _comparison("<"),
    "LessThanOrEqual": _comparison("<="),
    "GreaterThan": _comparison(">"),
    "GreaterThanOrEqual": _comparison(">="),
    "In": _in,
    "And": _logic("and"),
    "Or": _logic("or"),
    "Not": _null_test("not"),
    "IsNull": _null_test("is null"),
    "IsNotNull": _null_test("is not null"),
    "StartsWith": _pattern("starts with"),
    "EndsWith": _pattern("ends with"),
    "Contains": _pattern("contains"),
    "Length": _of_text("length", pa.int32()),
    "Coalesce": _coalesce,
    "Concat": _concat,
    "Substring": _substring,
    "Lower": _of_text("lower", pa.string()),
    "Upper": _of_text("upper", pa.string()),
    "StringTrim": _trim("trim"),
    "StringTrimLeft": _trim("ltrim"),
    "StringTrimRight": _trim("rtrim"),
    "If": _if,
    "CaseWhen": _case,
}
