"""``loghub query``: the view of workers, what a query may not do, the formats, and each mistake."""

import io
import json
import os
import signal
import subprocess
from decimal import Decimal
from typing import Any

import click
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_cli import duckdb_session
from loghub_cli.duckdb_session import DuckDbSession
from loghub_cli.output import Failed
from loghub_cli.query import CONTINUED, PROMPT
from loghub_consumer.reading.decoding import SCHEMA, table
from tests.loghub.client.contract import HIGH, LOW
from tests.loghub_cli.command import COMMAND, STORE, Cli
from tests.support import ROOT, START_GUARD_S, wait_until

ALL = ("query", STORE, "--from", "begin")


def put(cli: Cli, *contents: tuple[str, str | bytes], key: str = LOW) -> None:
    log = Log(time=1_700_000_000, contents=contents, time_ns=1_500)
    group = LogGroup(logs=(log,), topic="t", source="s", tags=(("host", "web-1"),))
    cli.client.put_logs(STORE, encode(group), hash_key=key)


def rows(cli: Cli, sql: str, *arguments: object) -> list[dict[str, Any]]:
    result = cli(*ALL, sql, "-o", "json", *arguments)
    assert result.status == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_the_view_has_the_columns_of_workers_and_all_shards(either: Cli) -> None:
    put(either, ("user", "ann"), ("ms", "12"), ("ms", "13"))
    either.client.split_shard(STORE, 0)
    put(either, ("user", "bob"), ("raw", b"\xff"))
    put(either, ("user", "eve"), key=HIGH)
    first, *_ = rows(either, "SELECT * FROM logs ORDER BY contents['user']")
    assert list(first) == SCHEMA.names
    assert first == {
        "__time__": "2023-11-14T22:13:20.000001Z",
        "__time_ns__": 1500,
        "__topic__": "t",
        "__source__": "s",
        "__tags__": {"host": "web-1"},
        "contents": {"user": "ann", "ms": "13"},  # the last value of a key
        "__shard__": 0,
        "__cursor__": first["__cursor__"],
        "__index__": 0,
    }
    found = rows(
        either, "SELECT contents['user'] AS u, __shard__ AS s, contents['raw'] AS r FROM logs ORDER BY 1"
    )
    assert found == [
        {"u": "ann", "s": 0, "r": None},
        {"u": "bob", "s": 2, "r": "\ufffd"},
        {"u": "eve", "s": 1, "r": None},
    ]
    said = either(*ALL, "SELECT 1").err
    assert "loghub: 3 logs of access, received from the first log to 20" in said
    assert "4 shards, 0.0 MiB read; 1 texts were not UTF-8" in said


def test_a_table_is_aligned_and_bounded(cli: Cli) -> None:
    put(cli, ("名", "张三"), ("huge", "x" * 50_000), ("bad", "\x1b[2J"))
    out = cli(
        *ALL, "SELECT contents['名'] AS 姓名, 7 AS n, NULL AS nothing, '' AS e, 0.25 AS f FROM logs"
    ).out
    head, line = out.splitlines()
    assert head.split() == ["姓名", "n", "nothing", "e", "f"]
    assert line.split() == ["张三", "7", "-", "0.25"]
    assert cell_len(head) == cell_len(line)
    out = cli(*ALL, "SELECT contents['huge'], contents['bad'] FROM logs").out
    assert "x (+49,900)" in out
    assert len(out) < 400
    assert "\\x1b[2J" in out
    many = cli(*ALL, "SELECT * FROM range(101)")
    assert len(many.out.splitlines()) == 1 + 100
    assert "more than 100 rows; -n prints more" in many.err
    assert "more than" not in cli(*ALL, "SELECT * FROM range(100)").err
    assert len(cli(*ALL, "SELECT * FROM range(3000)", "-n", 2500).out.splitlines()) == 2501
    empty = cli(*ALL, "SELECT contents FROM logs WHERE false")
    assert (empty.status, empty.out) == (0, "contents\n")


ODD = (
    "SELECT 1.50::DECIMAL(4, 2) AS d, 'a,\"b' AS t, '' AS e, NULL AS n, [1, 2] AS l, true AS b,"
    " DATE '2026-01-31' AS day, TIMESTAMP '2026-01-31 08:00:00' AS ts,"
    " TIMESTAMPTZ '2026-01-31 08:00:00.5+00' AS tz, encode('é') AS bytes, INTERVAL 90 SECOND AS i,"
    " MAP {1: 'x'} AS m, 'infinity'::TIMESTAMP AS far, MAP {[1]: 2} AS o, 1 AS a, 2 AS a,"
    " 'nan'::DOUBLE AS nan"
)


def test_each_type_has_a_form_in_each_format(cli: Cli) -> None:
    (row,) = rows(cli, ODD)
    assert isinstance(row.pop("far"), str)
    assert row == {
        "d": 1.5, "t": 'a,"b', "e": "", "n": None, "l": [1, 2], "b": True, "day": "2026-01-31",
        "ts": "2026-01-31T08:00:00", "tz": "2026-01-31T08:00:00.500000Z", "bytes": "é", "i": "P0M0DT90S",
        "m": {"1": "x"}, "o": [[[1], 2]], "a": 1, "a_2": 2, "nan": None,
    }  # fmt: skip
    head, line = cli(*ALL, ODD, "-o", "csv").out.splitlines()
    assert head == "d,t,e,n,l,b,day,ts,tz,bytes,i,m,far,o,a,a_2,nan"
    assert line.startswith(
        '1.50,"a,""b","",,"[1,2]",true,2026-01-31,2026-01-31T08:00:00,2026-01-31T08:00:00.500000Z,é,'
    )
    assert "{1=x}" in cli(*ALL, ODD).out


def test_parquet_goes_to_a_pipe_with_the_types_of_the_result(cli: Cli) -> None:
    put(cli, ("user", "ann"))
    sql = "SELECT contents, 1.5::DECIMAL(3, 1) AS d, __time__ FROM logs"
    done = subprocess.run(
        [*COMMAND, *ALL, sql, "-o", "parquet"],
        cwd=ROOT,
        env={**os.environ, **cli.environment},
        capture_output=True,
        check=True,
        timeout=START_GUARD_S,
    )
    found = pq.read_table(io.BytesIO(done.stdout))
    assert found.column("d").to_pylist() == [Decimal("1.5")]
    assert found.column("contents").to_pylist() == [[("user", "ann")]]
    assert found.schema.field("__time__").type == pa.timestamp("us", tz="UTC")
    refused = cli(*ALL, "SELECT INTERVAL 1 DAY AS i", "-o", "parquet")
    assert refused.status == 1
    assert "CAST the column to VARCHAR" in refused.err


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('http://127.0.0.1:1/x')",
        "COPY logs TO '/tmp/loghub-query-must-not-write'",
        "ATTACH '/tmp/loghub-query-must-not-write'",
        "EXPORT DATABASE '/tmp/loghub-query-must-not-write'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM bounds",  # a variable of the command
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
    ],
)
def test_a_query_reaches_neither_files_nor_the_network_nor_its_configuration(
    session: DuckDbSession, sql: str
) -> None:
    bounds = pa.table({"a": [1]})
    with pytest.raises(click.ClickException, match=r"neither files nor|locked|does not exist"):
        list(session.run(sql).batches)
    assert bounds.num_rows == 1


@pytest.fixture
def session() -> Any:
    with DuckDbSession(table([]), limit_mib=1, timeout_s=120.0) as made:
        yield made


@pytest.mark.parametrize("is_translated", [False, True])
def test_an_error_has_its_kind_whichever_module_translates_it(is_translated: bool) -> None:
    """`pulsar` is loaded by some tests, and makes a RuntimeError of each."""
    error: Exception = duckdb.OutOfMemoryException("too much")
    if is_translated:
        error = RuntimeError('{"exception_type":"Out of Memory","exception_message":"too much"}')
    assert duckdb_session._described(error) == ("OutOfMemory", "too much")


def test_memory_and_time_of_a_query_are_limited(
    session: DuckDbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_session, "MIN_MEMORY_MIB", 4)
    with (
        DuckDbSession(table([]), limit_mib=1, timeout_s=120.0) as small,
        pytest.raises(Failed, match="needs more than 4 MiB"),
    ):
        list(small.run("SELECT i || repeat('x', 1000) FROM range(100000) t(i) ORDER BY 1").batches)
    with (
        DuckDbSession(table([]), limit_mib=1, timeout_s=0.05) as hasty,
        pytest.raises(Failed, match=r"took more than 0\.05 s: see --timeout"),
    ):
        list(hasty.run("SELECT count(*) FROM range(10000000000) a, range(1000) b").batches)
    assert len(list(session.run("SELECT 1").batches)) == 1


@pytest.mark.parametrize(
    ("sql", "status", "message"),
    [
        ("SELECT nope FROM logs", 2, "a field of a log is contents['NAME']"),
        ("SELEC 1", 2, "syntax error"),
        ("SELECT 1; SELECT 2", 2, "give one statement, not 2"),
        ("", 2, "give one statement, not 0"),
        ("SELECT CAST(contents['a'] AS INT) FROM logs", 1, "Could not convert string '\\x1b[2J'"),
        ("SELECT * FROM read_text('/etc/hostname')", 2, "neither files nor the network"),
    ],
)
def test_a_mistake_in_sql_is_named(cli: Cli, sql: str, status: int, message: str) -> None:
    put(cli, ("a", "\x1b[2J"))
    result = cli(*ALL, sql)
    assert (result.status, result.out) == (status, "")
    assert message in result.err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((STORE,), 2, "or -i"),
        ((STORE, "SELECT 1", "-i"), 2, "or -i"),
        ((STORE, "-i", "-o", "parquet"), 2, "leave out -i"),
        ((STORE, "SELECT 1", "--from", "1h", "--to", "2h"), 2, "--from is not before --to"),
        ((STORE, "SELECT 1", "--from", "end"), 2, "--from is not before --to"),
        (("acces", "SELECT 1"), 1, "did you mean access?"),
    ],
)
def test_a_mistake_in_the_command_is_named(
    cli: Cli, arguments: tuple[str, ...], status: int, message: str
) -> None:
    result = cli("query", *arguments)
    assert result.status == status
    assert message in result.err


def test_statements_of_standard_input_are_run_one_by_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CREATE TABLE t AS\n  SELECT 3 AS n;\n\nSELECT n\nFROM t;\nexit\nSELECT 4;\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    result = cli(*ALL, "-i", "-o", "json")
    assert (result.status, result.out) == (0, '{"Count":1}\n{"n":3}\n')
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT nope;\nSELECT 4;"))
    assert cli(*ALL, "-i").status == 2


def test_the_prompt_goes_on_after_an_error_and_ends_with_ctrl_d(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str | type[BaseException]] = [
        "SELECT nope;",
        "SELECT",
        KeyboardInterrupt,
        "SELECT 5",
        "AS n;",
        EOFError,
    ]
    shown: list[str] = []

    def typed(prompt: str) -> str:
        shown.append(prompt)
        line = lines.pop(0)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", typed)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    result = cli(*ALL, "-i")
    assert (result.status, result.out.split()) == (0, ["n", "5"])
    assert "Referenced column" in result.err
    assert shown == [PROMPT, PROMPT, CONTINUED, PROMPT, CONTINUED, PROMPT]


@pytest.mark.long
def test_ctrl_c_ends_a_query_and_a_reader_that_is_gone_is_no_failure(cli: Cli) -> None:
    with cli.started(*ALL, "SELECT count(*) FROM range(10000000000) a, range(1000) b") as running:
        wait_until(lambda: "0 logs" in running.err, "the query")
        assert running.interrupt(signal.SIGINT) == 1
    command = f"{' '.join(COMMAND)} query {STORE} 'SELECT * FROM range(10000000)' -o csv"
    shell = f"{command} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=ROOT,
        env={**os.environ, **cli.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_GUARD_S,
    )
    assert (done.returncode, done.stdout) == (0, "range\n")
    assert "Traceback" not in done.stderr
