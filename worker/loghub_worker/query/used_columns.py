"""Which columns of the view `logs`, and which keys of the contents, a query uses.

What a query does not use is not decoded and does not reach Spark's JVM, whose work on a row grows with every
column, and with every pair of a map. If a query uses the contents only by constant keys, such as
``contents['path']``, each of these keys becomes a column of its own in place of the map.

This is read off the plan that Spark's optimizer makes of the query over an empty view. What is not understood
there uses everything.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, create_map, lit
from pyspark.sql.pandas.types import from_arrow_schema

from loghub_worker.source.arrow_decoder import EVERYTHING, SCHEMA, Selection

VIEW = "logs"  # the view that a query reads
CONTENTS = "contents"
AT_LEAST = "__shard__"  # a row needs a column; this one is the same for all rows of a shard
# The nodes of a plan whose columns are all named in their expressions, or come from below under their own
# names. Others, such as a union, have columns by position.
PLAIN_NODES = frozenset({"Project", "Filter", "Generate", "LogicalRDD"})
NULL_TESTS = ("IsNotNull", "IsNull")  # the contents of a log are never null, whatever they are made of


@dataclass(frozen=True, slots=True)
class Expression:
    """One node of an expression: the name of its class, its fields, and its operands."""

    kind: str
    fields: dict[str, Any]
    operands: list["Expression"] = field(default_factory=list)

    @property
    def id(self) -> int:
        """Of an attribute."""
        return int(self.fields["exprId"]["id"])


def used_columns(spark: SparkSession, sql: str) -> Selection:
    """What a valid query over the view uses. The view is replaced. A query that the optimizer rejects fails
    in each batch, and with the error of that batch; it uses everything."""
    session = spark._jsparkSession
    schema = session.parseDataType(from_arrow_schema(SCHEMA).json())
    # Of no local rows, since the optimizer would reduce a query over these to nothing.
    DataFrame(session.createDataFrame(spark._jsc.emptyRDD(), schema), spark).createOrReplaceTempView(VIEW)
    try:
        plan = spark.sql(sql)._jdf.queryExecution().optimizedPlan()
    except PySparkException:
        return EVERYTHING
    output = plan.output()
    result = {output.apply(n).exprId().id() for n in range(output.size())}
    return selection_of(json.loads(plan.toJSON()), result)


def selection_of(nodes: Sequence[dict[str, Any]], result: set[int]) -> Selection:
    """What a plan uses: its nodes as Spark writes them in JSON, and the ids of the columns of its result."""
    leaves = [node for node in nodes if _kind(node) == "LogicalRDD"]
    if len(leaves) != 1 or not {_kind(node) for node in nodes} <= PLAIN_NODES:
        return EVERYTHING
    columns = {one.id: one.fields["name"] for one in _expressions(leaves[0]["output"])}
    if tuple(columns.values()) != tuple(SCHEMA.names):
        return EVERYTHING
    used, keys = {columns[id_] for id_ in result & columns.keys()}, set[str]()
    for node in nodes:
        if node is not leaves[0]:
            for expression in _expressions([value for name, value in node.items() if name != "class"]):
                if not _note(expression, columns, used, keys):
                    return EVERYTHING
    names = [name.lower() for name in (*SCHEMA.names, *keys)]  # as Spark compares them
    if CONTENTS not in used and len(set(names)) < len(names):
        used.add(CONTENTS)
    if CONTENTS in used:
        keys = set()
    view = tuple(name for name in SCHEMA.names if name in used)
    return Selection(view=view or (() if keys else (AT_LEAST,)), keys=tuple(sorted(keys)))


def _note(expression: Expression, columns: dict[int, str], used: set[str], keys: set[str]) -> bool:
    """Note the columns and keys that an expression uses. Returns False if there is a query inside it."""
    if "Subquery" in expression.kind or expression.kind in ("Exists", "ListQuery"):
        return False
    if expression.kind == "AttributeReference":
        used |= {columns[expression.id]} if expression.id in columns else set()
        return True
    operands = expression.operands
    if operands and operands[0].kind == "AttributeReference" and columns.get(operands[0].id) == CONTENTS:
        if expression.kind in NULL_TESTS:
            return True
        if expression.kind == "GetMapValue" and _is_text(operands[1]):
            keys.add(operands[1].fields["value"])
            return True
    return all(_note(one, columns, used, keys) for one in operands)


def _is_text(expression: Expression) -> bool:
    fields = expression.fields
    return (
        expression.kind == "Literal" and fields["dataType"] == "string" and isinstance(fields["value"], str)
    )


def _kind(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _expressions(value: Any) -> Iterator[Expression]:
    """The expressions in a field of a node. Spark writes each as a list of its nodes: a node, then its
    operands one after the other."""
    if not isinstance(value, list):
        return
    if value and isinstance(value[0], dict) and "num-children" in value[0]:
        nodes = iter(value)
        for first in nodes:
            yield _tree(first, nodes)
    else:
        for one in value:
            yield from _expressions(one)


def _tree(node: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Expression:
    return Expression(_kind(node), node, [_tree(next(rest), rest) for _ in range(node["num-children"])])


def as_view(rows: DataFrame, selection: Selection) -> DataFrame:
    """The columns of the view, made of the rows of a selection. A column that is not used is null. Contents
    that were selected by key are a map of them, which Spark's optimizer resolves to the columns."""
    types = from_arrow_schema(SCHEMA)
    missing = {
        name: lit(None).cast(types[name].dataType) for name in SCHEMA.names if name not in selection.view
    }
    if selection.keys:
        pairs = [part for key in selection.keys for part in (lit(key), col(f"`{key.replace('`', '``')}`"))]
        missing[CONTENTS] = create_map(*pairs)
    return rows.select(*(missing.get(name, col(name)).alias(name) for name in SCHEMA.names))
