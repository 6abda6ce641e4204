"""A plan of Spark's optimizer as Python values: its nodes, and the trees of their expressions.

Spark writes a plan as JSON. What the JSON lacks is added to it: what a cast makes of a value that cannot be
cast; the values of a long IN; dates and times as numbers, whose text depends on the session's time zone.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

LEAF = "LogicalRDD"  # the rows that a DataFrame was made of
EVAL_MODE, VALUES = "evalMode", "hset"
_INCOMPLETE = ("Cast", "InSet", "Literal")
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class Expression:
    """One node of an expression: the name of its class, its fields, and its operands."""

    kind: str
    fields: dict[str, Any]
    operands: list["Expression"] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The id of an attribute or of an alias."""
        return int(self.fields["exprId"]["id"])


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


def nodes_of(plan: Any) -> list[dict[str, Any]]:
    """The nodes of a plan, which is an object of Spark's JVM: each node before the nodes below it. A plan of
    `Project` and `Filter` over one leaf is complete."""
    nodes: list[dict[str, Any]] = json.loads(plan.toJSON())
    at: Any = plan
    for node in nodes:
        if kind_of(node) not in ("Project", "Filter"):
            break
        written = (part for part in _flat(list(node.values())) if "num-children" in part)
        for part, expression in zip(written, _with_operands(at.expressions()), strict=True):
            if kind_of(part) in _INCOMPLETE:
                _complete(part, expression)
        at = at.child()
    return nodes


def _flat(value: Any) -> Iterator[dict[str, Any]]:
    """The nodes of the expressions in the fields of a node, without the copy of an optional operand in the
    expression that it belongs to."""
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        yield value


def _with_operands(expressions: Any) -> Iterator[Any]:
    for expression in items(expressions):
        yield expression
        yield from _with_operands(expression.children())


def _complete(part: dict[str, Any], expression: Any) -> None:
    match kind_of(part):
        case "Cast":
            part[EVAL_MODE] = str(expression.evalMode())
        case "InSet":
            values = items(expression.hset().toSeq())
            part[VALUES] = [None if value is None else str(value) for value in values]
        case _:
            if part["dataType"] in _TIMES and part["value"] is not None:
                part["value"] = str(expression.value())


def kind_of(node: dict[str, Any]) -> str:
    """The name of the class of a node of a plan or of an expression."""
    return str(node["class"]).rpartition(".")[2]


def expressions_in(value: Any) -> Iterator[Expression]:
    """The expressions in a field of a node. Spark writes each as a list of its nodes: a node, then its
    operands one after the other."""
    if not isinstance(value, list):
        return
    if value and isinstance(value[0], dict) and "num-children" in value[0]:
        nodes = iter(value)
        for first in nodes:
            yield _tree(first, nodes)
    else:
        for item in value:
            yield from expressions_in(item)


def expressions_of(node: dict[str, Any]) -> list[Expression]:
    """The expressions in all fields of a node."""
    return list(expressions_in([value for name, value in node.items() if name != "class"]))


def _tree(node: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Expression:
    return Expression(kind_of(node), node, [_tree(next(rest), rest) for _ in range(node["num-children"])])


def leaf_columns(nodes: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The ids and names of the columns of the one leaf of a plan; empty if there is another leaf."""
    leaves = [node for node in nodes if not node["num-children"]]
    if len(leaves) != 1 or kind_of(leaves[0]) != LEAF:
        return {}
    return {one.id: one.fields["name"] for one in expressions_in(leaves[0]["output"])}


def output_ids(plan: Any) -> list[int]:
    """The ids of the columns of a plan, which is an object of Spark's JVM."""
    return [column.exprId().id() for column in items(plan.output())]


# Texts that Spark reads as times of the moment at which it plans. An escape may spell one.
_MOMENTS = re.compile(r"now|today|tomorrow|yesterday|\\", re.IGNORECASE)


def moment_in(analyzed: Any, sql: str, *, current: Any) -> str | None:
    """What in an analyzed plan, an object of Spark's JVM, has another value in each batch, though the
    optimizer makes a constant of it; None if nothing has. `current` is Spark's pattern ``CURRENT_LIKE``."""
    if analyzed.containsPattern(current):
        return "the current time, user or database"
    nodes = json.loads(analyzed.toJSON())
    for node in nodes:
        for expression in expressions_of(node):
            for one in _subtree(expression):
                if one.kind in ("Cast", "Literal") and one.fields["dataType"] in _TIMES:
                    if _MOMENTS.search(sql):
                        return "a time with a word for the current time"
                    if one.kind == "Cast" and not _is_plain(one.operands[0]):
                        return "a time computed of constants"
    return None


def _subtree(expression: Expression) -> Iterator[Expression]:
    yield expression
    for operand in expression.operands:
        yield from _subtree(operand)


def _is_plain(expression: Expression) -> bool:
    """Whether it is a literal, or of some column."""
    return expression.kind == "Literal" or any(
        one.kind == "AttributeReference" for one in _subtree(expression)
    )
