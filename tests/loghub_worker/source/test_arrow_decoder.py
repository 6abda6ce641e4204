"""Rows from pulled bytes, against the wire's own decoder, on real log lines."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_worker.source.arrow_decoder import SCHEMA, decode
from tests.loghub_worker.support import real_lines


def expected(groups: list[LogGroup], *, shard: int, first_cursor: int) -> list[dict[str, Any]]:
    """The rows of these groups, by way of their encoded bytes and the plain decoder."""
    rows = []
    for cursor, group in enumerate(groups, first_cursor):
        read = loggroup.decode(loggroup.encode(group))
        for index, log in enumerate(read.logs):
            rows.append(row(read, log) | {"__shard__": shard, "__cursor__": cursor, "__index__": index})
    return rows


def row(group: LogGroup, log: Log) -> dict[str, Any]:
    micro = datetime.timedelta(microseconds=(log.time_ns or 0) // 1000)
    return {
        "__time__": datetime.datetime.fromtimestamp(log.time, datetime.UTC) + micro,
        "__time_ns__": log.time_ns,
        "__topic__": group.topic,
        "__source__": group.source,
        "__tags__": list(group.tags),
        "contents": [(key, text(value)) for key, value in log.contents],
    }


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def body(groups: list[LogGroup]) -> bytes:
    return loggroup.wrap(loggroup.encode(group) for group in groups)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    return [{name: row[name] for name in row} for row in batch.to_pylist()]


def real_groups() -> list[LogGroup]:
    lines = real_lines()
    return [
        LogGroup(
            logs=tuple(
                Log(
                    time=1_700_000_000 + n,
                    contents=(("line", line), ("size", str(len(line)))),
                    time_ns=n * 1001,
                )
                for n, line in enumerate(lines[start : start + 97])
            ),
            topic=f"topic {start}",
            source="10.1.2.3",
            tags=(("__hostname__", "h"), ("n", str(start))),
        )
        for start in range(0, len(lines), 97)
    ]


def test_real_lines_are_read_as_the_plain_decoder_reads_them() -> None:
    groups = real_groups()
    decoded = decode(body(groups), shard=3, first_cursor=10**18)
    assert decoded.replaced == 0
    assert rows_of(decoded.rows) == expected(groups, shard=3, first_cursor=10**18)


ODD = [
    pytest.param([], id="no group"),
    pytest.param([LogGroup(logs=())], id="no log"),
    pytest.param([LogGroup(logs=()), LogGroup(logs=(Log(time=1, contents=()),))], id="no content"),
    pytest.param([LogGroup(logs=(Log(time=0, contents=(("", ""),)),))], id="empty texts"),
    pytest.param([LogGroup(logs=(Log(time=2**32 - 1, contents=(("k", "1"), ("k", "2"))),))], id="key twice"),
    pytest.param(
        [LogGroup(logs=(Log(time=5, contents=(("ключ", "值\u0000🙂"),), time_ns=999_999_999),))], id="unicode"
    ),
]


@pytest.mark.parametrize("groups", ODD)
def test_odd_groups_are_read_as_the_plain_decoder_reads_them(groups: list[LogGroup]) -> None:
    assert rows_of(decode(body(groups), shard=0, first_cursor=7).rows) == expected(
        groups, shard=0, first_cursor=7
    )


def test_nanoseconds_that_are_none_are_null_and_do_not_move_the_time() -> None:
    """A producer that does not know the contract; nothing could be written with them again."""
    time = loggroup.encode(LogGroup(logs=(Log(time=5, contents=(("k", "v"),), time_ns=999_999_999),)))
    wrong = time.replace((999_999_999).to_bytes(4, "little"), (1_000_000_000).to_bytes(4, "little"))
    rows = decode(loggroup.wrap([time, wrong]), shard=0, first_cursor=1).rows
    assert rows.column("__time_ns__").to_pylist() == [999_999_999, None]
    micros = rows.column("__time__").cast(pa.int64()).to_pylist()
    assert micros == [5_999_999, 5_000_000]


def test_bytes_that_are_not_text_are_replaced_and_counted_and_spoil_nothing_else() -> None:
    bad = Log(time=9, contents=(("raw", b"a\xff\xfeb"), ("fine", "é")))
    groups = [*real_groups()[:2], LogGroup(logs=(bad, bad)), *real_groups()[2:4]]
    decoded = decode(body(groups), shard=1, first_cursor=1)
    assert decoded.replaced == 2
    assert rows_of(decoded.rows) == expected(groups, shard=1, first_cursor=1)


def test_truncated_body_is_an_error() -> None:
    with pytest.raises(ValueError, match="Protobuf"):
        decode(body(real_groups()[:1])[:-3], shard=0, first_cursor=1)
