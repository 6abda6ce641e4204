"""``loghub schema``: keys, shares, the rule for each type, and a SELECT that `loghub query` runs."""

import json

import pyarrow as pa
import pytest

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_cli.key_types import MAX_KEYS, KeyInfo, keys_of, select_of, type_of
from tests.loghub.client.contract import LOW
from tests.loghub_cli.command import STORE, Cli


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["0", "-12", "9223372036854775807"], "BIGINT"),
        (["9223372036854775808"], "DECIMAL(19, 0)"),
        (["1" * 38], "DECIMAL(38, 0)"),
        (["1" * 39], "STRING"),
        (["007", "1"], "STRING"),  # an id: 7 is another text
        (["+1"], "STRING"),
        (["-0"], "DOUBLE"),
        (["1", "2.50"], "DOUBLE"),
        (["123456789012.345"], "DOUBLE"),
        (["1234567890123.456"], "DECIMAL(16, 3)"),
        (["0.000001234567890123456"], "DECIMAL(22, 21)"),
        (["1e300", "-2E-3"], "DOUBLE"),
        (["1e999"], "STRING"),
        (["1e-999"], "STRING"),
        (["0e-999"], "DOUBLE"),
        (["12345678901234567e3"], "STRING"),
        (["NaN", "1.0"], "STRING"),
        (["0x1f"], "STRING"),
        (["٣"], "STRING"),
        ([" 1"], "STRING"),
        (["true", "FALSE"], "BOOLEAN"),
        (["0", "true"], "STRING"),
        (["2026-01-31", "1999-12-31"], "DATE"),
        (["2026-02-30"], "STRING"),
        (["2026-01-31T08:15:30Z", "2026-01-31 08:15:30.123456"], "TIMESTAMP"),
        (["2026-01-31T08:15:30.123456789Z"], "STRING"),  # nanoseconds
        (["2026-01-31T08:15:30+08:00"], "STRING"),  # DuckDB leaves the offset out
        (["2026-01-31T25:15:30Z"], "STRING"),
        (["2026-01-31", "2026-01-31T08:15:30Z"], "STRING"),
        (["", "-", "7"], "BIGINT"),
        (["", "-"], "STRING"),
        (["ann", "7"], "STRING"),
        (["7\n"], "STRING"),
    ],
)
def test_a_type_loses_nothing_of_any_value(texts: list[str], expected: str) -> None:
    assert type_of(pa.chunked_array([texts[:1], texts[1:]], pa.string())) == expected


def test_keys_are_counted_in_slices_and_ordered_by_their_share() -> None:
    kind = pa.map_(pa.string(), pa.string())
    rows = pa.array([[("gone", "x")], [("a", "1"), ("b", "2")], [("b", "3.5")], [], [("gone", "x")]], kind)
    keys, number = keys_of(pa.chunked_array([rows.slice(1, 1), rows.slice(2, 2), rows.slice(0, 0)]))
    assert keys == [
        KeyInfo(key="b", logs=2, type="DOUBLE", example="2"),
        KeyInfo(key="a", logs=1, type="BIGINT", example="1"),
    ]
    assert number == 2
    assert keys_of(pa.chunked_array([], kind)) == ([], 0)
    many = pa.array([[(f"key-{number}", "x")] for number in range(MAX_KEYS + 3)], kind)
    shown, number = keys_of(pa.chunked_array([many]))
    assert (len(shown), number) == (MAX_KEYS, MAX_KEYS + 3)


def test_names_of_columns_are_plain_and_no_two_are_the_same() -> None:
    keys = [
        KeyInfo(key=key, logs=1, type="STRING", example="")
        for key in ("user-id", "User ID", "2xx", "用户", "", "__time__", "x" * 100, "bad\x1b", "a'b")
    ]
    sql, left_out = select_of(keys)
    assert left_out == ("bad\x1b",)
    assert sql.splitlines()[4:-1] == [
        "  contents['user-id'] AS user_id,",
        "  contents['User ID'] AS user_id_2,",
        "  contents['2xx'] AS key_2xx,",
        "  contents['用户'] AS key,",
        "  contents[''] AS key_2,",
        "  contents['__time__'] AS time,",
        f"  contents['{'x' * 100}'] AS {'x' * 60},",
        "  contents[concat('a', chr(39), 'b')] AS a_b",
    ]


def test_the_select_of_a_logstore_runs_in_query(cli: Cli) -> None:
    for number in range(3):
        contents = (("user", "ann"), ("ms", str(number)), ("q'", "\x1b[2J"), ("k\x07", "x" * 5000))[
            : 4 - number
        ]
        group = LogGroup(logs=(Log(time=1_700_000_000, contents=contents),))
        cli.client.put_logs(STORE, encode(group), hash_key=LOW)
    result = cli("schema", STORE)
    table, _, statement = result.out.partition("\n\n")
    assert [line.split()[:3] for line in table.splitlines()] == [
        ["KEY", "SHARE", "TYPE"],
        ["ms", "100.0%", "BIGINT"],
        ["user", "100.0%", "STRING"],
        ["q'", "66.7%", "STRING"],
        ["k\\x07", "33.3%", "STRING"],
    ]
    assert "\x1b" not in result.out
    assert "x" * 41 not in result.out
    assert "leaves out 'k\\x07'" in result.err
    assert "3 logs of access" in result.err
    found = cli("query", STORE, statement, "-o", "json")
    assert [json.loads(line)["ms"] for line in found.out.splitlines()] == [0, 1, 2]
    assert cli.json("schema", STORE)["select"] == statement.rstrip("\n")


def test_a_logstore_without_logs_has_no_keys(cli: Cli) -> None:
    result = cli("schema", STORE, "--from", "begin")
    assert (result.status, result.out.splitlines()[0]) == (0, "(none)")
    assert cli("query", STORE, result.out.partition("\n\n")[2]).status == 0
