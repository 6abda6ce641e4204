"""``loghub pull`` and ``tail``: the logs of one shard between two positions, and of all shards as they
arrive.

The cursors of consecutive log groups are consecutive integers, so the groups of an answer are numbered back
from the cursor after it (docs/sls-protocol.md 2.1). ``tail`` reads all shards as one stream, across splits
and merges: the shards that a split or merge makes are read from their first log, once their parents are read
to the end, so of any hash key the logs come in the order in which they were written.

A table has one line for each log, JSON one object on one line, YAML one document. ``--field`` prints the bare
value of one field instead, so that lines which were put in come out unchanged.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import click

from loghub.backoff import backoff_s
from loghub.client.port import LogHub, Position, Pulled, ShardInfo
from loghub.clock import SystemClock
from loghub.domain.shards import HashRange, Shard, infer_parents
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.errors import Code, LogHubError
from loghub.wire.loggroup import Log, LogGroup
from loghub_cli.commands import Command
from loghub_cli.connection import ServiceConnection
from loghub_cli.log_lines import PrintedPlace, as_json, as_line, as_members, value_of
from loghub_cli.options import CURSOR, DURATION, LOGSTORE, POSITION, SHARD, connected, format_option
from loghub_cli.output import Format, ShownProgress, as_yaml
from loghub_cli.patience import Patience, interruption

PULL_COUNT = 200  # log groups of one answer, for which an interrupt waits


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A log group and its place."""

    shard: int
    cursor: str
    group: LogGroup
    size: int  # bytes


def groups_of(pulled: Pulled, shard: int) -> Iterator[StoredGroup]:
    """The log groups of an answer."""
    first = wire_cursor.decode(pulled.next_cursor) - pulled.count
    for number, body in enumerate(loggroup.split(pulled.body)):
        yield StoredGroup(
            shard=shard,
            cursor=wire_cursor.encode(first + number),
            group=loggroup.decode(body),
            size=len(body),
        )


def read_range(client: LogHub, logstore: str, shard: int, *, cursor: str, end: str) -> Iterator[StoredGroup]:
    """What one shard has from ``cursor`` up to, not including, ``end``."""
    last = wire_cursor.decode(end)
    while wire_cursor.decode(cursor) < last:
        pulled = client.pull_logs(logstore, shard, cursor=cursor, count=PULL_COUNT, end_cursor=end)
        yield from groups_of(pulled, shard)
        if pulled.next_cursor == cursor:
            return  # no service has more than its end
        cursor = pulled.next_cursor


@dataclass(slots=True, kw_only=True)
class _ShardReading:
    """A shard that is read, or will be once its parents are over. ``cursor`` None: at its position."""

    position: Position
    parents: frozenset[int]
    read_only: bool
    cursor: str | None = None


@dataclass(slots=True)
class LogstoreTail:
    """Call `refresh` now and then, and `read` all the time. ``only``: these shards and no others."""

    client: LogHub
    logstore: str
    position: Position
    only: Collection[int] = ()
    _readings: dict[int, _ShardReading] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)

    def refresh(self) -> None:
        """Looks for new shards, and for shards that became read-only. Raises LogHubError ShardNotExist if one
        of ``only`` is missing at the beginning."""
        infos = self.client.list_shards(self.logstore)
        position = "begin" if self._known else self.position
        if missing := sorted(set(self.only) - {info.shard for info in infos} - self._known):
            raise LogHubError.of(Code.SHARD_NOT_EXIST, f"logstore {self.logstore} has no shard {missing[0]}")
        parents = infer_parents(as_shard(info) for info in infos)
        for info in infos:
            reading = self._readings.get(info.shard)
            if reading is not None:
                reading.read_only = info.read_only
            elif info.shard not in self._known and (not self.only or info.shard in self.only):
                self._readings[info.shard] = _ShardReading(
                    position=position, parents=frozenset(parents[info.shard]), read_only=info.read_only
                )
            self._known.add(info.shard)
        for gone in self._readings.keys() - {info.shard for info in infos}:
            del self._readings[gone]

    def read(self) -> Iterator[StoredGroup]:
        """What has arrived, at most one answer of each shard."""
        for shard, reading in sorted(self._readings.items()):
            if reading.parents & self._readings.keys():
                continue
            if reading.cursor is None:
                reading.cursor = self.client.get_cursor(self.logstore, shard, reading.position)
            # A shard that was read-only before this answer gets no more logs after its end.
            pulled = self.client.pull_logs(self.logstore, shard, cursor=reading.cursor, count=PULL_COUNT)
            yield from groups_of(pulled, shard)
            reading.cursor = pulled.next_cursor
            if reading.read_only and pulled.end_of_shard:
                del self._readings[shard]

    def begin(self) -> None:
        """Fixes the position of every shard now, so that nothing is missed that arrives from now on."""
        self.refresh()
        for shard, reading in self._readings.items():
            reading.cursor = self.client.get_cursor(self.logstore, shard, reading.position)


def as_shard(info: ShardInfo) -> Shard:
    keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
    return Shard(shard=info.shard, keys=keys, read_only=info.read_only)


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class LogPrinter:
    """Prints logs until ``limit`` are printed."""

    form: Format
    field: str | None
    limit: int | None
    printed: int = 0

    @property
    def is_done(self) -> bool:
        return self.limit is not None and self.printed >= self.limit

    def show(self, groups: Iterable[StoredGroup]) -> None:
        """Prints the logs of these groups and hands them to the reader at once."""
        for stored in groups:
            for index, log in enumerate(stored.group.logs):
                if self.is_done:
                    break
                place = PrintedPlace(shard=stored.shard, cursor=stored.cursor, index=index)
                self._print(log, stored.group, place)
        sys.stdout.flush()

    def _print(self, log: Log, group: LogGroup, place: PrintedPlace) -> None:
        if self.field is None:
            sys.stdout.write(self._text(log, group, place) + "\n")
        else:
            value = value_of(log, self.field)
            if value is None:
                return
            # As bytes: a value need not be text, nor text that the terminal's encoding has.
            sys.stdout.flush()
            sys.stdout.buffer.write(value + b"\n")
        self.printed += 1

    def _text(self, log: Log, group: LogGroup, place: PrintedPlace) -> str:
        if self.form is Format.TABLE:
            return as_line(log, place)
        members = as_members(log, group, place)
        if self.form is Format.JSON:
            return as_json(members)
        once = dict(members)
        parts = [once] if len(once) == len(members) else [{name: value} for name, value in members]
        return f"---\n{''.join(map(as_yaml, parts))}".rstrip("\n")


def prints_logs(function: F) -> F:
    """Adds the options; the function gets ``printer``."""

    @wraps(function)
    def run(*args: Any, output: str, field: str | None, limit: int | None, **kwargs: Any) -> Any:
        return function(*args, printer=LogPrinter(Format(output), field, limit), **kwargs)

    decorated: Any = run
    for option in (
        click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="End after N logs."),
        click.option("--field", help="Print the value of this field only, of the logs that have it."),
        format_option,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_REFRESH_S = 1.0  # between two looks for shards that came with a split; a new shard waits at most so long
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.2, 1.0  # between reads that find nothing


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
    place: ServiceConnection,
    printer: LogPrinter,
) -> None:
    """Print the logs that arrive at any shard of a logstore, until Ctrl-C. Shards that a split or merge makes
    are followed."""
    clock = SystemClock()
    with place.open() as client, interruption() as stop:
        patience = Patience(clock, seconds=retry_for, stop=stop)
        reading = LogstoreTail(client, logstore, begin, shards)
        reading.begin()
        refreshed_s, idle = clock.monotonic_s(), 0
        while not (stop.is_set() or printer.is_done):
            before = printer.printed
            # What was printed is not read again: a shard's cursor moves once its answer is printed.
            patience.call(lambda: printer.show(reading.read()), repeats_unsure=True)
            idle = 0 if printer.printed > before else idle + 1
            if clock.monotonic_s() - refreshed_s >= _REFRESH_S:
                patience.call(reading.refresh, repeats_unsure=True)
                refreshed_s = clock.monotonic_s()
            if idle:
                stop.wait(backoff_s(idle, first_s=_FIRST_PAUSE_S, max_s=_MAX_PAUSE_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
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
def pull(logstore: str, shard: int, place: ServiceConnection, printer: LogPrinter, **values: Any) -> None:
    """Print the logs of a shard. The times are those at which the service received them."""
    progress, logs, size = ShownProgress(SystemClock()), 0, 0
    with place.open() as client:
        cursor, end = ReadRange(**values).cursors(client, logstore, shard)
        try:
            for stored in read_range(client, logstore, shard, cursor=cursor, end=end):
                printer.show([stored])
                logs, size = logs + len(stored.group.logs), size + stored.size
                progress.show(logs, size)
                if printer.is_done:
                    break
        finally:
            progress.clear()
