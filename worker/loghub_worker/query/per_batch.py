"""Finds operations whose result covers one micro-batch where a reader expects one of all logs.

A pipeline sees the logs of one micro-batch, and how many that are is an accident of time. ``SELECT status,
count(*) FROM logs GROUP BY status`` therefore writes one count per status and micro-batch, and nothing in
the sink says so. Such operations are looked up in the plan that Spark makes of the user's query or
function, since they have many spellings. What is done to other tables, or within one log, is allowed; only
the rows of another table may not reach the sink without a log, since they would with each micro-batch, and
nor may those of a query that reads no logs."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from loghub_worker.fatal_error import FatalError
from loghub_worker.source.arrow_decoder import SCHEMA

AGGREGATION = "GROUP BY or an aggregate function"
DEDUPLICATION = "DISTINCT or dropDuplicates"
# Spark's names of the nodes of a plan; `Sort` counts only if it is of all rows.
OPERATIONS = {
    "Aggregate": AGGREGATION,
    "Distinct": DEDUPLICATION,
    "Deduplicate": DEDUPLICATION,
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Tail": "LIMIT",
    "Offset": "OFFSET",
    "Sort": "ORDER BY",
    "Window": "a window function",
    "Intersect": "INTERSECT or EXCEPT",
    "Except": "INTERSECT or EXCEPT",
}
# They would find the state that earlier micro-batches have left, and a micro-batch begins without any.
STATEFUL = {
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "TransformWithState": "transformWithState",
    "FlatMapGroupsWithState": "applyInPandasWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
}
GROUPS = "a function over groups"  # the node of each kind has `Group` in its name
SELF_JOIN = "a join of logs with logs"
SUBQUERY = "a subquery over logs"
OTHERS_JOINED = "a join that keeps rows of another table whatever logs there are"
OTHERS_UNITED = "a union of logs with another table"
# Of a join with logs on one side only: these also have rows for the other side alone, so each micro-batch
# has them again.
KEEP_RIGHT = ("RIGHT OUTER", "FULL OUTER")
KEEP_LEFT = ("LEFT OUTER", "FULL OUTER", "LEFT SEMI", "LEFT ANTI")


def refuse_per_batch(result: DataFrame) -> None:
    """Raise `FatalError` ``InvalidPipeline`` if the rows depend on which logs share a micro-batch, or come
    from no log at all."""
    walk = PlanWalk.of(result)
    operations = sorted(walk.found)
    if not walk.is_of_logs and not operations:
        raise FatalError(
            "InvalidPipeline",
            "the rows do not come from the view logs, so the sink would get them again with each micro-batch:"
            " select from logs. If a function takes the logs out of Spark, by rdd, collect or toPandas, the"
            " plan does not show what becomes of them: set pipeline.perBatch: true if its rows are of the"
            " logs of one micro-batch",
        )
    if operations:
        raise FatalError(
            "InvalidPipeline",
            f"the pipeline uses {' and '.join(operations)}, and a pipeline sees the logs of one micro-batch"
            " only: the sink would get results of each micro-batch, not of all logs. Write the rows to the"
            " sink and evaluate them there, or set pipeline.perBatch: true if results of micro-batches are"
            " meant",
        )


def refuse_stateful(result: DataFrame) -> None:
    """Raise `FatalError` ``InvalidPipeline`` if the rows depend on logs of earlier micro-batches."""
    walk = PlanWalk.of(result)
    if walk.stateful:
        raise FatalError(
            "InvalidPipeline",
            f"the pipeline uses {' and '.join(sorted(walk.stateful))}, which needs the state of earlier"
            " micro-batches, and a worker keeps none unless pipeline.stateful is true: write the rows to the"
            " sink and evaluate them there, or set it and read what happens to the state when shards move",
        )


class PlanWalk:
    """One walk through an analyzed plan, which is an object of Spark's JVM."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.stateful: set[str] = set()
        self.is_of_logs = False  # whether the rows come from logs
        self.deduplications: list[Any] = []  # the nodes
        self._definitions: dict[int, bool] = {}  # of WITH: whether each reads logs

    @staticmethod
    def of(result: DataFrame) -> "PlanWalk":
        """The walk through the plan of these rows."""
        walk = PlanWalk()
        walk.is_of_logs = walk.reads_logs(result._jdf.queryExecution().analyzed())
        return walk

    def reads_logs(self, node: Any) -> bool:
        """Whether the rows of this node come from logs. Notes the operations below it."""
        name = node.nodeName()
        # The definitions of WITH are children that come before the query that refers to them.
        sources = [self.reads_logs(child) for child in items(node.children())]
        subqueries = [self.reads_logs(query) for query in items(node.subqueries())]
        if any(subqueries):
            self.found.add(SUBQUERY)
        if name == "CTERelationRef":
            return self._definitions[node.cteId()]
        if not sources:
            return set(SCHEMA.names) <= {column.name() for column in items(node.output())}
        if name == "WithCTE":
            return sources[-1]  # a definition that the query does not refer to gives no rows
        if name == "CTERelationDef":
            self._definitions[node.id()] = any(sources)
        elif "Join" in name and sum(sources) > 1:
            self.found.add(SELF_JOIN)
        elif name == "Join" and any(sources):
            keeps_others = node.joinType().sql() in (KEEP_RIGHT if sources[0] else KEEP_LEFT)
            self.found |= {OTHERS_JOINED} if keeps_others else set()
        elif name == "Union" and any(sources):
            self.found |= set() if all(sources) else {OTHERS_UNITED}
        elif any(sources):
            self._note(name, node)
        return any(sources)

    def _note(self, name: str, node: Any) -> None:
        state = name.removesuffix("InPySpark").removesuffix("InPandas")
        if state in STATEFUL:
            self.stateful.add(STATEFUL[state])
            return
        if name in ("Deduplicate", "Distinct"):
            self.deduplications.append(node)
        operation = GROUPS if "Group" in name else OPERATIONS.get(name.removesuffix(" All"))
        if operation is not None and (name != "Sort" or getattr(node, "global")()):
            self.found.add(operation)


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))
