"""``loghub pull``: the logs of one shard, from one position to another."""

from dataclasses import dataclass
from typing import Any

import click

from loghub.client.port import LogHub, Position
from loghub.clock import SystemClock
from loghub_operator.cli.commands import Command
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.options import CURSOR, LOGSTORE, POSITION, SHARD, connected
from loghub_operator.cli.printed_logs import LogPrinter, prints_logs
from loghub_operator.cli.progress import Progress
from loghub_operator.cli.stored_groups import read_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The two ends as the user gave them; a cursor comes before a position."""

    begin: Position
    begin_cursor: str | None
    end: Position
    end_cursor: str | None

    def cursors(self, client: LogHub, logstore: str, shard: int) -> tuple[str, str]:
        begin = self.begin_cursor or client.get_cursor(logstore, shard, self.begin)
        return begin, self.end_cursor or client.get_cursor(logstore, shard, self.end)


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@click.option("--from", "begin", type=POSITION, default="begin", show_default=True,
              help="begin, end, or the time from which logs were received: unix seconds, "
              "2026-01-31T08:00:00Z, or 10m for ten minutes ago.")  # fmt: skip
@click.option("--from-cursor", "begin_cursor", type=CURSOR, help="Cursor of the first log group.")
@click.option("--to", "end", type=POSITION, default="end", show_default=True,
              help="Position before which to end; end: what is there now.")  # fmt: skip
@click.option("--to-cursor", "end_cursor", type=CURSOR, help="Cursor before which to end.")
@prints_logs
@connected
def pull(logstore: str, shard: int, place: Connection, printer: LogPrinter, **values: Any) -> None:
    """Print the logs of a shard. The times are those at which the service received them."""
    progress, logs, size = Progress(SystemClock()), 0, 0
    with place.open() as client:
        cursor, end = Range(**values).cursors(client, logstore, shard)
        try:
            for stored in read_range(client, logstore, shard, cursor=cursor, end=end):
                printer.show([stored])
                logs, size = logs + len(stored.group.logs), size + stored.size
                progress.show(logs, size)
                if printer.is_done:
                    break
        finally:
            progress.clear()
