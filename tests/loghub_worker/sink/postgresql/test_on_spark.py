"""The table sink on a real Spark and a real PostgreSQL: values of each type arrive, and what does not fit is
named."""

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.policy import Cause
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.query.batch_errors import failure_of
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.sinks import make_sink
from loghub_worker.spark_errors import SPARK_ERRORS
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.loghub_worker.support import SOURCE, worker_config
from tests.postgresql_server import USER, PostgresqlServer

pytestmark = pytest.mark.spark
SHARD = ShardIncarnation(shard=0, created=1)
TEXT = "\"q\", 'x'\\N \\. ü\n\u2028\r\t" + "\U0001f600"
# Column -> its value in Spark SQL, its type in a new table, and its value there.
COLUMNS: dict[str, tuple[str, str, Any]] = {
    "text": (f"'{TEXT}'".replace("\\", "\\\\").replace("'x'", "\\'x\\'"), "text", TEXT),
    "empty": ("''", "text", ""),
    "nothing": ("NULL", "text", None),
    "null in text": ("CAST(NULL AS STRING)", "text", None),
    "bytes": ("X'00ff5C'", "bytea", b"\x00\xff\\"),
    "no bytes": ("CAST(NULL AS BINARY)", "bytea", None),
    "tiny": ("CAST(-128 AS TINYINT)", "smallint", -128),
    "small": ("CAST(32767 AS SMALLINT)", "smallint", 32767),
    "Whole": ("CAST(-2147483648 AS INT)", "integer", -(1 << 31)),
    "large": ("9223372036854775807", "bigint", (1 << 63) - 1),
    "real": ("CAST(1.5 AS FLOAT)", "real", 1.5),
    "double": ("0.1D", "double precision", 0.1),
    "infinite": ("DOUBLE('-Infinity')", "double precision", float("-inf")),
    "amount": ("CAST('-12345678901234567.890' AS DECIMAL(20, 3))", "numeric(20,3)",
               Decimal("-12345678901234567.890")),
    "tiny amount": ("CAST('0.0000000001' AS DECIMAL(12, 10))", "numeric(12,10)", Decimal("0.0000000001")),
    "yes": ("true", "boolean", True),
    "at": ("TIMESTAMP'2024-01-02 03:04:05.678901'", "timestamp with time zone",
           datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
    "old": ("TIMESTAMP'0001-01-01 00:00:00'", "timestamp with time zone", datetime(1, 1, 1, tzinfo=UTC)),
    "local": ("TIMESTAMP_NTZ'2024-01-02 03:04:05'", "timestamp without time zone",
              datetime(2024, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - a time without a zone is meant
    "day": ("DATE'1969-12-31'", "date", date(1969, 12, 31)),
    "map": ("map('k', 'v', 'n', NULL)", "jsonb", {"k": "v", "n": None}),
    "list": ("array(1, NULL, 3)", "jsonb", [1, None, 3]),
    "struct": ("named_struct('a', 1, 'b', array('x'))", "jsonb", {"a": 1, "b": ["x"]}),
    'quoted "name"; --': ("1", "integer", 1),
}  # fmt: skip


def sink_of(server: PostgresqlServer, credentials: Path, **settings: Any) -> Any:
    sink = sink_settings(server.port, table="Rows", create_table=True)
    config = worker_config("http://x", msgspec.structs.replace(sink, **settings))
    return make_sink(
        config,
        consumer="w-0",
        source=SOURCE,
        sink_credentials=CredentialFiles(credentials),
        scratch=Path("/unused"),
    )


def publish(sink: Any, batch: str, begin: int) -> None:
    sink.open_shard(SHARD)
    assert sink.resume(SHARD, begin, confirm=lambda: None) == begin
    sink.publish(batch, (Range(0, begin, begin + 10),), lambda: True)


def test_values_of_every_type_arrive_in_a_table_that_the_sink_creates(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    selected = [f"{value} AS `{name}`" for name, (value, _, _) in COLUMNS.items()]
    rows = spark.range(3).repartition(3).selectExpr(*selected)
    sink = sink_of(server, credentials)
    sink.check(rows.limit(0))
    sink.check(rows.limit(0))  # as the second worker does
    assert server.rows('SELECT * FROM "Rows"') == []
    assert sink.write(rows, "b") == 3
    assert server.rows('SELECT * FROM "Rows"') == [], "a reader sees a batch at once"
    publish(sink, "b", 10)
    types = server.rows(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = '\"Rows\"'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert types == [(name, kind) for name, (_, kind, _) in COLUMNS.items()]
    assert server.rows('SELECT * FROM "Rows"') == [tuple(value for _, _, value in COLUMNS.values())] * 3
    sink.open_shard(SHARD)
    assert sink.resume(SHARD, 10, confirm=lambda: None) == 20


def test_texts_go_to_columns_of_other_types_and_columns_may_be_left_out(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    server.execute(
        "CREATE DOMAIN size AS integer; CREATE DOMAIN length AS size NOT NULL CHECK (value > 0);"
        ' CREATE TABLE "Rows" (id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT now(),'
        " address inet, long length, amount numeric, large bigint, key uuid NOT NULL,"
        " twice bigint GENERATED ALWAYS AS (large * 2) STORED, doc json) PARTITION BY RANGE (large);"
        ' CREATE TABLE part PARTITION OF "Rows" FOR VALUES FROM (0) TO (100)',
        user=USER,
    )
    rows = spark.sql(
        "SELECT '6ba7b810-9dad-11d1-80b4-00c04fd430c8' AS key, 7 AS large, '10.0.0.1' AS address,"
        " CAST(1.5 AS DECIMAL(3, 1)) AS amount, map('a', 1) AS doc, 12 AS long"
    )
    sink = sink_of(server, credentials)
    sink.check(rows.limit(0))
    assert sink.write(rows, "b") == 1
    publish(sink, "b", 10)
    found = server.rows('SELECT id, address::text, amount, large, key::text, twice, doc FROM "Rows"')
    assert found == [
        (1, "10.0.0.1/32", Decimal("1.5"), 7, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", 14, {"a": 1})
    ]


def test_every_column_that_does_not_fit_is_named(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    server.execute(
        "CREATE DOMAIN rounded AS numeric(5, 1) NOT NULL; CREATE DOMAIN price AS rounded;"
        " CREATE DOMAIN short AS name; CREATE DOMAIN shorter AS short;"
        ' CREATE TABLE "Rows" (paid price, due price, nick shorter,'
        " small integer, amount numeric(5, 1), flag boolean, needed text NOT NULL,"
        " computed integer GENERATED ALWAYS AS (1) STORED, raw text, at timestamp,"
        " label name)",
        user=USER,
    )
    rows = spark.sql(
        "SELECT 1L AS small, CAST(1 AS DECIMAL(5, 2)) AS amount, 1 AS flag, 1 AS computed, 1 AS `Small`,"
        " X'00' AS raw, now() AS at, 'x' AS label, INTERVAL '1' DAY AS age,"
        " CAST(1 AS DECIMAL(5, 2)) AS paid, 'x' AS nick"
    )
    sink = sink_of(server, credentials)
    with pytest.raises(InvalidSinkError) as caught:
        sink.check(rows.limit(0))
    for words in (
        "the table public.Rows",
        "'small' is bigint in the query and int4 in the table",
        "'amount' is decimal(5,2) in the query and numeric(5, 1) in the table",
        "'flag' is int in the query and bool in the table",
        "'computed' itself",
        "the table has no column 'Small'",
        "'raw' is binary in the query and text in the table",
        "'at' is timestamp in the query and timestamp in the table",
        "'label' is string in the query and name in the table",
        "'paid' is decimal(5,2) in the query and numeric(5, 1) in the table",
        "'nick' is string in the query and name in the table",
        "no column 'due', which the table requires",
        "'age' is interval day, for which PostgreSQL has no type",
        "no column 'needed', which the table requires",
    ):
        assert words in str(caught.value)


def test_a_table_that_is_changed_while_a_worker_runs_is_compared_again(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    """PostgreSQL would round what it is given to the new type, or lose it in a crash, without a word."""
    rows = spark.sql("SELECT 1.23456789012345D AS size, TIMESTAMP'2024-01-02 03:04:05' AS at")
    sink = sink_of(server, credentials)
    sink.check(rows.limit(0))
    assert sink.write(rows, "b") == 1
    publish(sink, "b", 10)
    for change, words in (
        ("ALTER size TYPE real", "'size' is double in the query and float4 in the table"),
        ("ALTER size TYPE double precision, ALTER at TYPE date", "'at' is timestamp .* and date in the"),
        ("ALTER at TYPE timestamptz, SET UNLOGGED", "is unlogged"),
    ):
        server.execute(f'ALTER TABLE "Rows" {change}')
        for _ in range(2):
            with pytest.raises(InvalidSinkError, match=words):
                sink.write(rows, "c")
            sink.abort("c")
    server.execute('ALTER TABLE "Rows" SET LOGGED, ADD note text')
    assert sink.write(rows, "d") == 1
    publish(sink, "d", 20)
    assert server.rows('SELECT count(*) FROM "Rows"') == [(2,)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS a, 2 AS a", "two columns 'a'"),
        (f"SELECT 1 AS {'a' * 64}", "longer than 63 bytes"),
        ("SELECT INTERVAL '1' DAY AS age", "for which PostgreSQL has no type"),
        ("SELECT 1 AS xmin", "'xmin' is one that no table can have"),
        ("SELECT 1 AS ``", "'' is one that no table can have"),
    ],
)
def test_a_table_with_impossible_columns_is_not_created(
    spark: SparkSession, server: PostgresqlServer, credentials: Path, query: str, message: str
) -> None:
    with pytest.raises(InvalidSinkError, match=message):
        sink_of(server, credentials).check(spark.sql(query))


def test_a_missing_table_or_schema_is_named(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    with pytest.raises(InvalidSinkError, match=r"there is no table public\.Rows"):
        sink_of(server, credentials, create_table=False)
    with pytest.raises(InvalidSinkError, match="there is no schema absent: create it"):
        sink_of(server, credentials, schema="absent")


@pytest.mark.parametrize(
    "value",
    [
        "timestamp_seconds(9000000000000)",  # the year 287168 would be 25024
        "timestamp_seconds(1767225600000)",  # milliseconds
        "timestamp_seconds(-62198755200)",
        "date_add(DATE'9999-12-31', 20000000)",
        "TIMESTAMP_NTZ'+287168-08-24 16:00:00'",
    ],
)
def test_a_date_or_time_that_would_become_another_is_a_failure_of_its_logs(
    spark: SparkSession, server: PostgresqlServer, credentials: Path, value: str
) -> None:
    sink = sink_of(server, credentials)
    rows = spark.range(5).selectExpr(f"IF(id = 3, {value}, NULL) AS a")
    sink.check(rows.limit(0))
    with pytest.raises(RowsRejectedError, match="'a' has a date or time before the year 1 or after 32767"):
        sink.write(rows, "b")
    sink.abort("b")
    assert sink.write(rows.where("id <> 3"), "c") == 4


@pytest.mark.parametrize("value", ["concat('a', char(0))", "map('k', concat('a', char(0)))"])
def test_a_nul_character_is_a_failure_of_its_logs(
    spark: SparkSession, server: PostgresqlServer, credentials: Path, value: str
) -> None:
    sink = sink_of(server, credentials)
    rows = spark.range(5).selectExpr(f"IF(id = 3, {value}, NULL) AS a")
    sink.check(rows.limit(0))
    with pytest.raises(RowsRejectedError, match="NUL, or is not valid UTF-8: change it") as caught:
        sink.write(rows, "b")
    sink.abort("b")
    assert failure_of(caught.value).cause is Cause.REJECTED
    assert sink.write(rows.where("id <> 3"), "c") == 4


def test_an_error_of_the_query_is_reported_as_itself_and_the_next_batch_is_written(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    sink = sink_of(server, credentials)
    rows = spark.range(100).selectExpr("IF(id = 99, raise_error('not this one'), 'x') AS a")
    sink.check(rows.limit(0))
    with pytest.raises(PySparkException, match="not this one"):
        sink.write(rows, "b")
    sink.abort("b")
    busy = f"SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND usename = '{USER}'"
    assert server.rows(busy) == [(0,)]
    assert sink.write(rows.where("id < 99"), "c") == 99
    publish(sink, "c", 10)
    assert server.rows('SELECT count(*) FROM "Rows"') == [(99,)]


def test_a_batch_that_is_cancelled_ends_in_spark_and_in_the_database(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    """As `loghub_worker.query.streaming_query` cancels the batch that takes too long."""
    sink = sink_of(server, credentials)
    rows = spark.range(4).selectExpr("CAST(id AS STRING) AS a")
    sink.check(rows.limit(0))
    slow = spark.range(4).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L) AS a")
    spark.sparkContext.setJobGroup("slow", "", interruptOnCancel=True)
    stop = threading.Event()

    def cancel() -> None:
        while not stop.wait(0.2):
            spark.sparkContext.cancelJobGroup("slow")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(SPARK_ERRORS) as caught:
            sink.write(slow, "b")
    finally:
        stop.set()
        canceller.join()
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    sink.abort("b")
    assert failure_of(caught.value).cause is Cause.UNAVAILABLE
    assert sink.write(rows, "c") == 4


def test_a_trigger_that_refuses_a_statement_without_rows_makes_the_sink_invalid(
    spark: SparkSession, server: PostgresqlServer, credentials: Path
) -> None:
    """Nothing is skipped because of it, and a worker says so when it starts."""
    server.execute(
        'CREATE TABLE "Rows" (id bigint); CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS'
        " $$ BEGIN RAISE EXCEPTION 'closed on Sundays' USING ERRCODE = 'LG001'; END $$;"
        ' CREATE TRIGGER t BEFORE INSERT ON "Rows" EXECUTE FUNCTION refuse()',
        user=USER,
    )
    with pytest.raises(InvalidSinkError, match=r"a batch without rows fails: .*closed on Sundays"):
        sink_of(server, credentials).check(spark.range(0))
