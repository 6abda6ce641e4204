"""Bytes in are bytes out: kinds of files, by each way in and each way out.

In: `put` in both forms, the demo, and the forms of Kafka records. Out: the bare field, JSON and what `put`
makes of it, and Kafka records. What is between them is the encoded log group, as the service keeps it.
"""

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loghub.wire.loggroup import Log, LogGroup, decode, encode
from loghub_cli.demo.ground_truth import BadLogsError, check_file, of_file
from loghub_cli.line_reader import Chunk, LineReader, OnBadLine, Reading
from loghub_cli.log_lines import BadLine, LinesOrigin, PrintedPlace, as_json, as_members, value_of
from loghub_cli.up.text_input import UnreadableText
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.records.records import batch_of, logs_of
from loghub_service.kafka.wire.record_batch import Record
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.kafka.records.test_to_batch import read

CHINESE = "2026-11-26 支付失败 订单号".encode()
FILES: dict[str, tuple[bytes, list[bytes]]] = {
    "empty lines": (b"panic\n\n\tmain.go:1\n\n", [b"panic", b"", b"\tmain.go:1", b""]),
    "CR LF": (b"a\r\n\r\nb\r\n", [b"a", b"", b"b"]),
    "CR of its own": (b"50%\r100%\r\r\ndone", [b"50%\r100%\r", b"done"]),
    "no last line end": (b"a\nb", [b"a", b"b"]),
    "spaces": (b"  a\t \n \n", [b"  a\t ", b" "]),
    "NUL and control characters": (b"a\0b\x1b[2J\x85\n".replace(b"\x85", b""), [b"a\0b\x1b[2J"]),
    "other line separators": ("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d".encode()]),
    "UTF-8 with a byte order mark": (b"\xef\xbb\xbf" + CHINESE + b"\n", [CHINESE]),
    "a mark within": ("a\ufeffb\n\ufeffc\n".encode(), ["a\ufeffb".encode(), "\ufeffc".encode()]),
    "UTF-16 of Windows": (
        "\ufeff支付\r\n\r\n\u0a0aA\r\n".encode("utf-16-le"),
        ["支付".encode(), b"", "\u0a0aA".encode()],
    ),
    "UTF-16, the other order": ("\ufeffa\nb".encode("utf-16-be"), [b"a", b"b"]),
    "UTF-32": ("\ufeffa\nb\n".encode("utf-32-le"), [b"a", b"b"]),
    "gzip": (gzip.compress(CHINESE + b"\n\nb\n"), [CHINESE, b"", b"b"]),
    "gzip in members, padded": (gzip.compress(b"a\nb") + gzip.compress(b"c\n") + bytes(512), [b"a", b"bc"]),
    "gzip of UTF-16": (gzip.compress("\ufeff支\r\n".encode("utf-16-le")), ["支".encode()]),
    "gzip of nothing": (gzip.compress(b""), []),
    "nothing": (b"", []),
    "a mark and nothing": (b"\xef\xbb\xbf", []),
    "what begins like magic": (b"(\xb5\nBZ", [b"(\\xb5", b"BZ"]),
    "bytes that are not UTF-8": (b"caf\xe9\n", [b"caf\\xe9"]),
    "JSON lines of a logger": (b'{"n":1.10,"n":2}\n{"n":1E5}\n', [b'{"n":1.10,"n":2}', b'{"n":1E5}']),
    "a quoted line break": (b'a,"b\nc"\n', [b'a,"b', b'c"']),
    "a line of the greatest length": (b"x" * (1 << 20) + b"\r\ny\n", [b"x" * (1 << 20), b"y"]),
}  # fmt: skip
SIZES = [1, 2, 3, 7, 1 << 18]


def record(value: bytes) -> Record:
    return Record(key=None, value=value, headers=(), timestamp=1)


def reader(**changes: object) -> LineReader:
    given: dict[str, object] = {
        "is_json": False,
        "field": "line",
        "origin": LinesOrigin(),
        "encoding": "auto",
        "on_bad_line": OnBadLine.STOP,
        "follow": False,
    }
    return LineReader(Reading(**{**given, **changes}), ManualClock())  # type: ignore[arg-type]


def put(data: bytes, size: int = 1 << 18, **changes: object) -> list[Log]:
    """The logs that `put` makes of a file whose bytes arrive in pieces of this size."""
    lines = reader(**changes)
    pieces = (Chunk(0, data[at : at + size]) for at in range(0, len(data), size))
    logs = [one.log for piece in pieces for one in lines.logs_of(piece)]
    return logs + [one.log for one in lines.end()]


def stored(logs: list[Log]) -> LogGroup:
    return decode(encode(LogGroup(logs=tuple(logs), topic="t", tags=(("host", "h"),))))


def printed(group: LogGroup) -> str:
    return "".join(
        as_json(as_members(log, group, PrintedPlace(shard=0, cursor="c", index=index))) + "\n"
        for index, log in enumerate(group.logs)
    )


@pytest.mark.parametrize("name", FILES)
def test_the_lines_of_a_file_come_out_of_each_way_as_they_went_in(name: str) -> None:
    content, lines = FILES[name]
    for size in SIZES if len(content) < 1000 else SIZES[-1:]:
        group = stored(put(content, size))
        assert [value_of(log, "line") for log in group.logs] == lines, size
    again = stored(put(printed(group).encode(), is_json=True, on_bad_line=OnBadLine.STOP))
    assert again == group
    if lines:
        records = read(batch_of(encode(group), raw=False))
        assert [(record.key, record.value) for record in records] == [(b"line", line) for line in lines]


@pytest.mark.parametrize("form", [RecordForm.PLAIN, RecordForm.RAW])
@pytest.mark.parametrize("name", FILES)
def test_a_record_of_kafka_keeps_its_bytes_whatever_they_are(name: str, form: RecordForm) -> None:
    content, _ = FILES[name]
    (log,) = stored(list(logs_of([record(content)], form, now_ms=1))).logs
    assert value_of(log, "content" if form is RecordForm.PLAIN else "value") == content


@pytest.mark.parametrize("name", [name for name in FILES if FILES[name][1] and "length" not in name])
def test_the_demo_reads_the_same_lines_or_refuses_the_file(name: str, tmp_path: Path) -> None:
    content, lines = FILES[name]
    (tmp_path / "a.log").write_bytes(content)
    if name.startswith(("gzip", "UTF-16", "UTF-32")):
        with pytest.raises(BadLogsError, match="convert it first"):
            check_file(tmp_path / "a.log")
        return
    check_file(tmp_path / "a.log")
    found = itertools.takewhile(lambda line: line.turn == 1, of_file(tmp_path / "a.log"))
    assert [line.text.encode() for line in found] == lines


NUMBERS = ["1.10", "12345678901234567.89", "1E5", "1e-7", "1e400", "-0", "9" * 5000, "[1.50]", "true", "null"]
WAYS_IN: dict[str, Callable[[bytes], Log]] = {
    "put": lambda data: put(data, is_json=True)[0],
    "Kafka": lambda data: next(logs_of([record(data)], RecordForm.JSON, now_ms=1)),
}


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12])
def test_a_number_is_as_it_is_written(way: str, number: str) -> None:
    (log,) = stored([WAYS_IN[way](b'\xef\xbb\xbf{"a": ' + number.encode() + b"}")]).logs
    assert value_of(log, "a") == number.encode()


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_key_that_occurs_twice_is_stored_twice_and_shown_with_its_last_value(way: str) -> None:
    (log,) = stored([WAYS_IN[way](b'{"a":"1","b":3,"a":"2"}')]).logs
    assert log.contents == (("a", b"1"), ("b", b"3"), ("a", b"2"))
    group = LogGroup(logs=(log,))
    assert json.loads(printed(group))["a"] == "2"
    assert put(printed(group).encode(), is_json=True)[0].contents == (("a", "1"), ("b", "3"), ("a", "2"))
    assert value_of(log, "a") == b"2"


RESERVED = ["__time__", "__time_ns__", "__topic__", "__source__", "__tag__:x", "__shard__", "__cursor__"]
RESERVED += ["__index__", "__field__:a", "__field__:__time__"]


def test_a_field_with_a_reserved_name_is_no_time_and_no_topic() -> None:
    contents = tuple((name, f"1{name}".encode()) for name in RESERVED)
    group = LogGroup(
        logs=(Log(time=1_700_000_000, contents=contents),), topic="t", tags=(("x", "y"), ("x", "z"))
    )
    shown = json.loads(printed(group))
    assert (shown["__time__"], shown["__topic__"], shown["__tag__:x"]) == (1_700_000_000, "t", "z")
    lines = reader(is_json=True)
    (again,) = lines.logs_of(Chunk(0, printed(group).encode()))
    assert stored([again.log]).logs == group.logs
    assert (again.origin.topic, again.origin.tags) == ("t", group.tags)


# --- lines that are no logs ---------------------------------------------------------------------

LONG = b"y" * ((1 << 20) - 1) + "é".encode()  # a byte too long, in the middle of a character
BAD: dict[str, tuple[bytes, bool]] = {
    "too long": (LONG + b"z" * 3_000_000, False),
    "cut off": (b'{"a": "1', True),
    "no object": (b"[1]", True),
    "a fraction of a second": (b'{"__time__": 1767225600.25}', True),
    "milliseconds": (b'{"__time__": 1767225600250}', True),
    "a value that is too long": (b'{"a": "' + LONG + b'"}', True),
    "a number of many digits as time": (b'{"__time__": ' + b"9" * 5000 + b"}", True),
    "deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", True),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_stops_it_or_is_skipped_or_is_kept_and_the_next_one_is_whole(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line, is_json = BAD[name]
    good = b'{"line": "%s"}' if is_json else b"%s"
    content = b"\n".join((good % b"1", line, good % b"3", b""))
    lines = reader(is_json=is_json)
    seen = []
    with pytest.raises(BadLine, match="line 2 "):
        seen.extend(lines.logs_of(Chunk(0, content)))
    for on_bad_line in (OnBadLine.SKIP, OnBadLine.RAW):
        for size in (1 << 16, len(content)):
            values = [
                value_of(log, "line") for log in put(content, size, is_json=is_json, on_bad_line=on_bad_line)
            ]
            kept = b"".join(value or b"" for value in values[1:-1])
            assert (values[0], values[-1]) == (b"1", b"3")
            assert kept == (line if on_bad_line is OnBadLine.RAW else b"")
            assert all(len(value or b"") <= 1 << 20 for value in values)
            assert all((value or b"").decode() is not None for value in values), "no half of a character"
            assert capsys.readouterr().err.count("line 2 ") == 1


def test_a_json_line_may_be_longer_than_a_value() -> None:
    members = {f"k{number}": "v" for number in range(70_000)}
    (log,) = put(json.dumps(members).encode(), is_json=True)
    assert len(log.contents) == len(members)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x28\xb5\x2f\xfd rest", r"is compressed \(zstd\); convert it first, for example with `zstd -dc`"),
        (b"BZh91AY", "bzip2 -dc"),
        (b"PK\x03\x04", "unzip -p"),
        (gzip.compress(b"a\n" * 1000)[:-9], "ends in the middle"),
        (gzip.compress(b"a\n")[:-8] + b"\xff" * 8, "is damaged"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words_and_a_follower_goes_on(
    content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (1, 1 << 18):
        with pytest.raises(UnreadableText, match=message):
            put(content, size)
        lines = reader(follow=True)
        for at in range(0, len(content), size):
            list(lines.logs_of(Chunk(1, content[at : at + size])))
        list(lines.logs_of(Chunk(1, None)))
        assert [one.log.contents for one in lines.logs_of(Chunk(2, b"next\n"))] == [(("line", "next"),)]
        assert capsys.readouterr().err.count("it is skipped") == 1


def test_an_encoding_that_is_named_is_believed() -> None:
    assert put(CHINESE.decode().encode("gb18030") + b"\n", 1, encoding="gb18030")[0].contents == (
        ("line", CHINESE.decode()),
    )
    assert put("a\nb".encode("utf-16-le"), 1, encoding="utf-16-le")[1].contents == (("line", "b"),)
    assert put(b"\x1f\x8b\x08", encoding="utf-8")[0].contents == (("line", "\x1f\\x8b\x08"),)
