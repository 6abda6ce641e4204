"""Decimals, dates and times of declared columns are what Spark's own casts make of the same texts.

One Spark job casts some thousand generated texts, most of them near to what is valid."""

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention

from loghub_spark.casts import days_of, decimal_of, microseconds_of
from tests.loghub_spark.test_columns import values
from tests.suite.seed import of_run

TEXTS = 2_000  # of each kind
DECIMALS = [(38, 18), (10, 2), (38, 0), (5, 5), (38, 38)]
YEARS = (
    "2026", "2024", "2023", "1970", "0001", "0000", "9999", "10000", "-0044", "+2026", "294247", "-290308",
)  # fmt: skip
ZONES = (
    "Z", " Z", "+08:00", "-8:00", "+0800", "+08", "-08:0", "+8", " UTC", "UTC+3", "GMT+03:00", "PST", "EST",
    "+18:00", "+18:01", "+19:00", "foo", "z", "+08:00:30", " +1:5", "UT", "GMT0", "Etc/GMT+3", "+080030",
    "-00:00", "utc", "+00:60", "Asia/Kolkata", " Europe/Paris", " America/New_York", "-03:30", "+1:3",
)  # fmt: skip
# What other formats and mistakes look like.
ODD = (
    "1712011012345", "1795425583123", "20260105", "2026-W48-4", "2026-11-26x10:00:00", "2026/11/26", "", " ",
    "T", "2026-11-26T", "2026-11-26 10:00:00 +01:00 ", "2026-02-29", "2024-02-29", "1900-02-29", "noon",
    "26-01-01", "2026-03-29 02:30:00 Europe/Paris", "2026-10-25 02:30:00 Europe/Paris", "2026-11-26T10",
    "2026-11-26Z", "\u0662\u0660\u0662\u0666-01-01", "2026-01-01\u00a0", "2026-01-01T00:00:00,5",
    "2026-1-1T1:1:1.1.1",
)  # fmt: skip
ODD_NUMBERS = (
    "0.125", "12345678901.5", "1e-7", "0e50", "0e38", "-0", ".", "1.", ".5", "NaN", "Infinity", "1,5", "0x10",
    "\uff11\uff12", "\U0001d7cf", "1_0", "9" * 38, "9" * 39, "1e99999999999", "0." + "9" * 50,
)  # fmt: skip
# How many digits there are before the point, and after it.
WHOLE, PART = [0, 1, 2, 5, 10, 20, 28, 29, 38, 39], [0, 1, 2, 5, 18, 19, 38, 50]


def with_a_mistake(text: str, characters: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(["", *characters]) + text[at + chance.randrange(2) :]


def digits(lengths: list[int], chance: random.Random) -> str:
    return "".join(chance.choices("0123456789", k=chance.choice(lengths)))


def generated(chance: random.Random) -> Iterator[str]:
    """Dates and times, a part of them with one mistake."""
    yield from ODD
    while True:
        month, day = chance.choice(["1", "02", "12", "3", "10"]), chance.choice(["5", "28", "31"])
        parts = [
            f"{chance.choice(YEARS)}-{month}-{day}",
            chance.choice(" T") + chance.choice(["10", "7", "23", "0", "02"]),
            ":" + chance.choice(["30", "5", "59", "00"]),
            ":" + chance.choice(["0", "07", "59"]),
            chance.choice(["", ".", ".1", ".123456", ".1234567", ".123456999", ".000001"]),
            chance.choice(["", chance.choice(ZONES)]),
        ]
        text = "".join(parts[: chance.choice([1, 2, 3, 4, 5, 6, 6, 6])])
        if chance.random() < 0.3:
            text = with_a_mistake(text, "0123456789-:T +.xZ\t", chance)
        yield chance.choice(["", "", " ", "\t\n", "\x1f"]) + text + chance.choice(["", "", " ", "\n", "\x7f"])


def generated_decimals(chance: random.Random) -> Iterator[str]:
    """Numbers, a part of them with one mistake."""
    yield from ODD_NUMBERS
    while True:
        part = digits(PART, chance)
        text = chance.choice(["", "", "-", "+"]) + "0" * chance.choice([0, 0, 3, 40]) + digits(WHOLE, chance)
        text += chance.choice(["", f".{part}", f".{part}5", f".{part}4999", f".{part}50000"])
        text += chance.choice(["", "", "", f"e{chance.randint(-45, 45)}", f"E+{chance.randint(0, 9)}"])
        if chance.random() < 0.1:
            text = with_a_mistake(text, "0123456789-+.eE \u2003", chance)
        yield chance.choice(["", "", " ", "\t"]) + text + chance.choice(["", "", " ", "d"])


def some(texts: Iterator[str]) -> list[str]:
    return sorted({next(texts) for _ in range(TEXTS)})


def or_none(cast: Callable[[], Any]) -> Any:
    try:
        return cast()
    except ValueError:
        return None


@pytest.fixture(scope="module")
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


def cast_by_spark(spark: SparkSession, texts: list[str], *expressions: str) -> dict[str, list[Any]]:
    """For each of the texts what Spark makes of it."""
    rows = spark.createDataFrame(pa.table({"t": pa.array(texts, pa.string())}))
    return {row[0]: list(row)[1:] for row in rows.selectExpr("t", *expressions).collect()}


def wrong(expected: dict[str, list[Any]], casts: list[Callable[[str], Any]]) -> list[tuple[str, Any, Any]]:
    found = {text: [or_none(lambda one=one, text=text: one(text)) for one in casts] for text in expected}  # type: ignore[misc]
    return [(text, expected[text], found[text]) for text in expected if found[text] != expected[text]]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_dates_and_times_are_those_of_sparks_casts(utc: SparkSession) -> None:
    expected = cast_by_spark(
        utc,
        [text for text in some(generated(random.Random(of_run()))) if not is_time_alone(text)],
        "unix_micros(try_cast(t AS TIMESTAMP))",
        "unix_micros(CAST(try_cast(t AS TIMESTAMP_NTZ) AS TIMESTAMP))",
        "unix_date(try_cast(t AS DATE))",
    )
    for place in range(3):
        assert sum(one[place] is not None for one in expected.values()) > TEXTS / 4
    casts: list[Callable[[str], Any]] = [
        lambda text: microseconds_of(text, in_utc=True),
        lambda text: microseconds_of(text, in_utc=False),
        days_of,
    ]
    assert wrong(expected, casts) == []


def is_time_alone(text: str) -> bool:
    """Spark puts it on the day of the query."""
    return text.strip("\x7f").strip()[:3].strip("T")[:2].rstrip(":").isdigit() and ":" in text[:5]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_decimals_are_those_of_sparks_casts(utc: SparkSession) -> None:
    kinds = [f"try_cast(t AS DECIMAL({precision}, {scale}))" for precision, scale in DECIMALS]
    expected = cast_by_spark(utc, some(generated_decimals(random.Random(of_run()))), *kinds)
    assert sum(one[0] is not None for one in expected.values()) > TEXTS / 4

    def cast(precision: int, scale: int) -> Callable[[str], Decimal]:
        return lambda text: decimal_of(text, precision=precision, scale=scale)

    assert wrong(expected, [cast(*kind) for kind in DECIMALS]) == []


def test_a_time_without_a_date_is_none() -> None:
    assert values(T.TimestampType(), "10:00", "T10:00:00", "10:00:00Z") == [None, None, None]
