"""``loghub tail``: the logs of all shards of a logstore as they arrive."""

import click

from loghub.client.port import Position
from loghub.clock import SystemClock
from loghub_operator.cli.commands import Command
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.interruption import interruption
from loghub_operator.cli.logstore_tail import LogstoreTail
from loghub_operator.cli.options import DURATION, LOGSTORE, POSITION, SHARD, connected
from loghub_operator.cli.patience import Patience
from loghub_operator.cli.printed_logs import LogPrinter, prints_logs

_REFRESH_S = 1.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.option("--shard", "shards", type=SHARD, multiple=True,
              help="Only this shard, without those that a split makes of it; repeatable.")  # fmt: skip
@click.option("--from", "begin", type=POSITION, default="end", show_default=True,
              help="begin, end, or the time from which logs were received.")  # fmt: skip
@click.option("--retry-for", type=DURATION, default=60.0, show_default=True,
              help="How long to try again while the service is away or busy.")  # fmt: skip
@prints_logs
@connected
def tail(
    logstore: str,
    shards: tuple[int, ...],
    begin: Position,
    retry_for: float,
    place: Connection,
    printer: LogPrinter,
) -> None:
    """Print the logs that arrive at any shard of a logstore, until Ctrl-C. Shards that a split or merge makes
    are followed."""
    clock = SystemClock()
    with place.open() as client, interruption() as stop:
        patience = Patience(clock, seconds=retry_for, stop=stop)
        reading = LogstoreTail(client, logstore, begin, shards)
        reading.begin()
        refreshed_s, pause_s = clock.monotonic_s(), _SHORTEST_PAUSE_S
        while not (stop.is_set() or printer.is_done):
            before = printer.printed
            # What was printed is not read again: a shard's cursor moves once its answer is printed.
            patience.call(lambda: printer.show(reading.read()), repeats_unsure=True)
            pause_s = _SHORTEST_PAUSE_S if printer.printed > before else min(2 * pause_s, _LONGEST_PAUSE_S)
            if clock.monotonic_s() - refreshed_s >= _REFRESH_S:
                patience.call(reading.refresh, repeats_unsure=True)
                refreshed_s = clock.monotonic_s()
            if printer.printed == before:
                stop.wait(pause_s)
