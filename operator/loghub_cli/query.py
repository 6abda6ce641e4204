"""``loghub query``: SQL over the logs that a logstore received lately, with the view `logs` of pipelines.

The logs are read once, within limits, into memory; DuckDB evaluates the SQL there, in a second, where a
worker would first start a JVM. Its SQL is not Spark's: docs/command-line.md has what differs.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import click
import pyarrow as pa

from loghub_cli.commands import Command
from loghub_cli.connection import ServiceConnection
from loghub_cli.duckdb_session import VIEW, DuckDbSession, QueryResult
from loghub_cli.options import LOGSTORE, connected
from loghub_cli.query_rows import TABLE_ROWS, RowFormat, writer_of
from loghub_cli.recent_logs import MIB, bounded, read_recent
from loghub_consumer.reading.received_logs import ReadBounds

PROMPT, CONTINUED = f"{VIEW}> ", "   -> "
END_WORDS = frozenset({"exit", "quit", "\\q"})


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("sql", required=False)
@bounded(limit_mib=256, begin="10m")
@click.option("-i", "--interactive", is_flag=True,
              help="Read statements, each up to a semicolon, from a prompt or standard input.")  # fmt: skip
@click.option("-n", "--rows", type=click.IntRange(1), metavar="N",
              help=f"Print at most N rows; default: {TABLE_ROWS} of a table, otherwise all.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice([form.value for form in RowFormat]), default="table",
              show_default=True, help="Output format; json is one object a line.")  # fmt: skip
@connected
def query(  # noqa: PLR0913 - each is an option
    logstore: str,
    sql: str | None,
    bounds: ReadBounds,
    interactive: bool,
    rows: int | None,
    output: str,
    place: ServiceConnection,
) -> None:
    """Run SQL over the logs that a logstore received lately. They are the view `logs`, with the columns that
    workers' pipelines have; a field of a log is contents['NAME']. DuckDB evaluates the SQL."""
    form = RowFormat(output)
    if (sql is None) is not interactive:
        raise click.UsageError('give one statement, such as "SELECT * FROM logs", or -i')
    if form is RowFormat.PARQUET and interactive:
        raise click.UsageError("-o parquet is for one statement; leave out -i")
    logs = read_recent(place, logstore, bounds).rows
    limit_mib = bounds.max_bytes // MIB
    with DuckDbSession(logs, limit_mib=limit_mib, timeout_s=bounds.max_s) as session:
        if sql is not None:
            _print(session.run(sql), form, rows)
        elif sys.stdin.isatty():
            _prompt(session, form, rows)
        else:
            for statement in _statements(sys.stdin):
                _print(session.run(statement), form, rows)


def _print(result: QueryResult, form: RowFormat, limit: int | None) -> None:
    left = limit or (TABLE_ROWS if form is RowFormat.TABLE else sys.maxsize)
    writer = writer_of(form, result.schema)
    more = False
    for batch in result.batches:
        writer.write(batch.slice(0, left))
        more = batch.num_rows > left
        left -= min(left, batch.num_rows)
        if more or (left == 0 and (more := _has_rows(result.batches))):
            break
    writer.end()
    if more and limit is None:
        click.echo(f"loghub: there are more than {TABLE_ROWS} rows; -n prints more", err=True)


def _has_rows(batches: Iterator[pa.RecordBatch]) -> bool:
    return any(batch.num_rows for batch in batches)


def _prompt(session: DuckDbSession, form: RowFormat, limit: int | None) -> None:
    """Until Ctrl-D or ``exit``. Ctrl-C ends what is typed or what runs."""
    with suppress(ImportError):  # a Python may be built without it
        importlib.import_module("readline")  # lets `input` edit the line, and keep the earlier ones
    click.echo("End a statement with a semicolon; Ctrl-D ends.", err=True)
    statement = ""
    while True:
        try:
            line = input(CONTINUED if statement else PROMPT)
            if not statement and _ends(line):
                return
            statement = _longer(statement, line)
            if _is_whole(statement):
                whole, statement = statement, ""
                _print(session.run(whole), form, limit)
        except click.ClickException as error:
            click.echo(error.format_message(), err=True)
        except KeyboardInterrupt:
            statement = ""
            click.echo(err=True)
        except EOFError:
            click.echo(err=True)
            return


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """The statements of a text."""
    statement = ""
    for line in lines:
        if not statement and _ends(line):
            return
        statement = _longer(statement, line)
        if _is_whole(statement):
            yield statement
            statement = ""
    if statement:
        yield statement


def _ends(line: str) -> bool:
    return line.strip().lower().rstrip(";") in END_WORDS


def _longer(statement: str, line: str) -> str:
    return f"{statement}{line.rstrip()}\n" if line.strip() or statement else ""


def _is_whole(statement: str) -> bool:
    """A semicolon at the end of a line ends a statement; one within a line may be in a text."""
    return statement.endswith(";\n")
