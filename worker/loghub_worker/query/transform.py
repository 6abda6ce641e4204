"""The user's part of a batch: an SQL query or a Python function that turns logs into rows for the sink.

It is checked once, with no logs, before the worker joins its group. Each batch must have the columns that it
returned then: a sink was made ready for these, by creating a table with them or comparing a table with them.
A function may return other columns for some logs, for example by a schema that it infers from them, and a
query may read another table whose columns change. Files with such rows could be written, and no reader would
put them together with the earlier files: columns would be missing, or the whole table unreadable.

A pipeline sees the logs of one micro-batch, and how many these are is an accident of time. ``SELECT status,
count(*) FROM logs GROUP BY status`` therefore writes one count per status and micro-batch, and nothing in the
sink says so. Such operations are found in the plan that Spark makes of the user's query or function, since
they have many spellings. Operations on other tables, or within one log, are allowed; only the rows of another
table must not reach the sink without a log, since they would with each micro-batch, and neither may the rows
of a query that reads no logs.

Columns of the view `logs`, and keys of the contents, that a query does not use are not decoded and do not
reach Spark's JVM, whose work on a row grows with every column, and with every pair of a map. If a query uses
the contents only by constant keys, such as ``contents['path']``, each of these keys becomes a column of its
own in place of the map. The used columns are read off the plan that Spark's optimizer makes of the query over
an empty view. An unknown node uses everything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, create_map, lit
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from loghub.contract.worker import CopyPipeline, Pipeline, PythonPipeline, SqlPipeline
from loghub_consumer.errors import FatalError, first_lines
from loghub_consumer.failure.outage import decisive
from loghub_consumer.reading.decoding import EVERYTHING, SCHEMA, Selection
from loghub_consumer.user_code import import_named, user_message
from loghub_worker.query.arrow_query import ArrowQuery, arrow_query_of
from loghub_worker.query.plan import (
    LEAF,
    Expression,
    expressions_of,
    items,
    kind_of,
    leaf_columns,
    moment_in,
    nodes_of,
    output_ids,
)
from loghub_worker.query.spark_session import invalid
from loghub_worker.source import GroupDataSource
from loghub_worker.spark_errors import SPARK_ERRORS

Columns = Sequence[tuple[str, str]]  # names and types, as in `DataFrame.dtypes`: not whether one may be null
SHOWN = 5  # differences: a message is read by people
MAX_TYPE_CHARS = 200  # of a struct of many fields, so that the rest of the message is read


def difference(checked: Columns, actual: Columns) -> str | None:
    """What differs in names, types or order, in words; None if nothing does."""
    if list(checked) == list(actual):
        return None
    differences = list(_differences(dict(checked), dict(actual))) or [
        f"they are {_names(actual)} instead of {_names(checked)}"  # in order, or in number
    ]
    more = len(differences) - SHOWN
    return "; ".join(differences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name, kind in now.items():
        if name not in before:
            yield f"{name!r} is new ({kind[:MAX_TYPE_CHARS]})"
        elif before[name] != kind:
            yield f"{name!r} is {kind[:MAX_TYPE_CHARS]} instead of {before[name][:MAX_TYPE_CHARS]}"
    yield from (f"{name!r} is missing" for name in before if name not in now)


def _names(columns: Columns) -> str:
    return ", ".join(name for name, _ in columns)


AGGREGATION = "GROUP BY or an aggregate function"
DEDUPLICATION = "DISTINCT or dropDuplicates"
# Spark's names of the nodes of a plan; `Sort` counts only if it sorts all rows.
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
# Joins with logs on one side only: these also have rows for the other side alone, so each micro-batch has
# them again.
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


VIEW = "logs"  # the view that a query reads
CONTENTS = "contents"
AT_LEAST = "__shard__"  # a row needs a column; this one is the same for all rows of a shard
# The nodes of a plan whose columns are all named in their expressions, or come from below under their own
# names. Other nodes, such as a union, have columns by position.
PLAIN_NODES = frozenset({"Project", "Filter", "Generate", LEAF})
NULL_TESTS = ("IsNotNull", "IsNull")  # the contents of a log are never null, whatever they are made of


def _execution(spark: SparkSession, sql: str) -> Any:
    """The plans of a valid query over the view, as an object of Spark's JVM. The view is replaced. The
    optimizer may reject a query that is valid, by a `PySparkException` when its plan is taken; such a query
    fails in each batch, with the error of that batch."""
    session = spark._jsparkSession
    schema = session.parseDataType(from_arrow_schema(SCHEMA).json())
    # Of no local rows, since the optimizer would reduce a query over these to nothing.
    DataFrame(session.createDataFrame(spark._jsc.emptyRDD(), schema), spark).createOrReplaceTempView(VIEW)
    return spark.sql(sql)._jdf.queryExecution()


def used_columns(spark: SparkSession, sql: str) -> Selection:
    """The columns that a valid query over the view uses; all if the optimizer rejects it."""
    try:
        plan = _execution(spark, sql).optimizedPlan()
    except PySparkException:
        return EVERYTHING
    return selection_of(nodes_of(plan), set(output_ids(plan)))


def arrow_query(spark: SparkSession, sql: str, result: DataFrame) -> ArrowQuery | str:
    """The query for Arrow, or the reason why Arrow cannot compute it exactly as Spark does. `result` are the
    rows that the query returned for no logs."""
    try:
        execution = _execution(spark, sql)
        plan = execution.optimizedPlan()
    except PySparkException as error:
        return first_lines(error)
    assert spark._jvm is not None
    current: Any = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    reason = moment_in(execution.analyzed(), sql, current=current.CURRENT_LIKE())
    if reason is not None:
        return reason
    nodes, output = nodes_of(plan), output_ids(plan)
    schema = to_arrow_schema(result.schema, timezone="UTC")
    return arrow_query_of(nodes, selection_of(nodes, set(output)), output, schema)


def selection_of(nodes: Sequence[dict[str, Any]], result: set[int]) -> Selection:
    """The columns that a plan uses: its nodes as Spark writes them in JSON, and the ids of the columns of its
    result."""
    columns = leaf_columns(nodes)
    if not {kind_of(node) for node in nodes} <= PLAIN_NODES or tuple(columns.values()) != tuple(SCHEMA.names):
        return EVERYTHING
    used, keys = {columns[id_] for id_ in result & columns.keys()}, set[str]()
    for node in nodes:
        if kind_of(node) != LEAF:
            for expression in expressions_of(node):
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


def as_view(rows: DataFrame, selection: Selection) -> DataFrame:
    """The columns of the view, made from the rows of a selection. A column that is not used is null. Contents
    that were selected by key are a map of them, which Spark's optimizer resolves to the columns."""
    types = from_arrow_schema(SCHEMA)
    missing = {
        name: lit(None).cast(types[name].dataType) for name in SCHEMA.names if name not in selection.view
    }
    if selection.keys:
        pairs = [part for key in selection.keys for part in (lit(key), col(f"`{key.replace('`', '``')}`"))]
        missing[CONTENTS] = create_map(*pairs)
    return rows.select(*(missing.get(name, col(name)).alias(name) for name in SCHEMA.names))


class PipelineError(Exception):
    """The user's function raised an error, or returned no DataFrame, or the columns of a batch differ from
    the checked ones."""


class Transform(Protocol):
    """Turns the logs of a batch into the rows for the sink."""

    def __call__(self, logs: DataFrame) -> DataFrame:
        """The rows, which may be computed later. Raises `PipelineError` if their columns differ from the
        checked ones."""

    def check(self, empty: DataFrame) -> DataFrame:
        """The rows of no logs. Raises `FatalError` ``InvalidPipeline`` for an error that retries do not
        resolve."""

    @property
    def selection(self) -> Selection:
        """The columns that the transform needs. Known once it was checked."""


class _Checked:
    """The columns that the pipeline returned when it was checked; any before that."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._columns: Columns | None = None

    def note(self, rows: DataFrame) -> DataFrame:
        self._columns = rows.dtypes
        return rows

    def require(self, rows: DataFrame) -> DataFrame:
        problem = None if self._columns is None else difference(self._columns, rows.dtypes)
        if problem is not None:
            raise PipelineError(
                f"{self._name} returned other columns than with no logs, with which it was checked:"
                f" {problem}."
                " Name the columns and their types, so that they do not depend on the logs, or on a table"
                " that changes; for another set of columns, restart the workers"
            )
        return rows


class SqlTransform:
    """A query over the view `logs`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._checked = _Checked("the query")
        self.selection = EVERYTHING

    def __call__(self, logs: DataFrame) -> DataFrame:
        return self._checked.require(self._rows(logs))

    def _rows(self, logs: DataFrame) -> DataFrame:
        view = logs if logs.columns == SCHEMA.names else as_view(logs, self.selection)
        view.createOrReplaceTempView(VIEW)
        return logs.sparkSession.sql(self._text)

    def check(self, empty: DataFrame) -> DataFrame:
        try:
            # Only a query is allowed: the check itself would execute a statement, and so would each batch.
            empty.sparkSession._jsparkSession.sessionState().sqlParser().parseQuery(self._text)
            rows = self._checked.note(self._rows(empty))
            self.selection = used_columns(empty.sparkSession, self._text)
            return rows
        except SPARK_ERRORS as error:
            raise invalid(error) from error


class CopyTransform:
    """No transform: the source copies log groups and yields only their numbers."""

    selection = EVERYTHING

    def __call__(self, logs: DataFrame) -> DataFrame:
        return logs

    def check(self, empty: DataFrame) -> DataFrame:
        return empty


class PythonTransform:
    """A Python function of the user. It may use any column."""

    selection = EVERYTHING

    def __init__(self, name: str, function: Callable[[DataFrame], object], code: Path | None) -> None:
        self._name = name
        self._function = function
        self._code = code
        self._checked = _Checked(name)
        # The function may persist its logs and cannot release them: the rows are computed after it returns.
        self._previous: DataFrame | None = None

    def __call__(self, logs: DataFrame) -> DataFrame:
        return self._checked.require(self._rows(logs))

    def _rows(self, logs: DataFrame) -> DataFrame:
        if self._previous is not None:
            self._previous.unpersist()
        self._previous = logs
        try:
            rows = self._function(logs)
        except SPARK_ERRORS:
            raise  # an error of the batch itself, such as an unreachable endpoint, is recognized by its type
        except (Exception, SystemExit) as error:
            raise PipelineError(self._message(error)) from error
        if not isinstance(rows, DataFrame):
            raise PipelineError(f"{self._name} returned {type(rows).__name__}, not a Spark DataFrame")
        return rows

    def check(self, empty: DataFrame) -> DataFrame:
        try:
            return self._checked.note(self._rows(empty))
        except PipelineError as error:
            raise FatalError("InvalidPipeline", str(error)) from error
        except SPARK_ERRORS as error:
            raise FatalError("InvalidPipeline", self._message(error)) from error

    def _message(self, error: BaseException) -> str:
        return f"{self._name}: {user_message(decisive(error), self._code)}"


def make_transform(pipeline: Pipeline, code: Path | None) -> Transform:
    """The transform of a batch. It imports the user's module, so Spark must have started. Raises `FatalError`
    ``InvalidPipeline``."""
    if isinstance(pipeline, SqlPipeline):
        return SqlTransform(pipeline.text)
    if isinstance(pipeline, CopyPipeline):
        return CopyTransform()
    assert isinstance(pipeline, PythonPipeline)  # a processor runs without Spark
    return PythonTransform(pipeline.function, _import_function(pipeline.function, code), code)


def checked_rows_of_batch(transform: Transform, empty: DataFrame, *, per_batch: bool) -> DataFrame:
    """The rows of no logs, of a pipeline without state. Raises `FatalError` ``InvalidPipeline``."""
    rows = transform.check(empty)
    refuse_stateful(rows)
    if not per_batch:
        refuse_per_batch(rows)
    return rows


def empty_logs(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of logs."""
    return spark.createDataFrame([], GroupDataSource({}).schema())


def _import_function(name: str, code: Path | None) -> Callable[[DataFrame], object]:
    function = import_named(name, code)
    if not callable(function):
        _, _, attribute = name.partition(":")
        raise FatalError(
            "InvalidPipeline", f"{name}: {attribute} is not a function but {type(function).__name__}"
        )
    checked: Callable[[DataFrame], object] = function
    return checked
