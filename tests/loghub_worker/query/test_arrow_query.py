"""A query that Arrow computes has Spark's rows and Spark's schema, and what Arrow cannot compute is named."""

import pickle
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.errors import first_lines
from loghub_worker.query.arrow_expressions import CAST, ENTRIES, IN_SET
from loghub_worker.query.arrow_query import ArrowQuery
from loghub_worker.query.transform import SqlTransform, arrow_query, empty_logs
from loghub_worker.sink.batch_sink import RowsRejectedError
from tests.loghub_worker.query.odd_logs import decoded, odd_logs, odd_numbers, odd_texts, odd_times

pytestmark = pytest.mark.spark

A, B, C = "contents['a']", "contents['b']", "contents['c']"
LISTED = ", ".join(f"'{text}'" for text in ("", "a", "A", "ab", "é", "ß", "x", "y", "z", "😀", "İ", "e", "f"))
# The entries of the list, each by what is selected of logs whose texts are odd, or by a whole query.
QUERIES = {
    "all": "*",
    "columns": "__cursor__ AS `a.b`, __TIME__, contents, __tags__",
    "key": f"{A} AS a, contents.d, contents['none']",
    "key of a map": f"{A} AS a, element_at(contents, 'A') AS b, contents['b'] AS c",
    "key of tags": "__tags__['host'] AS host, __tags__['none'] AS n",
    "literal": "'x' AS s, 1 AS i, 5000000000 AS l, 1.50 AS d, 1e3 AS e, true AS b,"
    " DATE '2024-02-29' AS c, TIMESTAMP '2024-02-29 12:00:00.000001' AS t, CAST('NaN' AS DOUBLE) AS n,"
    " CAST(NULL AS STRING) AS o",
    "=": f"{A} = {B} AS x, {A} = 'a' AS y, __shard__ = 3 AS z, __cursor__ = __shard__ AS c",
    "<=>": f"{A} <=> {B} AS x, {A} <=> 'a' AS y, {A} <=> NULL AS z",
    "<>": f"{A} <> {B} AS x, {A} <> 'a' AS y, {A} != '' AS z",
    "<": f"{A} < {B} AS x, {A} < 'b' AS y, __cursor__ < 8 AS z",
    "<=": f"{A} <= {B} AS x, {A} <= 'ab' AS y, __cursor__ <= 8 AS z",
    ">": f"{A} > {B} AS x, {A} > 'ab' AS y, __time__ > '2023-11-14 22:13:30' AS z",
    ">=": f"{A} >= {B} AS x, {A} >= 'ab' AS y, __index__ >= 7 AS z, __cursor__ > __index__ AS c",
    "BETWEEN": f"{A} BETWEEN 'A' AND 'b' AS x, {A} NOT BETWEEN {B} AND {C} AS y",
    "IN": f"{A} IN ('a', '', 'é') AS x, {A} IN ('a', NULL) AS y, {A} NOT IN ('a', 'ß') AS z",
    "IN of many": f"{A} IN ({LISTED}) AS x, {A} NOT IN ({LISTED}, NULL) AS y,"
    " __cursor__ IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) AS z",
    "IS NULL": f"{A} IS NULL AS x, {B} IS NOT NULL AS y, contents IS NULL AS z",
    "AND": f"{A} = 'a' AND {B} = 'a' AS x, {A} = 'a' AND {B} IS NULL AS y",
    "OR": f"{A} = 'a' OR {B} = 'a' AS x, {A} IS NULL OR {B} = 'a' AS y",
    "NOT": f"NOT ({A} = 'a' OR {B} = 'a') AS x, NOT ({A} <=> 'a' AND {B} < 'b') AS y",
    "LIKE": f"{A} LIKE 'a%' AS x, {A} LIKE '%b' AS y, {A} NOT LIKE '%b%' AS z, {A} LIKE 'a%b' AS u,"
    f" {A} LIKE 'é%' AS w",
    "startswith": f"startswith({A}, '') AS x, endswith({A}, 'B') AS y, contains({A}, '\\0') AS z,"
    f" contains({A}, '%') AS u",
    "length": f"length({A}) AS x, char_length({B}) > 2 AS y",
    "coalesce": f"coalesce({A}, {B}, {C}, 'x') AS x, nvl({A}, {B}) AS y, ifnull({A}, '') AS z",
    "concat": f"concat({A}, {B}) AS x, {A} || '-' || {B} || {A} AS y, concat({A}) AS z",
    "lower": f"lower({A}) AS x, upper({A}) AS y, lcase({B}) || ucase({B}) AS z, upper({A}) = 'A' AS u",
    "trim": f"trim({A}) AS x, ltrim({A}) AS y, rtrim({A}) AS z, btrim({A}) AS w,"
    f" trim(BOTH 'aé ' FROM {A}) AS u, trim(LEADING '' FROM {A}) AS v, rtrim('b😀', {A}) AS r",
    "if": f"if({A} = 'a', {B}, 'x') AS x, nullif({A}, '') AS y, CASE WHEN {A} = 'a' THEN 1 WHEN {B} > 'a'"
    f" THEN 2 END AS z, CASE {A} WHEN '' THEN {B} ELSE {C} END AS u",
    "numbers": "__shard__ < 7.5 AS x, CAST(__shard__ AS BIGINT) AS y, CAST(__cursor__ AS DOUBLE) AS z,"
    " CAST(__shard__ AS DECIMAL(12, 2)) AS u, CAST(__cursor__ AS STRING) AS v",
    "WHERE": f"SELECT {A} AS a FROM logs WHERE {A} = 'a' OR {B} > 'b' OR {C} IN ('', NULL) AND {A} <> ''",
    "WHERE of all": f"SELECT * FROM logs WHERE {A} <> 'a' AND contents IS NOT NULL AND __time__ IS NOT NULL",
    "nothing": "SELECT 1 AS one FROM logs WHERE contents['none'] IS NOT NULL",
    "nested": f"SELECT x, x || 'y' AS y FROM (SELECT trim({A}) AS x, * FROM logs) WHERE x > 'a' AND {B} <> x",
}
for position in (-1000, -3, -1, 0, 1, 2, 5):
    QUERIES[f"substring from {position}"] = (
        f"substring({A}, {position}) AS x, substring({A}, {position}, 2) AS y,"
        f" substring({A}, {position}, 0) AS z, substr({A}, {position}, -1) AS u, left({A}, {position}) AS v,"
        f" substring({A}, {position}, 999) AS w"
    )


@cache
def checked(spark: SparkSession, sql: str) -> tuple[SqlTransform, DataFrame]:
    """The query as a worker has it, and the rows of no logs."""
    transform = SqlTransform(sql)
    return transform, transform.check(empty_logs(spark))


@cache
def query_of(spark: SparkSession, sql: str) -> ArrowQuery | str:
    return arrow_query(spark, sql, checked(spark, sql)[1])


def spark_rows(spark: SparkSession, sql: str, body: bytes) -> pa.Table:
    """By a worker's way: the source makes only the columns that the query uses."""
    transform, _ = checked(spark, sql)
    return transform(
        spark.createDataFrame(pa.Table.from_batches([decoded(body, transform.selection)]))
    ).toArrow()


def require_equal(spark: SparkSession, sql: str, body: bytes) -> None:
    query = query_of(spark, sql)
    assert isinstance(query, ArrowQuery), query
    sent: ArrowQuery = pickle.loads(pickle.dumps(query))
    made = pa.Table.from_batches([sent.apply(decoded(body, query.selection))])
    expected = spark_rows(spark, sql, body)
    schema = to_arrow_schema(checked(spark, sql)[1].schema, timezone="UTC")
    assert made.schema.equals(schema, check_metadata=True)
    assert made.schema.names == expected.schema.names
    assert made.schema.types == expected.schema.types
    assert shown(made) == shown(expected)


def shown(rows: pa.Table) -> list[str]:
    """Python has no times of such years as Arrow and Spark have. NaN is not equal to itself."""
    columns = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in rows.columns]
    return [
        f"{name}: {column.to_pylist()!r}" for name, column in zip(rows.schema.names, columns, strict=True)
    ]


# Entries that are read together, by columns of one query; the others use the map of the contents as a whole.
APART = [name for name, sql in QUERIES.items() if sql.startswith("SELECT") or name in ("all", "columns")]
APART.append("key of a map")
TOGETHER = [name for name in QUERIES if name not in APART]
MANY = 12  # entries of one query: some forty columns


def whole(*names: str) -> str:
    sql = ", ".join(QUERIES[name] for name in names)
    return sql if sql.startswith("SELECT") else f"SELECT {sql} FROM logs"


@pytest.mark.parametrize("sql", map(whole, APART), ids=APART)
def test_arrow_has_the_rows_of_spark(spark: SparkSession, sql: str) -> None:
    require_equal(spark, sql, odd_logs(odd_texts(1, 200)))


@pytest.mark.parametrize("first", range(0, len(TOGETHER), MANY))
def test_arrow_has_the_columns_of_spark(spark: SparkSession, first: int) -> None:
    require_equal(spark, whole(*TOGETHER[first : first + MANY]), odd_logs(odd_texts(1, 200)))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("name", QUERIES)
def test_arrow_has_the_rows_of_spark_for_more_texts(spark: SparkSession, name: str, seed: int) -> None:
    require_equal(spark, whole(name), odd_logs(odd_texts(seed, 2000), seed=seed))


REFUSED = {
    f"SELECT {A} AS a, {A} RLIKE 'x' AS b FROM logs": "rlike in column 2",
    f"SELECT * FROM logs WHERE {A} LIKE 'a_'": "like in the condition",
    "SELECT size(contents) AS n FROM logs": "size in column 1",
    "SELECT contents[__topic__] AS n FROM logs": "a key that is not constant in column 1",
    f"SELECT substring({A}, __shard__) AS n FROM logs": "substring with positions that are not constant in"
    " column 1",
    f"SELECT {A} LIKE concat({B}, '%') AS n FROM logs": "like in column 1",
    f"SELECT startswith({A}, {B}) AS n FROM logs": "starts with of a text that is not constant in column 1",
    f"SELECT {A} COLLATE UTF8_LCASE = 'a' AS n FROM logs": "collate in column 1",
    f"SELECT {A} IN ({B}, 'a') AS n FROM logs": "IN with a list that is not constant in column 1",
    "SELECT NULL AS n FROM logs": "the type void in column 1",
    "SELECT CAST(__time__ AS DATE) AS n FROM logs": "CAST of timestamp[us, tz=UTC] to date32[day] in"
    " column 1",
    "SELECT DISTINCT __topic__ FROM logs": "Aggregate",
    "SELECT __topic__ FROM logs LIMIT 1": "GlobalLimit",
    "SELECT __topic__ FROM logs WHERE 1 = 0": "LocalRelation",
    "SELECT __topic__ AS x FROM logs UNION ALL SELECT __source__ FROM logs": "Union",
    "SELECT k FROM logs LATERAL VIEW explode(contents) AS k, v": "Generate",
    "SELECT current_timestamp() AS t FROM logs": "the current time, user or database",
    "SELECT * FROM logs WHERE current_user() = __topic__": "the current time, user or database",
    "SELECT * FROM logs WHERE __time__ > 'today'": "a time with a word for the current time",
    "SELECT TIMESTAMP 'Now' AS t FROM logs": "a time with a word for the current time",
    r"SELECT DATE 'to\144ay' AS t FROM logs": "a time with a word for the current time",
    "SELECT * FROM logs WHERE __time__ > concat('tod', 'ay')": "a time computed of constants",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_arrow_does_not_compute_is_named(spark: SparkSession, sql: str) -> None:
    assert query_of(spark, sql) == REFUSED[sql]


NUMBER_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE")
DECIMALS = (
    "DECIMAL(4, 2)", "DECIMAL(10, 0)", "DECIMAL(38, 18)", "DECIMAL(38, 0)", "DECIMAL(38, 38)",
    "DECIMAL(2, 2)",
)  # fmt: skip


@pytest.mark.parametrize(
    "kinds", [NUMBER_TYPES, DECIMALS, ("TIMESTAMP",)], ids=["numbers", "decimals", "times"]
)
def test_arrow_casts_texts_as_spark_does(spark: SparkSession, kinds: tuple[str, ...]) -> None:
    texts = odd_times(1, 200) if len(kinds) == 1 else odd_numbers(1, 200)
    columns = ", ".join(f"TRY_CAST({A} AS {kind}) AS c{number}" for number, kind in enumerate(kinds))
    require_equal(spark, f"SELECT {A} AS a, {columns} FROM logs", odd_logs(texts))


STRICT = f"CAST({A} AS INT)"
# Each fails for some logs, and would fail for others if it were evaluated for them.
FAILING = (
    f"SELECT {STRICT} AS x FROM logs",
    f"SELECT {A} AS a FROM logs WHERE {STRICT} > 1",
    f"SELECT {A} AS a FROM logs WHERE {A} >= 1 AND {A} < 3",
    f"SELECT {STRICT} AS x FROM logs WHERE {B} = 'good'",
    f"SELECT {B} AS b FROM logs WHERE {B} IS NOT NULL AND {B} > 'f' AND {STRICT} > 0",
    f"SELECT __topic__ FROM logs WHERE __topic__ = '' AND {STRICT} > 1",
    f"SELECT {STRICT} AS x, CAST({B} AS DOUBLE) AS y FROM logs WHERE {C} > '' AND CAST({C} AS INT) = 1",
    f"SELECT coalesce({STRICT}, 0) AS x, 3 < {STRICT} AS y, {STRICT} IN (1) AS z FROM logs WHERE {B} < 'c'",
)
BATCHES = (
    (("1", "good", None), ("x", "bad", None), ("y", None, None), ("z", "good", "1")),
    (("99999999999", "bad", None), ("y", None, "x"), ("4", "1", "1")),
    (("1", "x", "1"), (" 3 ", "good", None), ("a'b\\", "3", "1")),
)


def logs_with(values: tuple[tuple[str | None, ...], ...]) -> bytes:
    logs = (
        Log(
            time=1_700_000_000,
            contents=tuple((k, v) for k, v in zip("abc", of_log, strict=True) if v is not None),
        )
        for of_log in values
    )
    return loggroup.wrap([loggroup.encode(LogGroup(logs=tuple(logs)))])


@pytest.mark.parametrize("sql", FAILING)
def test_a_cast_fails_for_the_log_for_which_it_fails_in_spark(spark: SparkSession, sql: str) -> None:
    query = query_of(spark, sql)
    assert isinstance(query, ArrowQuery), query
    failures = 0
    for values in BATCHES:
        body = logs_with(values)
        try:
            expected = repr(spark_rows(spark, sql, body).to_pylist())
        except PySparkException as error:
            expected, failures = first_lines(error).splitlines()[0], failures + 1
        try:
            made = repr(query.apply(decoded(body, query.selection)).to_pylist())
        except RowsRejectedError as error:
            made = str(error)
        assert made == expected
    assert failures


SKIPPED = {
    f"SELECT {A} FROM logs WHERE {STRICT} > 1 AND {B} = 'x'": "a CAST that is not the last condition",
    f"SELECT {A} FROM logs WHERE {C} IS NOT NULL AND {STRICT} > 1": "a CAST that is not the last condition",
    f"SELECT * FROM logs WHERE {C} IS NOT NULL AND {STRICT} > 1": "a CAST next to IS NOT NULL",
    f"SELECT * FROM logs WHERE {B} = 'x' AND {STRICT} > 1": "a CAST after a condition",
    f"SELECT {A} FROM logs WHERE {B} = 'x' AND {STRICT} > 1": "a CAST after a condition",
    f"SELECT {A} FROM logs WHERE {B} IN ('x', 'y') AND {STRICT} > 1": "a CAST after a condition",
    f"SELECT * FROM logs WHERE TRY_CAST({B} AS INT) = 1 AND {STRICT} > 1": "a CAST after a condition",
    f"SELECT * FROM logs WHERE {B} = 'x' OR {STRICT} > 1": "a CAST that OR may skip",
    f"SELECT {B} = 'x' AND {STRICT} > 1 AS x FROM logs": "a CAST that AND may skip",
    f"SELECT coalesce({B} = 'x', {STRICT} > 1) AS x FROM logs": "a CAST that coalesce may skip",
    f"SELECT CAST({B} AS INT) = {STRICT} AS x FROM logs": "a CAST that = of a null may skip",
    f"SELECT CASE WHEN {B} = 'x' THEN {STRICT} END AS x FROM logs": "a CAST that IF or CASE may skip",
}


@pytest.mark.parametrize("sql", SKIPPED)
def test_a_cast_that_spark_may_skip_is_refused(spark: SparkSession, sql: str) -> None:
    reason = query_of(spark, sql)
    assert isinstance(reason, str)
    assert reason.startswith(SKIPPED[sql])


# How the page spells each entry of the list.
SPELLINGS = {
    "GetMapValue": "contents['key']", "ElementAt": "element_at(contents, 'key')", "EqualTo": "`=`",
    "EqualNullSafe": "<=>", "LessThan": "`<`", "LessThanOrEqual": "<=", "GreaterThan": "`>`",
    "GreaterThanOrEqual": ">=", "In": "`IN`", "InSet": "`IN`", "And": "AND", "Or": "`OR`", "Not": "NOT",
    "IsNull": "IS NULL", "IsNotNull": "IS NULL", "StartsWith": "startswith", "EndsWith": "endswith",
    "Contains": "`contains`", "Length": "length", "Coalesce": "coalesce", "Concat": "`concat`",
    "Substring": "substring", "Lower": "lower", "Upper": "upper", "StringTrim": "`trim`",
    "StringTrimLeft": "ltrim", "StringTrimRight": "rtrim", "If": "`IF`", "CaseWhen": "CASE",
    "Cast": "TRY_CAST",
}  # fmt: skip


def test_the_page_has_every_entry_of_the_list() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    section = page.partition("## 8 Queries that Arrow computes")[2]
    assert SPELLINGS.keys() == {*ENTRIES, CAST, IN_SET}
    assert [kind for kind, text in SPELLINGS.items() if text not in section] == []
