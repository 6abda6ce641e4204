"""A query that Arrow computes exactly as Spark does, and why it cannot compute another one.

The plan that Spark's optimizer makes of the query decides: columns and conditions of the one table of logs,
whose expressions are all on the closed list of `arrow_expressions`.

Spark evaluates the conditions one after the other, and the columns only for the logs that fulfil them, so a
CAST fails only for a log that gets as far. It may move a test for null to another place among the conditions,
though, and adds some of its own. A query is refused if the place of such a test decides whether a CAST fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from loghub_consumer.reading.decoding import SCHEMA, Selection
from loghub_worker.query.arrow_expressions import (
    COLUMN,
    CONSTANT,
    Columns,
    Computation,
    Evaluation,
    RefusedError,
    computation,
)
from loghub_worker.query.plan import LEAF, Expression, expressions_of, kind_of, leaf_columns
from loghub_worker.query.text_casts import CastError
from loghub_worker.sink.batch_sink import RowsRejectedError

KEY, IS_NULL, NOT_NULL = "key", "is null", "is not null"
# The functions of which Spark knows that they are null if an operand is.
INTOLERANT = frozenset(
    {"=", "<", "<=", ">", ">=", "not", "starts with", "ends with", "contains", "lower", "upper", "cast text"}
)
CONTENTS = "contents"
NODES = frozenset({"Project", "Filter", LEAF})


@dataclass(frozen=True, slots=True)
class ArrowQuery:
    """The rows that a query returns for logs. `selection` says which columns it needs of them. `steps` are
    conditions: one holds for a log if the ones before it do."""

    selection: Selection
    steps: tuple[Computation, ...]
    columns: tuple[Computation, ...]
    schema: pa.Schema  # of the rows

    def apply(self, logs: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for some logs, which have the schema of the selection. Raises `RowsRejectedError` with the
        message of Spark's own error for the first log whose values cannot be cast."""
        kept, places = logs, None
        if any(one.may_fail for one in (*self.steps, *self.columns)):
            places = pa.array(range(len(logs)), pa.int32())
        try:
            for step in self.steps:
                holds = Evaluation(kept).column(step)
                kept = kept.filter(holds)
                places = None if places is None else places.filter(holds)
            evaluation = Evaluation(kept)
            made = [evaluation.column(column) for column in self.columns]
        except CastError as failed:
            assert places is not None, "nothing could fail"
            # A log before this one may fail in a later step, and Spark takes one log after the other.
            self.apply(logs.slice(0, places[failed.row].as_py()))
            raise RowsRejectedError(str(failed)) from None
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def arrow_query_of(
    nodes: Sequence[dict[str, Any]], selection: Selection, output: Sequence[int], schema: pa.Schema
) -> ArrowQuery | str:
    """The query with this plan, or the reason why Arrow does not compute it. `selection` has what the plan
    uses, `output` the ids of the columns of the result, and `schema` is the schema of the result."""
    try:
        conditions, columns = _of_nodes(nodes, _view_columns(nodes))
        conditions = [_selected(one, selection) for one in conditions]
        _require_order(conditions)
    except RefusedError as refused:
        return str(refused)
    made = [_selected(columns[id_], selection) for id_ in output]
    for number, (column, field) in enumerate(zip(made, schema, strict=True), 1):
        if column.kind != field.type:
            return f"the type {field.type} of column {number}"
    return ArrowQuery(selection, _steps(conditions), tuple(made), schema)


def _view_columns(nodes: Sequence[dict[str, Any]]) -> dict[int, Computation]:
    """The columns of the view by their ids."""
    other = next((kind for kind in map(kind_of, nodes) if kind not in NODES), None)
    if other is not None:
        raise RefusedError(other)
    columns = leaf_columns(nodes)
    if tuple(columns.values()) != tuple(SCHEMA.names):
        raise RefusedError("rows that are not only of logs")
    fields = {field.name: field.type for field in SCHEMA}
    return {id_: Computation(COLUMN, fields[name], parameters=(name,)) for id_, name in columns.items()}


def _of_nodes(
    nodes: Sequence[dict[str, Any]], view: Columns
) -> tuple[list[Computation], Mapping[int, Computation]]:
    """The conditions in the order of their evaluation, and the columns of the top node by their ids."""
    conditions: list[Computation] = []
    columns = dict(view)
    for node in reversed(nodes[:-1]):
        if kind_of(node) == "Project":
            columns = dict(_projected(expressions_of(node), columns))
            continue
        if any(column.may_fail for column in columns.values()):
            raise RefusedError("a condition on columns with a CAST, which Spark may evaluate first")
        [condition] = expressions_of(node)
        conditions += (_named(one, columns, "the condition") for one in _conjuncts(condition))
    return conditions, columns


def _projected(expressions: Sequence[Expression], columns: Columns) -> Iterator[tuple[int, Computation]]:
    for number, one in enumerate(expressions, 1):
        yield one.id, _named(one, columns, f"column {number}")


def _named(expression: Expression, columns: Columns, place: str) -> Computation:
    try:
        return computation(expression, columns)
    except RefusedError as refused:
        raise RefusedError(f"{refused} in {place}") from None


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if condition.kind != "And":
        yield condition
        return
    for operand in condition.operands:
        yield from _conjuncts(operand)


def _selected(one: Computation, selection: Selection) -> Computation:
    """The same computation over the columns of a selection: contents that are selected by key are columns of
    their own, and the contents of a log are never null."""
    if CONTENTS not in selection.view and one.operands and one.operands[0].parameters == (CONTENTS,):
        if one.function == KEY:
            return Computation(COLUMN, one.kind, parameters=one.parameters)
        if one.function in (IS_NULL, NOT_NULL):
            return Computation(
                CONSTANT, one.kind, parameters=("true" if one.function == NOT_NULL else "false",)
            )
    return replace(one, operands=tuple(_selected(operand, selection) for operand in one.operands))


def _require_order(conditions: Sequence[Computation]) -> None:
    """Raise `RefusedError` if a condition may fail, and Spark evaluates it for a log or not, depending on
    where it puts the tests for null that are conditions of their own, or follow from other conditions."""
    for number, one in enumerate(conditions):
        if not one.may_fail:
            continue
        before = conditions[:number]
        tested = one.columns().union(*(other.columns() for other in before if not _is_null_test(other)))
        # Spark adds tests for null of columns of the view, and none of the columns that are keys.
        settled = {*SCHEMA.names}.union(*(other.columns() for other in before if _is_null_test(other)))
        if len(one.columns()) == 1:  # of a null, no cast fails
            settled |= one.columns()
        if not all(
            _is_null_test(other) or (_is_null_by_columns(other) and other.columns() <= settled)
            for other in before
        ):
            raise RefusedError("a CAST after a condition that may be unknown, in the condition; use TRY_CAST")
        if any(_is_null_test(other) and other.operands[0].function != COLUMN for other in conditions):
            raise RefusedError("a CAST next to IS NOT NULL of an expression, in the condition; use TRY_CAST")
        for other in conditions:
            must_be_tested = _is_null_test(other) or other not in before
            if other is not one and must_be_tested and not other.columns() <= tested:
                raise RefusedError("a CAST that is not the last condition, in the condition; use TRY_CAST")


def _is_null_test(one: Computation) -> bool:
    return one.function == NOT_NULL


def _is_null_by_columns(one: Computation) -> bool:
    """Whether a condition is unknown only if one of its columns is null, for which Spark then tests first."""
    if one.function in (COLUMN, CONSTANT):
        return not pa.types.is_map(one.kind)
    if one.function == "cast text" and not one.parameters[1]:  # TRY_CAST
        return False
    return one.function in INTOLERANT and all(map(_is_null_by_columns, one.operands))


def _steps(conditions: Sequence[Computation]) -> tuple[Computation, ...]:
    """The conditions joined, so that one which may fail comes first in its step."""
    steps: list[Computation] = []
    for one in conditions:
        if one.parameters == ("true",):
            continue
        if steps and not one.may_fail:
            may_fail = steps[-1].may_fail
            steps[-1] = Computation("and", pa.bool_(), (steps[-1], one), may_fail=may_fail)
        else:
            steps.append(one)
    return tuple(steps)
