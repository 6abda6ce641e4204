"""Rows of any DataFrame as the columns of which log groups are formed."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from loghub_spark.options import OptionError
from loghub_spark.wire_rows import check, to_wire

UTC = datetime.UTC
SECOND = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # 1_700_000_000


def wire(**columns: pa.Array) -> dict[str, list[Any]]:
    batch = pa.RecordBatch.from_pydict(columns)
    check(batch.schema)
    return to_wire(batch).to_pydict()


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["x", None]), ["x", None]),
        (pa.array([1, None], pa.int64()), ["1", None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([0.1, 1.0]), ["0.1", "1.0"]),
        (pa.array([0.1], pa.float32()), ["0.1"]),
        (pa.array([Decimal("0.0000001")]), ["0.0000001"]),
        (pa.array([b"a\xff"]), ["a\ufffd"]),
        (pa.array([datetime.date(2026, 1, 31)]), ["2026-01-31"]),
        (pa.array([SECOND], pa.timestamp("us", tz="UTC")), ["2023-11-14T22:13:20+00:00"]),
        (pa.array([[1, None]], pa.list_(pa.int32())), ["[1,null]"]),
        (pa.array([{"a": 1, "b": "ü"}]), ['{"a":1,"b":"ü"}']),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), ['{"k":1}']),
        (pa.array([None], pa.null()), [None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_become_texts(column: pa.Array, texts: list[str | None]) -> None:
    assert wire(c=column) == {"c": texts}


def test_a_time_is_seconds_and_the_nanoseconds_below() -> None:
    micro = datetime.timedelta(microseconds=1)
    times = pa.array([SECOND, SECOND + micro, SECOND - micro, None], pa.timestamp("us", tz="UTC"))
    assert wire(__time__=times) == {
        "__time__": [1_700_000_000, 1_700_000_000, 1_699_999_999, None],
        "__time_ns__": [None, 1000, 999_999_000, None],
    }


@pytest.mark.parametrize(
    ("outside", "seconds"),
    [
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), -1),
        (datetime.datetime(2106, 2, 7, 6, 28, 16, tzinfo=UTC), 2**32),
    ],
)
def test_a_time_that_no_log_can_have_is_named_with_its_row(outside: datetime.datetime, seconds: int) -> None:
    kind = pa.timestamp("us", tz="UTC")
    message = f"column __time__ has {seconds} in row 2 of a batch of 3: .* from 1970-01-01 to 2106-02-07"
    with pytest.raises(ValueError, match=message):
        wire(__time__=pa.array([SECOND, None, outside], kind))
    last = datetime.datetime(2106, 2, 7, 6, 28, 15, 999_999, UTC)
    assert wire(__time__=pa.array([last], kind))["__time__"] == [2**32 - 1]
    assert wire(__time__=pa.array([0, 2**32 - 1, None]))["__time__"] == [0, 2**32 - 1, None]


def test_given_nanoseconds_are_kept() -> None:
    times = pa.array([SECOND, SECOND], pa.timestamp("us", tz="UTC"))
    result = wire(__time__=times, __time_ns__=pa.array([123_456_789, 0], pa.int32()))
    assert result["__time_ns__"] == [123_456_789, 0]
    fraction = pa.array([SECOND + datetime.timedelta(microseconds=5)], times.type)
    without = pa.array([None], pa.int32())
    assert wire(__time__=fraction, __time_ns__=without)["__time_ns__"] == [5000]
    assert wire(__time__=pa.array([5]), __time_ns__=pa.array([7]))["__time_ns__"] == [7]


def test_a_date_or_a_time_without_a_zone_is_one_of_utc() -> None:
    assert wire(__time__=pa.array([datetime.date(1970, 1, 2)]))["__time__"] == [86_400]
    without_zone = pa.array([86_400_000_000], pa.int64()).cast(pa.timestamp("us"))
    assert wire(__time__=without_zone)["__time__"] == [86_400]


def test_maps_of_values_are_maps_of_texts_and_positions_are_left_out() -> None:
    numbers = pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int32()))
    assert wire(contents=numbers, __shard__=pa.array([1, 1]), __cursor__=pa.array([1, 1])) == {
        "contents": [[("k", "1"), ("l", None)], None]
    }


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        (
            "__time__",
            pa.array(["x"]),
            "__time__ must be a timestamp, a date or whole unix seconds, not",
        ),
        ("__time_ns__", pa.array([1.5]), "__time_ns__ must be the nanoseconds"),
        ("__tags__", pa.array(["x"]), "__tags__ must be a map of texts"),
        ("__hash_key__", pa.array([5]), "__hash_key__ must be a text of 32 hex digits"),
        ("__topic__", pa.array([[1]]), "__topic__ must be a text"),
        ("__cursor__", pa.array([5]), "no column to write"),
    ],
)
def test_a_column_that_cannot_be_written_is_named(name: str, column: pa.Array, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        wire(**{name: column})
