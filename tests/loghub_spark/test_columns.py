"""Declared columns: only what is named is decoded, and texts become values of their types."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention

from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer.reading.decoding import SCHEMA, Body, decode
from loghub_spark.columns import VIEW, columns_of
from loghub_spark.options import LogstoreError, OptionError

CURSOR = 1_795_380_443_435_906_000


def rows(schema: T.StructType, *texts: Any, fail_fast: bool = False) -> pa.RecordBatch:
    """Logs with one content ``v`` each; None: without it. Decoded and converted as a reader does it."""
    logs = [Log(time=5, contents=() if text is None else (("a", "1"), ("v", text))) for text in texts]
    body = wrap([encode(LogGroup(logs=(log,), topic="t")) for log in logs])
    columns = columns_of(schema, fail_fast=fail_fast)
    decoded = decode([Body(CURSOR, body)], shard=3, selection=columns.selection)
    result = columns.convert(decoded.rows)
    result.validate(full=True)
    return result


def one_column(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("v", kind)])


def values(kind: T.DataType, *texts: Any) -> list[Any]:
    return rows(one_column(kind), *texts).column("v").to_pylist()


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (T.StringType(), {"x": "x", "": "", None: None}),
        (T.BinaryType(), {"é": "é".encode(), None: None}),
        (T.BooleanType(), {"true": True, " FALSE ": False, "1": True, "yes": None}),
        (T.ByteType(), {"127": 127, "128": None}),
        (T.ShortType(), {"-5": -5, "70000": None}),
        (T.IntegerType(), {" 7 ": 7, "7.0": None, "": None, "1_0": None, "²": None, None: None}),
        (T.LongType(), {str(2**63 - 1): 2**63 - 1, str(2**63): None}),
        (T.FloatType(), {"1.5": 1.5, "x": None}),
        (T.DoubleType(), {"1e3": 1000.0, "": None}),
        (
            T.DecimalType(5, 2),
            {"1.005": Decimal("1.01"), "999.99": Decimal("999.99"), "1000": None, "x": None},
        ),
        (T.DecimalType(38, 18), {"12345678901.5": Decimal("12345678901.500000000000000000")}),
        (
            T.DateType(),
            {
                "2026-01-31": datetime.date(2026, 1, 31),
                "2026-01-31T10:00:00Z": datetime.date(2026, 1, 31),
                "31.1.2026": None,
            },
        ),
        (
            T.TimestampType(),
            {
                "2026-01-31T08:00:00+08:00": datetime.datetime(2026, 1, 31, tzinfo=UTC),
                "2026-01-31 00:00:00.25": datetime.datetime(2026, 1, 31, 0, 0, 0, 250_000, UTC),
                "noon": None,
                "1712011012345": None,
            },
        ),
        (
            T.TimestampNTZType(),
            {
                "2026-01-31T08:00:00": datetime.datetime(2026, 1, 31, 8),  # noqa: DTZ001 - the type has none
                "2026-01-31T08:00:00Z": datetime.datetime(2026, 1, 31, 8),  # noqa: DTZ001 - as in Spark
                "20260131T080000": None,
            },
        ),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, T.DataType) else "",
)
def test_texts_become_values_of_the_declared_type(kind: T.DataType, texts: dict[Any, Any]) -> None:
    assert values(kind, *texts) == list(texts.values())


@pytest.mark.parametrize("kind", [T.LongType(), T.DoubleType()])
def test_numbers_are_the_same_whether_or_not_another_text_is_between_them(kind: T.DataType) -> None:
    texts = ["5", "-7", "0x10", "+3", "1e2", "nan", "0xa", "12"]
    alone = [values(kind, text)[0] for text in texts]
    assert [str(one) for one in values(kind, *texts, "other")] == [str(one) for one in [*alone, None]]
    assert alone[0] == 5
    assert alone[2] is None


def test_no_other_column_is_made() -> None:
    schema = T.StructType(
        [T.StructField("v", T.IntegerType()), VIEW["__time__"], T.StructField("b", T.StringType())]
    )
    assert columns_of(schema, fail_fast=False).selection.view == ("__time__", "__cursor__")
    assert rows(schema, "5").schema.names == ["v", "__time__", "b"]
    assert rows(schema, "5").column("b").to_pylist() == [None]


def test_the_whole_view_is_as_the_worker_has_it() -> None:
    assert rows(VIEW, "5").schema.equals(SCHEMA)
    assert columns_of(VIEW, fail_fast=False).schema.equals(SCHEMA)


def test_the_last_of_a_key_that_occurs_twice_counts_and_bytes_that_are_no_text_are_replaced() -> None:
    log = Log(time=5, contents=(("w", b"\xff"), ("v", "1"), ("v", "2")))
    body = wrap([encode(LogGroup(logs=(log, Log(time=6, contents=(("v", "3"),)))))])
    schema = T.StructType([T.StructField("v", T.LongType()), T.StructField("w", T.StringType())])
    columns = columns_of(schema, fail_fast=False)
    decoded = decode([Body(1, body)], shard=0, selection=columns.selection)
    assert columns.convert(decoded.rows).to_pylist() == [{"v": 2, "w": "\ufffd"}, {"v": 3, "w": None}]
    assert decoded.replaced == 1


def test_a_text_that_is_no_value_fails_the_read_with_failfast() -> None:
    schema = one_column(T.IntegerType())
    assert rows(schema, "1", None, fail_fast=True).column("v").to_pylist() == [1, None]
    with pytest.raises(LogstoreError, match=rf"column v: 'x' at cursor {CURSOR + 2} is no int32; declare"):
        rows(schema, "1", "2", "x", "y", fail_fast=True)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (T.StructField("__time__", T.LongType()), "column __time__ is timestamp, not bigint; cast it"),
        (T.StructField("__tim__", T.LongType()), "no column __tim__; the data source has __time__"),
        (T.StructField("v", T.ArrayType(T.StringType())), "declare it as STRING and take it apart"),
        (T.StructField("v", T.DayTimeIntervalType()), "declare it as STRING"),
        (T.StructField("v", T.StringType(), nullable=False), "column v must be nullable"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(field: T.StructField, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        columns_of(T.StructType([field]), fail_fast=False)
    assert message in str(raised.value)


def test_a_column_is_declared_once() -> None:
    schema = T.StructType([T.StructField("v", T.StringType()), T.StructField("V", T.StringType())])
    with pytest.raises(OptionError, match="column v is declared twice"):
        columns_of(schema, fail_fast=False)
