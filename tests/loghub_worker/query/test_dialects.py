"""What docs/command-line.md says of the SQL of `loghub query` and of workers: each expression has the value
of the page in DuckDB and in Spark. And the SELECT of `loghub schema` has the same rows in both."""

import re

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_cli.duckdb_session import DuckDbSession
from loghub_cli.key_types import keys_of, select_of
from loghub_consumer.reading.decoding import Body, decode
from tests.support import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
ROW = re.compile(r"(?<!\\)\|")
LOG_S = 1_769_847_330
CONTENTS = (("user", "ann"), ("ms", "12"), ("bad", "x"), ("path", "/a1/b22"), ("json", '{"k": "v"}'))


def rows_under(head: str) -> list[list[str]]:
    """The cells of the rows of a table of the page, without the marks of code."""
    _, _, below = PAGE.partition(f"| {head} |\n")
    rows = below.partition("\n\n")[0].splitlines()[1:]
    cells = ([cell.strip().strip("`") for cell in ROW.split(row)[1:-1]] for row in rows)
    return [[cell.replace("\\|", "|") for cell in row] for row in cells]


SAME = [[both, both, value] for both, value in rows_under("in Spark and in DuckDB | value")]
OTHER = rows_under("in Spark | in DuckDB | value")


def view(*logs: tuple[tuple[str, str], ...]) -> pa.Table:
    group = LogGroup(logs=tuple(Log(time=LOG_S, contents=contents) for contents in logs))
    return pa.Table.from_batches([decode([Body(1, wrap([encode(group)]))], shard=0).rows])


def texts(expressions: list[str]) -> str:
    columns = (f"CAST({expression} AS STRING) AS c{n}" for n, expression in enumerate(expressions))
    return f"SELECT {', '.join(columns)} FROM logs"


def aggregates(expression: str) -> bool:
    return bool(re.match(r"(count|max_by|approx_|size\(collect|len\(list)", expression))


def by_duckdb(sql: str, logs: pa.Table) -> pa.Table:
    with DuckDbSession(logs, limit_mib=1, timeout_s=120.0) as session:
        result = session.run(sql)
        return pa.Table.from_batches(result.batches, result.schema)


def by_spark(spark: SparkSession, sql: str, logs: pa.Table) -> pa.Table:
    spark.createDataFrame(logs).createOrReplaceTempView("logs")
    try:
        return spark.sql(sql).toArrow()
    finally:
        spark.catalog.dropTempView("logs")


def values(rows: pa.Table) -> list[str]:
    (row,) = rows.to_pylist()
    return ["NULL" if value is None else value for value in row.values()]


def expected(of_logs: bool) -> tuple[list[str], list[str], list[str]]:
    rows = [row for row in SAME + OTHER if aggregates(row[0]) is not of_logs]
    in_spark, in_duckdb, value = zip(*rows, strict=True)
    return list(in_spark), list(in_duckdb), list(value)


@pytest.mark.parametrize("of_logs", [True, False])
def test_duckdb_has_the_values_of_the_page(of_logs: bool) -> None:
    _, expressions, value = expected(of_logs)
    assert len(expressions) > 4
    found = values(by_duckdb(texts(expressions), view(CONTENTS)))
    assert dict(zip(expressions, found, strict=True)) == dict(zip(expressions, value, strict=True))


@pytest.mark.spark
def test_spark_has_the_values_of_the_page(spark: SparkSession) -> None:
    for of_logs in (True, False):
        expressions, _, value = expected(of_logs)
        found = values(by_spark(spark, texts(expressions), view(CONTENTS)))
        assert dict(zip(expressions, found, strict=True)) == dict(zip(expressions, value, strict=True))


@pytest.mark.spark
def test_the_select_of_keys_has_the_same_rows_in_spark_and_in_duckdb(spark: SparkSession) -> None:
    odd = {
        "it's": "a",
        "back\\slash": "b",
        "${x}": "c",
        "": "d",
        "Order": "e",
        "order": "f",
        "用户": "g",
        "1st": "h",
    }
    typed = {
        "whole": ("-12", "0", "9223372036854775807"), "double": ("1.5", "-2e3", "0.1"),
        "flag": ("true", "False", "-"), "long": ("12345678901234567.89", "1", "2.5"),
        "day": ("2026-01-31", "", "1999-12-31"), "id": ("007", "1", "2"), "select": ("a", "b", "c"),
        "at": ("2026-01-31T08:15:30.123456Z", "2026-01-31 08:15:30", "1999-12-31T23:59:59Z"),
    }  # fmt: skip
    logs = [(*odd.items(), *((key, of[number]) for key, of in typed.items())) for number in range(3)]
    logs.append(tuple((key, "neither") for key in typed))  # NULL by TRY_CAST, in both
    sample = view(*logs[:3])
    keys, _ = keys_of(sample.column("contents"))
    types = {one.key: one.type for one in keys}
    assert [types[key] for key in typed] == [
        "BIGINT", "DOUBLE", "BOOLEAN", "DECIMAL(19, 2)", "DATE", "STRING", "STRING", "TIMESTAMP",
    ]  # fmt: skip
    sql, left_out = select_of(keys)
    assert left_out == ()
    first, second = by_duckdb(sql, view(*logs)), by_spark(spark, sql, view(*logs))
    assert first.schema.names == second.schema.names
    for mine, spark_type in zip(first.schema, second.schema.types, strict=True):
        assert str(mine.type).partition("[")[0] == str(spark_type).partition("[")[0], mine.name
    instants = pa.timestamp("us", tz="UTC")
    at = first.schema.get_field_index("at")
    first = first.set_column(at, "at", first.column("at").cast(instants))
    assert first.to_pylist() == second.to_pylist()
    assert first.column("whole").to_pylist() == [-12, 0, 2**63 - 1, None]
