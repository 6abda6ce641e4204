"""`loghub_spark.testing`: what a user's own tests of a pipeline see."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_consumer.errors import FatalError
from loghub_spark.testing import run_python, run_sql

pytestmark = pytest.mark.spark


def test_a_query_has_rows_of_python_and_the_logs_that_fail_by_themselves(spark: SparkSession) -> None:
    logs = [
        {"n": "1", "__time__": 7, "__topic__": "t"},
        {"n": "x"},
        [{"n": "2"}, {"n": "3"}],
        [{"n": "y"}, {"n": "4"}],
    ]
    made = run_sql(
        "SELECT __time__ AS t, __topic__ AS topic, CAST(contents['n'] AS INT) AS n FROM logs", logs
    )
    assert made.columns == {"t": "timestamp", "topic": "string", "n": "int"}
    assert made.rows[0] == {"t": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC), "topic": "t", "n": 1}
    assert [row["n"] for row in made.rows] == [1, 2, 3]
    assert [(one.number, one.log) for one in made.rejected] == [
        (1, {"n": "x"}),
        (3, {"n": "y"}),
        (3, {"n": "4"}),
    ]
    assert all("CAST_INVALID_INPUT" in one.message for one in made.rejected)
    assert made.untried == ()


def test_nested_values_are_dictionaries_and_lists(spark: SparkSession) -> None:
    made = run_sql(
        "SELECT contents, named_struct('a', array(1, 2)) AS s FROM logs", [{"k": "v"}], spark=spark
    )
    assert made.rows == [{"contents": {"k": "v"}, "s": {"a": [1, 2]}}]


def test_of_many_logs_that_fail_some_are_left_out(spark: SparkSession) -> None:
    made = run_sql("SELECT CAST(contents['n'] AS INT) AS n FROM logs", [{"n": "x"}] * 16)
    assert made.rows == []
    assert len(made.rejected) == 10
    assert made.untried == tuple(range(10, 16))


def lines(logs: DataFrame) -> DataFrame:
    return logs.select(F.upper(F.col("contents")["line"]).alias("line"))


def test_a_function_gets_the_logs(spark: SparkSession) -> None:
    assert run_python(lines, ["a", "b"]).rows == [{"line": "A"}, {"line": "B"}]
    assert run_python(lines, []).rows == []


def nothing(_: DataFrame) -> Any:
    return None


def test_what_a_worker_would_refuse_is_refused_in_its_words(spark: SparkSession) -> None:
    with pytest.raises(FatalError, match="the pipeline uses GROUP BY"):
        run_sql("SELECT count(*) AS n FROM logs", ["a"])
    assert run_sql("SELECT count(*) AS n FROM logs", ["a", "b"], per_batch=True).rows == [{"n": 2}]
    with pytest.raises(FatalError, match="PARSE_SYNTAX_ERROR"):
        run_sql("SELEC 1", [])
    with pytest.raises(FatalError, match="nothing returned NoneType, not a Spark DataFrame"):
        run_python(nothing, [])
