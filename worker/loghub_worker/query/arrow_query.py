"""Queries that Arrow computes as Spark would: columns, and values of the contents by constant keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from loghub_consumer.reading.decoding import SCHEMA, Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowQuery:
    """A query, with the names of the columns of the logs that its rows consist of."""

    selection: Selection
    schema: pa.Schema
    columns: tuple[str, ...]

    def apply(self, logs: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of these logs."""
        return pa.RecordBatch.from_arrays([logs.column(name) for name in self.columns], schema=self.schema)


def arrow_query(spark: "SparkSession", sql: str, result: "DataFrame") -> ArrowQuery | str:
    """The query, or why Arrow does not compute it."""
    from loghub_worker.query.transform import optimized_plan, selection_of

    plan = optimized_plan(spark, sql)
    if plan is None:
        return "the optimizer rejects it"
    nodes, output = plan
    columns = _columns(nodes, output)
    if isinstance(columns, str):
        return columns
    schema = to_arrow_schema(result.schema, timezone="UTC")
    return ArrowQuery(selection=selection_of(nodes, set(output)), schema=schema, columns=columns)


def _columns(nodes: Sequence[dict[str, Any]], output: Sequence[int]) -> tuple[str, ...] | str:
    from loghub_worker.query.transform import CONTENTS, expressions, kind_of

    kinds = [kind_of(node) for node in nodes]
    if kinds not in (["LogicalRDD"], ["Project", "LogicalRDD"]):
        return f"{kinds[0]}"
    of_leaf = {one.id: str(one.fields["name"]) for one in expressions(nodes[-1]["output"])}
    if tuple(of_leaf.values()) != tuple(SCHEMA.names):
        return "a table"
    if len(nodes) == 1:
        return tuple(of_leaf[id_] for id_ in output)
    names = []
    for number, one in enumerate(expressions(nodes[0]["projectList"]), 1):
        inner = one.operands[0] if one.kind == "Alias" else one
        if inner.kind == "AttributeReference" and inner.id in of_leaf:
            names.append(of_leaf[inner.id])
        elif (
            inner.kind == "GetMapValue"
            and inner.operands[0].kind == "AttributeReference"
            and of_leaf.get(inner.operands[0].id) == CONTENTS
            and inner.operands[1].kind == "Literal"
        ):
            names.append(str(inner.operands[1].fields["value"]))
        else:
            return f"{inner.kind} in column {number}"
    return tuple(names)
