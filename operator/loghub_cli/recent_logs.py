"""What `query` and `schema` read: the logs that a logstore received between two times, within limits.

They are read and decoded as workers do it, without a consumer group, and what was read is said on standard
error: an answer from half of the logs must not look like one from all of them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from loghub.client.port import Position
from loghub.clock import SystemClock
from loghub_cli.connection import ServiceConnection
from loghub_cli.options import DURATION, POSITION
from loghub_cli.output import ShownProgress
from loghub_consumer.reading.received_logs import ReadBounds, ReceivedLogs, read_received

F = TypeVar("F", bound=Callable[..., Any])
MIB = 1 << 20
# In memory logs take about twice as many bytes: with more than this, the memory of most machines.
MAX_LIMIT_MIB = 16_384


def bounded(limit_mib: int, begin: str) -> Callable[[F], F]:
    """Adds the options of what is read, with these defaults; the function gets ``bounds``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def run(
            *args: Any, begin: Position, end: Position, limit_mib: int, timeout: float, **kwargs: Any
        ) -> Any:
            bounds = ReadBounds(begin=begin, end=end, max_bytes=limit_mib * MIB, max_s=timeout)
            if not _is_ordered(begin, end):
                raise click.UsageError("--from is not before --to: no log was received between them")
            return function(*args, bounds=bounds, **kwargs)

        decorated: Any = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    options = (
        click.option("--from", "begin", type=POSITION, default=begin, show_default=True,
                     help="begin, or the time from which logs were received: unix seconds, "
                     "2026-01-31T08:00:00Z, or 10m for ten minutes ago."),
        click.option("--to", "end", type=POSITION, default="end", show_default=True,
                     help="Time of receipt before which to end; end: what is there now."),
        click.option("--limit-mib", type=click.IntRange(1, MAX_LIMIT_MIB), default=limit_mib,
                     show_default=True, help="End the reading once so much was read, decompressed."),
        click.option("--timeout", type=DURATION, default=60.0, show_default=True,
                     help="End the reading after so long; a query, too."),
    )  # fmt: skip
    return decorate


def _is_ordered(begin: Position, end: Position) -> bool:
    if begin == "end" or end == "begin":
        return False
    return not (isinstance(begin, int) and isinstance(end, int)) or begin < end


def read_recent(place: ServiceConnection, logstore: str, bounds: ReadBounds) -> ReceivedLogs:
    """Reads, with progress, and says what was read."""
    clock = SystemClock()
    progress = ShownProgress(clock)
    with place.open() as client:
        try:
            received = read_received(client, logstore, bounds=bounds, clock=clock, read=progress.show)
        finally:
            progress.clear()
    click.echo(
        f"loghub: {received.summary(logstore, more=f'--limit-mib is {bounds.max_bytes // MIB}')}", err=True
    )
    return received
