"""Logs with texts at the limits of what casts and functions of texts accept: signs, blanks, control
characters, other digits, letters that change in number with their case, long and empty texts."""

import random
import re
from functools import cache

import pyarrow as pa

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.reading.decoding import EVERYTHING, Body, Selection, decode

KEYS = ("a", "b", "c", "d")
TEXTS = (
    "", " ", "  ", "\t", "a", "A", "ab", "aB", "abc", " abc ", "\u00a0abc\u2003", "\0", "a\0b", "a\nb", "é",
    "É", "ß", "ẞ", "ﬁ", "İ", "ı", "Σ", "ΑΣ", "ΑΣ. ", "Σ\u0301Α", "ǆ", "ǅ", "Ǆ", "ŉ", "😀", "a😀b", "日本語",
    "\ufffd", "e\u0301", "Ⅷ", "x" * 300, "%", "_", "a%b", "a_b", "\\", "'", '"', "null", "NULL", "true",
)  # fmt: skip
ALPHABET = "abAB01 \t\0\u00a0éÉßσΣς😀\u0301%_"


@cache
def odd_texts(seed: int, number: int) -> tuple[str, ...]:
    """Known odd texts, and random ones that begin or end alike."""
    choose = random.Random(seed)
    made = ["".join(choose.choices(ALPHABET, k=choose.randrange(12))) for _ in range(number)]
    return (*TEXTS, *made)


def odd_logs(texts: tuple[str, ...], *, seed: int = 0, logs: int = 300) -> bytes:
    """A LogGroupList whose logs have some of these texts, each text in its first key at least once. Keys are
    missing, or occur twice."""
    choose = random.Random(seed)
    groups = []
    while logs > 0 or texts:
        size = choose.randrange(1, 60)
        first, texts = texts[:size], texts[size:]
        made = []
        for number in range(size):
            pairs = [(key, choose.choice(TEXTS)) for key in KEYS if choose.random() < 0.8]
            pairs += [(KEYS[0], first[number])] if number < len(first) else []
            made.append(Log(time=1_700_000_000 + number, contents=tuple(pairs)))
        tags = (("host", choose.choice(TEXTS)),) if choose.random() < 0.5 else ()
        topic = choose.choice(TEXTS)
        groups.append(LogGroup(logs=tuple(made), topic=topic, source=choose.choice(TEXTS), tags=tags))
        logs -= size
    return loggroup.wrap(map(loggroup.encode, groups))


def decoded(body: bytes, selection: Selection = EVERYTHING) -> pa.RecordBatch:
    return decode([Body(7, body)], shard=3, selection=selection).rows


NUMBERS = (
    "0", "-0", "+0", "00", "007", "-007", "+5", "--5", "+-5", "5+", " 5", "5 ", "\t5\n", "\x005\x7f",
    "\u00a05", "5\u2003", "1 2", "1_000", "1,000", "0x1F", "0X1f", "0b1", "1.", ".5", "-.5", "+.5", ".",
    "-", "+", "1.5", "1.50", "-1.5", "1e3", "1E3", "1e+3", "1e-3", "1e", "e3", "1e3.5", "1.e3", ".e3", "1d",
    "1f", "1D", "1F", "1l", "1.5e3f", "NaN", "nan", "-NaN", "+NaN", "NAN", "Infinity", "-Infinity",
    "+Infinity", "infinity", "INF", "inf", "-inf", "+inf", " inf ", "Inf\x7f", "0x1p3", "-0x1.8p-3",
    "0x.8p0", "0x1p", "0x1p3f", "1e308", "1e309", "-1e309", "1e-400", "4.9e-324", "2e-324",
    "1.7976931348623157e308", "1.7976931348623159e308", "9007199254740993", "0.1", "0.30000000000000004",
    "123456789012345678", "127", "128", "-128", "-129", "32767", "32768", "-32768", "-32769", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "0" * 30 + "1", "9" * 20, "9" * 40, "1" + "0" * 38,
    "0." + "0" * 45 + "1", "١٢", "１２", "²", "½", "𝟙", "Ⅷ", "99.99", "99.994", "99.995", "99.999", "-99.995",
    "0.005", "0.0049", "0.015", "-0.005", "1.005", "999.5", "1e2", "1e1", "1e60", "0e60", "0E+38", "0e37",
    "1e-50", "1e2147483648", "1e-2147483648", "1e-2147483649",
    "1e99999999999", "1e-99999999999", "0.12345678901234567890123456789", "12345678901234567890.5",
    "99999999999999999999999999999999999999", "0.99999999999999999999999999999999999999", "true", "null",
    "½5", "5½", "1e00000000000003", "0.5e1", "0." + "9" * 18, "9." + "9" * 18, "9." + "9" * 19,
    "92233720368547712807", "9223372036854771280.7", "9" * 400,
)  # fmt: skip
TIMES = (
    "2024-01-01 00:00:00", "2024-01-01T00:00:00", "2024-01-01t00:00:00", "2024-01-01  00:00:00",
    "2024-02-29 12:00:00", "2023-02-29 12:00:00", "2024-02-30 00:00:00", "2024-13-01 00:00:00",
    "2024-00-01 00:00:00", "2024-01-00 00:00:00", "2024-04-31 00:00:00", "2024-12-31 23:59:59.999999",
    "2024-01-01 24:00:00", "2024-01-01 23:60:00", "2024-01-01 23:59:60", "2024-01-01 1:2:3", "2024-1-1",
    "2024-1-1 1", "2024-1-1 1:2", "2024-01-01 12", "2024-01-01T", "2024-01-01 ", "2024-01", "2024", "202",
    "20240", "202401", "2024010", "+2024", "-2024", "-0001-01-01", "0000-01-01", "0000-02-29", "0001-01-01",
    "0999-01-01 00:00:00", "10000-01-01 00:00:00", "294247-01-10 04:00:54.775807",
    "294247-01-10 04:00:54.775808", "-290308-12-21 19:59:05.224192", "-290308-12-21 19:59:05.224191",
    "999999-01-01", "2024-01-01 00:00:00.", "2024-01-01 00:00:00.1", "2024-01-01 00:00:00.1234567",
    "2024-01-01 00:00:00.123456789123", "2024-01-01 00:00:00Z", "2024-01-01 00:00:00.5Z",
    "2024-01-01 00:00:00z", "2024-01-01 00:00:00 Z", "2024-01-01 00:00:00 UTC", "2024-01-01 00:00:00UTC",
    "2024-01-01 00:00:00 utc", "2024-01-01 00:00:00+01:00", "2024-01-01 00:00:00-01:30",
    "2024-01-01 00:00:00+1:00", "2024-01-01 00:00:00+1:0", "2024-01-01 00:00:00+01:5",
    "2024-01-01 00:00:00+1", "2024-01-01 00:00:00+01", "2024-01-01 00:00:00+0100",
    "2024-01-01 00:00:00+010203", "2024-01-01 00:00:00+01:02:03", "2024-01-01 00:00:00+18:00",
    "2024-01-01 00:00:00+18:01", "2024-01-01 00:00:00+17:59", "2024-01-01 00:00:00+19",
    "2024-01-01 00:00:00-18:00", "2024-01-01 00:00:00+00:60", "2024-01-01 00:00:00+",
    "2024-01-01 00:00:00UTC+1", "2024-01-01 00:00:00GMT-08:00", "2024-01-01 00:00:00UT+3:30",
    "2024-01-01 00:00:00 GMT0", "2024-01-01 00:00:00 UTC+", "2024-01-01 00:00:00 Europe/Berlin",
    "2024-03-31 02:30:00 Europe/Berlin", "2024-10-27 02:30:00 Europe/Berlin",
    "2024-10-27 02:30:00.5Europe/Berlin", "1800-01-01 00:00:00 Europe/Berlin",
    "12024-07-01 00:00:00 Europe/Berlin", "-2024-07-01 00:00:00 Europe/Berlin",
    "2024-01-01 00:00:00 europe/berlin", "2024-01-01 00:00:00 PST", "2024-07-01 00:00:00 CST",
    "2024-07-01 00:00:00 EST", "2024-07-01 00:00:00 EST5EDT", "2024-01-01 00:00:00 XYZ",
    "2024-01-01 00:00:00 .5", "2024-01-01 00:00:00.5.5", "2024-01-01 00:00:00.5 .5", "2024-01-01 00:00Z",
    "2024-01-01Z", "2024-01-01 00Z", " 2024-01-01 00:00:00", "\t2024-01-01 00:00:00\n",
    "2024-01-01 00:00:00\x7f", "2024-01-01\n00:00:00", "2024/01/01 00:00:00", "20240101",
    "20240101T000000Z", "1700000000", "1700000000000", "12:30", "12:30:15", "1:2:3.5", "T12", "T12:30",
    " T12:30", "T12:30:15+01:00", "12", "12:", "24:00", "+12:30", "T", "now", "today", "epoch",
    "２０２４-01-01", "Mon, 01 Jan 2024 00:00:00 GMT", "2024-01-01 é", "01/Jan/2024:00:00:00 +0000",
    "2024-01-01 00:00:00,123", "2024-01-01 00:00:00 +08:00", "2024-01-01T00:00:00.000+08:00",
)  # fmt: skip
_PARTS = ("0", "1", "9", "12", "-", "+", ".", "e", "E", " ", "5", "00", "x", "f", "\t", "é", "99")
# With which Spark's TRY_CAST to a decimal fails, or takes minutes.
_LONG_EXPONENT = re.compile(r"[eE][+-]?[0-9]{7}")
_TIME_PARTS = ("2024", "-", "01", "1", ":", " ", "T", ".", "12", "59", "Z", "+08:00", "+", "5", "UTC", "0")


@cache
def odd_numbers(seed: int, number: int) -> tuple[str, ...]:
    made = [*_joined(seed, number, _PARTS), *_changed(seed, number, NUMBERS, _PARTS)]
    return (*NUMBERS, *TEXTS, *(text for text in made if _LONG_EXPONENT.search(text) is None))


@cache
def odd_times(seed: int, number: int) -> tuple[str, ...]:
    return (*TIMES, *TEXTS, *_joined(seed, number, _TIME_PARTS), *_changed(seed, number, TIMES, _TIME_PARTS))


def _joined(seed: int, number: int, parts: tuple[str, ...]) -> list[str]:
    choose = random.Random(seed)
    return ["".join(choose.choices(parts, k=choose.randrange(1, 6))) for _ in range(number)]


def _changed(seed: int, number: int, texts: tuple[str, ...], parts: tuple[str, ...]) -> list[str]:
    """Texts with one character replaced, removed or added."""
    choose = random.Random(seed)
    made = []
    for _ in range(number):
        text = choose.choice(texts)
        at, cut = choose.randrange(len(text) + 1), choose.randrange(2)
        made.append(text[:at] + choose.choice((*parts, "")) + text[at + cut :])
    return made
