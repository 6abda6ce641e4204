"""Tables, times and positions."""

import time

import pytest
from rich.cells import cell_len

from loghub.times import BadTime, parse_duration_s, parse_time
from loghub_cli.options import parse_position
from loghub_cli.output import Format, Record, render, table, utc

ROWS: list[Record] = [
    {"shard": 0, "beginKey": "00", "consumer": None, "inOrder": True, "shards": [1, 2]},
    {"shard": 10, "beginKey": "8000", "consumer": "a\x1bb", "inOrder": False, "shards": []},
]


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    assert table([{key: one for key, one in row.items() if key != "shards"} for row in ROWS]) == (
        "SHARD  BEGIN KEY  CONSUMER  IN ORDER\n"
        "    0  00         -         yes\n"
        "   10  8000       a\\x1bb    no"
    )
    assert render([], Format.TABLE) == "(none)"
    assert render([], Format.JSON) == "[]"


@pytest.mark.parametrize("text", ["plain", "中文项目说明", "ｶﾅ kana", "e\u0301tude", "👩‍🔬", "a\x1bb"])
def test_columns_are_aligned_on_a_terminal_whatever_the_script(text: str) -> None:
    rows: list[Record] = [{"text": text, "next": "|"}, {"text": "x" * 20, "next": "|"}]
    lines = table(rows).splitlines()[1:]
    assert {cell_len(line.partition("|")[0]) for line in lines} == {22}


def test_a_record_has_a_line_for_each_value_and_a_table_for_each_list() -> None:
    record: Record = {"name": "x", "age": 1.25, "consumers": [], "shards": [{"shard": 1}], "held": [1, 2]}
    assert render(record, Format.TABLE) == (
        "name:  x\nage:   1.2\nheld:  1,2\n\nconsumers:\n  (none)\n\nshards:\n  SHARD\n      1"
    )


def test_json_and_yaml_keep_the_values() -> None:
    assert render({"a": None, "ü": True, "l": (1,)}, Format.JSON) == (
        '{\n  "a": null,\n  "ü": true,\n  "l": [\n    1\n  ]\n}'
    )
    assert render({"a": None, "ü": "x: y"}, Format.YAML) == "a: null\nü: 'x: y'"


def test_a_time_is_utc_and_an_impossible_one_is_unknown() -> None:
    assert utc(0) == "1970-01-01T00:00:00Z"
    assert utc(None) is None
    assert utc(1e18) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000", 1_700_000_000),
        ("2026-01-31T08:00:00Z", 1_769_846_400),
        ("2026-01-31T09:00:00+01:00", 1_769_846_400),
        ("10m", 1_000_000 - 600),
        ("2d", 1_000_000 - 172_800),
    ],
)
def test_times_are_parsed(text: str, expected: int) -> None:
    assert parse_time(text, now_unix_s=1_000_000) == expected
    assert parse_position(text, now_unix_s=1_000_000) == expected


def test_a_time_without_a_zone_is_local() -> None:
    local = time.mktime((2026, 1, 31, 8, 0, 0, 0, 0, -1))
    assert parse_time("2026-01-31T08:00:00", now_unix_s=0) == int(local)


@pytest.mark.parametrize(
    "text", ["", "soon", "1.5", "-1", "10x", "99999999999", "999999d", "2026-13-01", "١", "2026", "20260131"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadTime):
        parse_time(text, now_unix_s=1_000_000)


def test_positions_and_durations() -> None:
    assert [parse_position(text, now_unix_s=0) for text in ("begin", "end")] == ["begin", "end"]
    assert [parse_duration_s(text) for text in ("5", "0.5", "5s", "2m")] == [5.0, 0.5, 5.0, 120.0]
    for text in ("x", "-1", "inf", "nan", "1e99"):
        with pytest.raises(BadTime):
            parse_duration_s(text)
