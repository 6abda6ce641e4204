"""Rows from pulled bytes, against the wire's own decoder, on real log lines.

The tests run with the implementation in Python, and with the native part where that is built.
"""

import datetime
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from loghub.wire import loggroup, native
from loghub.wire.errors import MalformedLogGroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.reading.decoding import SCHEMA, Body, Decoded, Selection, decode
from tests.loghub_worker.support import real_lines

IMPLEMENTATIONS = ("Python", "native") if native.is_installed else ("Python",)


@pytest.fixture(autouse=True, params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(native, "decode_lists", native.left_to_python)


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
        "__tags__": once(group.tags),
        "contents": once((key, text(value)) for key, value in log.contents),
    }


def once(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each key with its last value, where that is."""
    listed = list(pairs)
    last = {key: number for number, (key, _) in enumerate(listed)}
    return [pair for number, pair in enumerate(listed) if number in last.values()]


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def body(groups: list[LogGroup]) -> bytes:
    return loggroup.wrap(loggroup.encode(group) for group in groups)


def decoded_body(content: bytes, *, shard: int = 0, first_cursor: int = 1) -> Decoded:
    return decode([Body(first_cursor, content)], shard=shard)


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
    decoded = decoded_body(body(groups), shard=3, first_cursor=10**18)
    assert decoded.replaced == 0
    assert rows_of(decoded.rows) == expected(groups, shard=3, first_cursor=10**18)


ODD = [
    pytest.param([], id="no group"),
    pytest.param([LogGroup(logs=())], id="no log"),
    pytest.param([LogGroup(logs=()), LogGroup(logs=(Log(time=1, contents=()),))], id="no content"),
    pytest.param([LogGroup(logs=(Log(time=0, contents=(("", ""),)),))], id="empty texts"),
    pytest.param([LogGroup(logs=(Log(time=2**32 - 1, contents=(("k", "1"), ("k", "2"))),))], id="key twice"),
    pytest.param(
        [
            LogGroup(logs=(), tags=(("t", "0"),)),
            LogGroup(
                logs=(
                    Log(time=1, contents=(("k", "1"), ("a", ""), ("k", "2"), ("a", "3"))),
                    Log(time=1, contents=(("k", "1"), ("a", ""), ("k", "2"), ("a", "3"))),
                    Log(time=1, contents=(("k", "4"), ("ka", "5"))),
                    Log(time=1, contents=()),
                    Log(time=1, contents=(("kk", "6"), ("a", "7"), ("a", "8"))),
                ),
                tags=(("t", "1"), ("u", "2"), ("t", "3")),
            ),
        ],
        id="keys and tags twice",
    ),
    pytest.param(
        [LogGroup(logs=(Log(time=5, contents=(("ключ", "值\u0000🙂"),), time_ns=999_999_999),))], id="unicode"
    ),
]


@pytest.mark.parametrize("groups", ODD)
def test_odd_groups_are_read_as_the_plain_decoder_reads_them(groups: list[LogGroup]) -> None:
    assert rows_of(decoded_body(body(groups), first_cursor=7).rows) == expected(
        groups, shard=0, first_cursor=7
    )


def test_nanoseconds_that_are_none_are_null_and_do_not_move_the_time() -> None:
    """A producer that does not know the contract; nothing could be written with them again."""
    time = loggroup.encode(LogGroup(logs=(Log(time=5, contents=(("k", "v"),), time_ns=999_999_999),)))
    wrong = time.replace((999_999_999).to_bytes(4, "little"), (1_000_000_000).to_bytes(4, "little"))
    rows = decoded_body(loggroup.wrap([time, wrong])).rows
    assert rows.column("__time_ns__").to_pylist() == [999_999_999, None]
    micros = rows.column("__time__").cast(pa.int64()).to_pylist()
    assert micros == [5_999_999, 5_000_000]


def test_bytes_that_are_not_text_are_replaced_and_counted_and_spoil_nothing_else() -> None:
    bad = Log(time=9, contents=(("raw", b"a\xff\xfeb"), ("fine", "é")))
    groups = [*real_groups()[:2], LogGroup(logs=(bad, bad)), *real_groups()[2:4]]
    decoded = decoded_body(body(groups), shard=1)
    assert decoded.replaced == 2
    assert rows_of(decoded.rows) == expected(groups, shard=1, first_cursor=1)


def test_keys_that_are_not_text_are_one_key_where_they_become_the_same_text() -> None:
    """In the map and as a column of its own: a query may take either."""
    group = LogGroup(logs=(Log(time=9, contents=((b"k\xff", "1"), ("a", "2"), (b"k\xfe", "3"))),))
    selection = Selection(view=("contents",), keys=("k\ufffd",))
    decoded = decode([Body(1, body([group]))], shard=0, selection=selection)
    assert decoded.rows.to_pylist() == [{"contents": [("a", "2"), ("k\ufffd", "3")], "k\ufffd": "3"}]
    assert decoded.replaced == 2


def test_truncated_body_is_an_error() -> None:
    with pytest.raises(MalformedLogGroup, match="passes the end"):
        decoded_body(body(real_groups()[:1])[:-3])


def test_several_bodies_are_read_as_each_alone_and_cut_at_any_log_group() -> None:
    """Between two answers log groups may have expired, so each body has a first cursor of its own."""
    groups = [*real_groups()[:5], LogGroup(logs=()), *real_groups()[5:7]]
    bodies = [Body(10, body(groups[:3])), Body(20, body([])), Body(20, body(groups[3:]))]
    decoded = decode(bodies, shard=2)
    rows = [*expected(groups[:3], shard=2, first_cursor=10), *expected(groups[3:], shard=2, first_cursor=20)]
    assert decoded.groups == (3, 0, len(groups) - 3)
    assert rows_of(decoded.rows) == rows
    for count in range(len(groups) + 1):
        last = [*range(10, 13), *range(20, 30)][count]
        assert rows_of(decoded.until(count)) == [row for row in rows if row["__cursor__"] < last]


KEYED = [
    pytest.param([[("a", "1"), ("bc", "2")], [("a", "3"), ("bc", "")]], id="the same keys"),
    pytest.param([[("a", "1"), ("bc", "2")], [("ab", "3"), ("c", "4")]], id="cut at another place"),
    pytest.param([[("a", "1"), ("bc", "2")], [("bc", "3"), ("a", "4")]], id="in another order"),
    pytest.param([[("a", "1")], [("a", "1"), ("bc", "2")]], id="of another number"),
    pytest.param([[("a", "1")], []], id="a log without any"),
    pytest.param([[], []], id="no log with any"),
    pytest.param([], id="no log"),
    pytest.param([[("", "1")], [("", "2")]], id="the empty key"),
    pytest.param([[("a", "1"), ("a", "2")], [("a", "3"), ("a", "4")]], id="a key twice"),
    pytest.param([[("bc", "0"), ("a", "1"), ("a", "2")], [("a", "3")]], id="sometimes a key twice"),
    pytest.param([[("я", "1"), ("a", "ö")], [("я", "2"), ("a", "3")]], id="beyond ASCII"),
]


@pytest.mark.parametrize("contents", KEYED)
def test_a_selected_key_is_a_column_of_its_last_values(contents: list[list[tuple[str, str]]]) -> None:
    logs = tuple(Log(time=5, contents=tuple(pairs)) for pairs in contents)
    # Before and after them is something else, so that no offset is 0.
    other = LogGroup(logs=(Log(time=5, contents=(("x", "y"), ("a", "z"))),))
    keys = ("a", "bc", "", "я", "none")
    selection = Selection(view=("__index__",), keys=keys)
    for groups in ([LogGroup(logs=logs)], [other, LogGroup(logs=logs), other]):
        rows = decode([Body(1, body(groups))], shard=0, selection=selection).rows
        rows.validate(full=True)
        assert rows.schema.names == ["__index__", *keys]
        wanted = []
        for index, log in ((n, log) for group in groups for n, log in enumerate(group.logs)):
            last = dict(log.contents)
            wanted.append({"__index__": index} | {key: last.get(key) for key in keys})
        assert rows.to_pylist() == wanted


def test_a_selected_column_is_that_of_all_columns() -> None:
    groups = real_groups()[:3]
    everything = decode([Body(9, body(groups))], shard=4).rows
    for name in SCHEMA.names:
        only = decode([Body(9, body(groups))], shard=4, selection=Selection(view=(name,))).rows
        assert only.schema.names == [name]
        assert only.column(name).equals(everything.column(name))


def test_a_key_that_is_selected_twice_is_two_columns() -> None:
    one = body([LogGroup(logs=(Log(time=5, contents=(("a", "1"),)),))])
    rows = decode([Body(1, one)], shard=0, selection=Selection(view=(), keys=("a", "a"))).rows
    assert [column.to_pylist() for column in rows.columns] == [["1"], ["1"]]
