"""Whether the times that move a watermark are bounded, as the plan of a query says.

`__time__` of a stateful pipeline is never after the receipt of a log (`loghub_worker.source.receipts`). A
time from the contents can be any, and one of them in the year 2096 would make every later log late. So a
column with a watermark must be `__time__`, or be computed so that it is not after `__time__`, or not after
the present, whatever the log says."""

from collections.abc import Iterator
from typing import Any

from loghub_worker.query.per_batch import items

TIME = "__time__"
# Spark's names of expressions: those of the present, and those that are bounded if what they are made of is.
PRESENT = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentBatchTimestamp"})
OF_ALL = frozenset(
    {"Alias", "Cast", "Coalesce", "Greatest", "TruncTimestamp", "TimeAdd", "TimestampAddInterval"}
)
OF_ANY = frozenset({"Least"})


def unbounded_watermarks(plan: Any) -> list[str]:
    """The names of the columns with a watermark that is not bounded, in an analyzed plan."""
    nodes = list(_nodes(plan))
    defined: dict[int, Any] = {}
    times: set[int] = set()
    for node in nodes:
        if node.nodeName() == "Project":
            named = [one for one in items(node.projectList()) if _kind(one) == "Alias"]
            defined |= {one.exprId().id(): one for one in named}
        elif node.children().isEmpty() and node.isStreaming():
            times |= {one.exprId().id() for one in items(node.output()) if one.name() == TIME}
    moving = [node.eventTime() for node in nodes if node.nodeName() == "EventTimeWatermark"]
    return [column.name() for column in moving if not _is_bounded(column, defined, times)]


def _is_bounded(expression: Any, defined: dict[int, Any], times: set[int]) -> bool:
    kind = _kind(expression)
    if kind == "AttributeReference":
        id_ = expression.exprId().id()
        return id_ in times or (id_ in defined and _is_bounded(defined[id_], defined, times))
    if kind not in OF_ALL | OF_ANY:
        return kind in PRESENT
    operands = [one for one in items(expression.children()) if not one.foldable() or _kind(one) in PRESENT]
    found = [_is_bounded(one, defined, times) for one in operands]
    return any(found) if kind in OF_ANY else bool(found) and all(found)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
