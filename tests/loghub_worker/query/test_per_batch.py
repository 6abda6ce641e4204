"""Operations whose result would be that of one micro-batch are found in the analyzed plan, whatever the query
looks like, and refused unless the pipeline wants them. `test_pandas` has functions over groups."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.window import Window

from loghub_consumer.errors import FatalError
from loghub_consumer.reading.decoding import SCHEMA
from loghub_worker.query.transform import SqlTransform, empty_logs, refuse_per_batch, refuse_stateful
from tests.loghub_worker.plan_operations import per_batch_operations
from tests.loghub_worker.support import SQL

pytestmark = pytest.mark.spark

GROUPED, DISTINCT, LIMITED, OFFSET, SORTED, WINDOW, SET, JOIN, SUBQUERY = (
    "GROUP BY or an aggregate function",
    "DISTINCT or dropDuplicates",
    "LIMIT",
    "OFFSET",
    "ORDER BY",
    "a window function",
    "INTERSECT or EXCEPT",
    "a join of logs with logs",
    "a subquery over logs",
)
OTHERS_JOINED = "a join that keeps rows of another table whatever logs there are"
OTHERS_UNITED = "a union of logs with another table"


@pytest.mark.parametrize(
    ("sql", "operations"),
    [
        (SQL, []),
        ("SELECT k, v FROM logs LATERAL VIEW explode(contents) t AS k, v WHERE __shard__ > 1", []),
        ("SELECT * FROM logs SORT BY __time__", []),
        ("SELECT __shard__ FROM logs UNION ALL SELECT __shard__ FROM logs", []),
        ("SELECT aggregate(map_values(contents), '', (a, b) -> a || b) FROM logs", []),
        ("SELECT (SELECT max(x) FROM explode(map_values(contents)) AS t(x)) FROM logs", []),
        ("SELECT m FROM logs, LATERAL (SELECT max(x) AS m FROM explode(map_values(contents)) AS t(x))", []),
        ("SELECT n FROM logs JOIN (SELECT id, count(*) n FROM range(9) GROUP BY 1) ON __shard__ = id", []),
        ("SELECT __shard__ FROM logs WHERE __shard__ IN (SELECT id FROM range(9) LIMIT 3)", []),
        ("SELECT count(*) FROM logs", [GROUPED]),
        ("SELECT __shard__, max(__time__) FROM logs GROUP BY __shard__ HAVING count(*) > 2", [GROUPED]),
        ("WITH t AS (SELECT * FROM logs) SELECT count(*) FROM t", [GROUPED]),
        ("WITH t AS (SELECT * FROM logs), u AS (SELECT * FROM t) SELECT __shard__ FROM u LIMIT 1", [LIMITED]),
        ("WITH t AS (SELECT id FROM range(9)) SELECT count(*) FROM t", []),
        ("SELECT * FROM logs PIVOT (count(1) FOR __shard__ IN (1, 2))", [GROUPED]),
        ("FROM logs |> AGGREGATE count(*)", [GROUPED]),
        ("SELECT DISTINCT __shard__ FROM logs", [DISTINCT]),
        ("SELECT __shard__ FROM logs UNION SELECT __shard__ FROM logs", [DISTINCT]),
        ("SELECT * FROM logs LIMIT 3", [LIMITED]),
        ("SELECT * FROM logs TABLESAMPLE (5 ROWS)", [LIMITED]),
        ("SELECT * FROM logs OFFSET 2", [OFFSET]),
        ("SELECT * FROM logs ORDER BY __time__ LIMIT 3", [LIMITED, SORTED]),
        ("SELECT row_number() OVER (PARTITION BY __shard__ ORDER BY __time__) FROM logs", [WINDOW]),
        ("SELECT __shard__ FROM logs EXCEPT ALL SELECT __shard__ FROM logs", [SET]),
        ("SELECT a.* FROM logs a JOIN logs b USING (__cursor__)", [JOIN]),
        ("SELECT * FROM logs WHERE __time__ = (SELECT max(__time__) FROM logs)", [GROUPED, SUBQUERY]),
        ("SELECT 1 FROM logs a WHERE EXISTS (SELECT 1 FROM logs b WHERE a.__index__ > 1)", [SUBQUERY]),
        ("SELECT id FROM range(9) LEFT JOIN logs ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT id FROM logs RIGHT JOIN range(9) ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT id FROM logs FULL JOIN range(9) ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT id FROM range(9) FULL JOIN logs ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT id FROM range(9) ANTI JOIN logs ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT id FROM range(9) SEMI JOIN logs ON __shard__ = id", [OTHERS_JOINED]),
        ("SELECT __shard__ FROM logs UNION ALL SELECT id FROM range(9)", [OTHERS_UNITED]),
        ("SELECT id FROM logs LEFT JOIN range(9) ON __shard__ = id", []),
        ("SELECT id FROM range(9) RIGHT JOIN logs ON __shard__ = id", []),
        ("SELECT id FROM logs CROSS JOIN range(9)", []),
        ("SELECT __shard__ FROM logs ANTI JOIN range(9) ON __shard__ = id", []),
    ],
)  # fmt: skip
def test_operations_of_a_query(spark: SparkSession, sql: str, operations: list[str]) -> None:
    assert per_batch_operations(SqlTransform(sql).check(empty_logs(spark))) == operations


def by_shard(rows: DataFrame) -> DataFrame:
    return rows.withColumn("n", F.row_number().over(Window.partitionBy("__shard__").orderBy("__time__")))


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (lambda logs: logs.repartition(3).sortWithinPartitions("__time__").sample(0.5), []),
        (lambda logs: logs.groupBy("__shard__").count(), [GROUPED]),
        (lambda logs: logs.dropDuplicates(["__shard__"]), [DISTINCT]),
        (lambda logs: logs.limit(3).orderBy("__time__"), [LIMITED, SORTED]),
        (by_shard, [WINDOW]),
        (lambda logs: logs.select("__shard__").union(logs.select("__index__")), []),
        (lambda logs: logs.alias("a").join(logs.alias("b"), "__cursor__"), [JOIN]),
    ],
)
def test_operations_of_a_function(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame], operations: list[str]
) -> None:
    assert per_batch_operations(function(empty_logs(spark))) == operations


@pytest.mark.parametrize(
    "function",
    [
        lambda logs: logs.sparkSession.sql("SELECT 1 AS x"),
        lambda logs: logs.sparkSession.sql("SELECT * FROM range(9)"),
        lambda logs: logs.sparkSession.sql(
            "WITH t AS (SELECT * FROM logs), u AS (SELECT id FROM range(9)) SELECT * FROM u"
        ),
        lambda logs: logs.sparkSession.createDataFrame(
            logs.rdd.map(lambda row: row), logs.select("contents").schema
        ),
        lambda logs: logs.sparkSession.createDataFrame(logs.select("__shard__").collect(), "shard INT"),
    ],
    ids=["constant", "another table", "a definition that is not used", "rdd", "collect"],
)
def test_rows_that_come_from_no_log_are_refused(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame]
) -> None:
    """The sink would get those of a table again with each micro-batch."""
    logs = empty_logs(spark)
    logs.createOrReplaceTempView("logs")
    with pytest.raises(
        FatalError, match=r"the rows do not come from the view logs.*select from logs"
    ) as raised:
        refuse_per_batch(function(logs))
    assert raised.value.reason == "InvalidPipeline"
    refuse_per_batch(logs)


def test_what_needs_the_state_of_earlier_micro_batches_is_refused(spark: SparkSession) -> None:
    logs = empty_logs(spark)
    rows = logs.withWatermark("__time__", "1 minute").dropDuplicatesWithinWatermark(["__source__"])
    with pytest.raises(FatalError, match=r"dropDuplicatesWithinWatermark.*a worker keeps none") as raised:
        refuse_stateful(rows)
    assert raised.value.reason == "InvalidPipeline"
    for allowed in (logs.dropDuplicates(["__source__"]), logs.withWatermark("__time__", "1 minute")):
        refuse_stateful(allowed)


class Node:
    """A node of a plan with these columns, over others. Spark's own needs pandas."""

    def __init__(self, name: str, *below: "Node") -> None:
        self._name = name
        self._below = below

    def nodeName(self) -> str:
        return self._name

    def children(self) -> "Nodes":
        return Nodes(self._below)

    def subqueries(self) -> "Nodes":
        return Nodes(())

    def output(self) -> "Nodes":
        return Nodes(tuple(map(Column, SCHEMA.names)))


class Column:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


class Nodes:
    """A sequence of Scala."""

    def __init__(self, items: tuple[object, ...]) -> None:
        self._items = items

    def size(self) -> int:
        return len(self._items)

    def apply(self, index: int) -> object:
        return self._items[index]


class Result:
    """A DataFrame with this plan."""

    def __init__(self, plan: Node) -> None:
        self._plan = plan

    @property
    def _jdf(self) -> "Result":
        return self

    def queryExecution(self) -> "Result":
        return self

    def analyzed(self) -> Node:
        return self._plan


@pytest.mark.parametrize(
    ("node", "named"),
    [
        ("TransformWithState", "transformWithState"),
        ("TransformWithStateInPySpark", "transformWithState"),
        ("FlatMapGroupsInPandasWithState", "applyInPandasWithState"),
    ],
)
def test_functions_over_state_are_refused_by_their_names(node: str, named: str) -> None:
    result: Any = Result(Node("Project", Node(node, Node("LocalRelation"))))
    with pytest.raises(FatalError, match=named):
        refuse_stateful(result)


def test_the_message_says_what_to_do(spark: SparkSession) -> None:
    rows = SqlTransform("SELECT count(*) FROM logs ORDER BY 1").check(empty_logs(spark))
    with pytest.raises(FatalError, match=r"GROUP BY .* and ORDER BY.*pipeline\.perBatch: true") as raised:
        refuse_per_batch(rows)
    assert raised.value.reason == "InvalidPipeline"
    refuse_per_batch(SqlTransform(SQL).check(empty_logs(spark)))
