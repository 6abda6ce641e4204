"""``loghub schema``: the keys of a logstore's logs, their types, and a SELECT of them for a pipeline."""

import click

from loghub_cli.commands import Command
from loghub_cli.connection import ServiceConnection
from loghub_cli.key_types import MAX_KEYS, keys_of, select_of
from loghub_cli.options import LOGSTORE, connected, format_option
from loghub_cli.output import Format, render, table
from loghub_cli.recent_logs import bounded, read_recent
from loghub_consumer.reading.received_logs import ReadBounds


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@bounded(limit_mib=32, begin="1h")
@format_option
@connected
def schema(logstore: str, bounds: ReadBounds, output: str, place: ServiceConnection) -> None:
    """Show the keys of the logs that a logstore received lately, the share of logs that have each, and the
    type of its values; and a SELECT of them for spec.pipeline.sql, which `loghub query` runs, too."""
    received = read_recent(place, logstore, bounds)
    infos, number = keys_of(received.rows.column("contents"))
    logs = received.rows.num_rows
    keys = [
        {"key": one.key, "share": f"{one.logs / logs:.1%}", "type": one.type, "example": one.example}
        for one in infos
    ]
    statement, left_out = select_of(infos)
    form = Format(output)
    if form is Format.TABLE:
        click.echo(f"{table(keys)}\n\n{statement}")
    else:
        click.echo(render({"logs": logs, "keys": keys, "select": statement}, form))
    if number > MAX_KEYS:
        click.echo(f"loghub: {number - MAX_KEYS:,} rarer keys are not shown", err=True)
    if left_out:
        names = ", ".join(map(ascii, left_out))
        click.echo(f"loghub: the SELECT leaves out {names}, which a terminal does not show", err=True)
