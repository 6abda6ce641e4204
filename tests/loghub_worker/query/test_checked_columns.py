"""A batch with other columns than those that were checked fails, before the sink gets it, in words that name
them."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_worker.query.transform import PipelineError, PythonTransform, SqlTransform, difference, empty_logs

N, USER = ("n", "bigint"), ("user", "string")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([N, USER], None),
        ([("n", "string"), USER], "'n' is string instead of bigint"),
        ([N], "'user' is missing"),
        ([N, ("User", "string")], "'User' is new (string); 'user' is missing"),
        ([N, USER, ("city", "string")], "'city' is new (string)"),
        ([USER, N], "they are user, n instead of n, user"),
        ([N, USER, N], "they are n, user, n instead of n, user"),
        ([(f"c{n}", "int") for n in range(5)] + [N], "'c4' is new (int); and 1 more"),
    ],
)
def test_names_types_and_order_must_be_those_that_were_checked(
    found: list[tuple[str, str]], words: str | None
) -> None:
    said = difference([N, USER], found)
    assert said == words or (words is not None and said is not None and said.endswith(words))


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
    # A column of a constant may not be null, which does not matter.
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
