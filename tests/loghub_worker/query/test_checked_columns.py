"""A batch with other columns than those that were checked fails, before the sink gets it, in words that name
them."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from loghub_worker.query.checked_columns import difference
from loghub_worker.query.transform import PipelineError, PythonTransform, SqlTransform, empty_logs

CHECKED = StructType().add("n", "long", nullable=False).add("user", "string")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (StructType().add("n", "long").add("user", "string", nullable=False), None),
        (StructType().add("n", "long", metadata={"x": 1}).add("user", "string"), None),
        (StructType().add("n", "string").add("user", "string"), "'n' is string instead of bigint"),
        (StructType().add("n", "long"), "'user' is missing"),
        (
            StructType().add("n", "long").add("User", "string"),
            "'User' is new (string); 'user' is missing",
        ),
        (
            StructType().add("n", "long").add("user", "string").add("city", "string"),
            "'city' is new (string)",
        ),
        (StructType().add("user", "string").add("n", "long"), "they are user, n instead of n, user"),
        (
            StructType().add("n", "long").add("user", "string").add("n", "long"),
            "they are n, user, n instead of n, user",
        ),
    ],
)
def test_names_types_and_order_must_be_those_that_were_checked(found: StructType, words: str | None) -> None:
    assert difference(CHECKED, found) == words


def test_fields_inside_of_a_column_count_but_not_whether_they_may_be_null() -> None:
    def column(kind: str, *, contains_null: bool) -> StructType:
        inner = StructType([StructField("x", LongType() if kind == "bigint" else StringType())])
        return StructType([StructField("a", ArrayType(inner, contains_null))])

    checked = column("bigint", contains_null=True)
    assert difference(checked, column("bigint", contains_null=False)) is None
    words = "'a' is array<struct<x:string>> instead of array<struct<x:bigint>>"
    assert difference(checked, column("string", contains_null=True)) == words


def test_of_many_differences_only_some_are_named() -> None:
    many = StructType([StructField(f"c{n}", StringType()) for n in range(9)])
    words = difference(StructType(), many)
    assert words is not None
    assert words.startswith("'c0' is new (string); ")
    assert words.endswith("'c4' is new (string); and 4 more")


def fields_of_the_first_log(logs: DataFrame) -> DataFrame:
    """As people infer a schema, with a default for no logs."""
    body = logs.select(F.col("contents")["body"].alias("body"))
    first = body.first()
    sample = F.lit('{"n": 1}' if first is None else first["body"])
    schema = logs.sparkSession.range(1).select(F.schema_of_json(sample)).collect()[0][0]
    return body.select(F.from_json("body", schema).alias("j")).select("j.*")


@pytest.mark.spark
def test_a_function_whose_columns_depend_on_the_logs_fails_the_batch(spark: SparkSession) -> None:
    transform = PythonTransform("m:f", fields_of_the_first_log, None)
    transform.check(empty_logs(spark))
    fitting, other = (
        spark.sql(f"""SELECT map('body', '{{"n": {value}}}') AS contents""") for value in ("2", '"two"')
    )
    assert [tuple(row) for row in transform(fitting).collect()] == [(2,)]
    with pytest.raises(PipelineError, match=r"^m:f returned other .*: 'n' is string instead of bigint"):
        transform(other)


@pytest.mark.spark
def test_a_query_over_a_table_whose_columns_change_fails_the_batch(spark: SparkSession) -> None:
    transform = SqlTransform("SELECT d.* FROM logs JOIN changing AS d ON __shard__ = d.id")
    spark.sql("SELECT 3 AS id, 'x' AS name").createOrReplaceTempView("changing")
    transform.check(empty_logs(spark))
    logs = empty_logs(spark)
    assert transform(logs).columns == ["id", "name"]
    spark.sql("SELECT 3 AS id, 'x' AS name, 'y' AS city").createOrReplaceTempView("changing")
    with pytest.raises(PipelineError, match=r"^the query returned other .*: 'city' is new \(string\)"):
        transform(logs)
    spark.catalog.dropTempView("changing")
