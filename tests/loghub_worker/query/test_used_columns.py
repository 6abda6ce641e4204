"""What a query uses of the logs, and that it has the same result if it gets nothing else."""

import re

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.reading.decoding import EVERYTHING, SCHEMA, Body, Selection, decode
from loghub_worker.query.transform import SqlTransform, as_view, empty_logs

pytestmark = pytest.mark.spark

CONTENTS = (
    (("a", "1"), ("b", "x"), ("A", "2"), ("d`e", "3")),
    (("b", "y"),),
    (),
    (("a", ""), ("a", "9"), ("it's", "4"), ("b", "x")),
)
BODY = loggroup.wrap(
    loggroup.encode(
        LogGroup(
            logs=tuple(Log(time=1_700_000_000 + n, contents=pairs) for n, pairs in enumerate(CONTENTS)),
            topic=topic,
            tags=(("host", topic),),
        )
    )
    for topic in ("first", "second")
)
NESTED = "SELECT a FROM (SELECT __topic__, contents['a'] AS a, contents['zz'] AS z, * FROM logs)"

QUERIES = [
    ("SELECT * FROM logs", EVERYTHING),
    ("SELECT * FROM logs WHERE __topic__ = 'first'", EVERYTHING),
    ("SELECT __time__, __topic__ FROM logs", Selection(view=("__time__", "__topic__"))),
    ("SELECT contents['a'] AS a, contents.b FROM logs", Selection(view=(), keys=("a", "b"))),
    (
        "SELECT contents['a'] AS a FROM logs WHERE contents['b'] = 'x' AND __cursor__ > 7",
        Selection(view=("__cursor__",), keys=("a", "b")),
    ),
    ("SELECT upper(contents['b']) || __topic__ AS x FROM logs", Selection(view=("__topic__",), keys=("b",))),
    ("SELECT contents['d`e'] x, contents[\"it's\"] y FROM logs", Selection(view=(), keys=("d`e", "it's"))),
    ("SELECT contents['none'] AS a FROM logs", Selection(view=(), keys=("none",))),
    (NESTED, Selection(view=(), keys=("a",))),
    ("WITH w AS (SELECT contents['a'] AS a FROM logs) SELECT a FROM w", Selection(view=(), keys=("a",))),
    ("SELECT 1 AS one FROM logs", Selection(view=("__shard__",))),
    ("SELECT contents['a'] AS a FROM logs WHERE contents IS NOT NULL", Selection(view=(), keys=("a",))),
    # The whole map is used, or two columns would have the same name.
    ("SELECT contents['a'] AS a, size(contents) AS n FROM logs", Selection(view=("contents",))),
    ("SELECT contents['a'] AS a, contents['A'] AS b FROM logs", Selection(view=("contents",))),
    ("SELECT contents['__Topic__'] AS a FROM logs", Selection(view=("contents",))),
    ("SELECT contents[__topic__] AS a FROM logs", Selection(view=("__topic__", "contents"))),
    ("SELECT element_at(contents, 'b') AS b FROM logs", Selection(view=("contents",))),
    ("SELECT map_filter(contents, (k, v) -> k > 'a')['b'] AS b FROM logs", Selection(view=("contents",))),
    ("SELECT k, v FROM logs LATERAL VIEW explode(contents) t AS k, v", Selection(view=("contents",))),
    ("SELECT __tags__['host'] AS host FROM logs", Selection(view=("__tags__",))),
    # Plans that are not looked into.
    ("SELECT __topic__ AS x FROM logs UNION ALL SELECT __source__ FROM logs", EVERYTHING),
    ("SELECT __topic__, (SELECT max(__cursor__) FROM logs) AS m FROM logs", EVERYTHING),
    ("SELECT count(*) AS n, contents['b'] AS b FROM logs GROUP BY ALL", EVERYTHING),
]


def test_a_query_that_the_optimizer_rejects_uses_everything(spark: SparkSession) -> None:
    """A correlated subquery cannot have a map; over no logs it is accepted."""
    transform = SqlTransform("SELECT (SELECT max(x) FROM explode(map_values(contents)) AS t(x)) FROM logs")
    transform.check(empty_logs(spark))
    assert transform.selection == EVERYTHING


def rows_of(spark: SparkSession, selection: Selection) -> DataFrame:
    table = pa.Table.from_batches([decode([Body(7, BODY)], shard=3, selection=selection).rows])
    return spark.createDataFrame(table)


@pytest.mark.parametrize(("sql", "selection"), QUERIES)
def test_a_query_gets_what_it_uses_and_has_the_same_result(
    spark: SparkSession, sql: str, selection: Selection
) -> None:
    transform = SqlTransform(sql)
    transform.check(empty_logs(spark))
    assert transform.selection == selection
    of_all = transform(rows_of(spark, EVERYTHING))
    wanted = of_all.collect()
    of_selected = transform(rows_of(spark, selection))
    assert of_selected.schema == of_all.schema
    assert sorted(map(repr, of_selected.collect())) == sorted(map(repr, wanted))


def test_no_map_is_built_for_contents_that_are_columns(spark: SparkSession) -> None:
    """Spark's optimizer resolves the map that the view is defined with."""
    sql = "SELECT contents['a'] AS a FROM logs WHERE contents['b'] = 'x'"
    transform = SqlTransform(sql)
    transform.check(empty_logs(spark))
    plan = transform(rows_of(spark, transform.selection))._jdf.queryExecution().optimizedPlan().toString()
    assert not re.search(r"\bmap\(|CASE|contents", plan), plan


def test_the_view_has_its_columns_and_types_whatever_was_selected(spark: SparkSession) -> None:
    for selection in (Selection(view=(), keys=("a",)), Selection(view=("contents",))):
        view = as_view(rows_of(spark, selection), selection)
        assert [(f.name, f.dataType) for f in view.schema] == [
            (f.name, f.dataType) for f in empty_logs(spark).schema
        ]
        assert view.columns == SCHEMA.names
