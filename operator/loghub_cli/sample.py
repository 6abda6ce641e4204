"""The logs on which `loghub try` tries a pipeline: the last ones of a logstore, those since a time, or the
lines of a file. Log groups are taken whole, and as many bytes as the limit has room for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loghub.client.port import LogHub, Position
from loghub.clock import Clock
from loghub.contract.dry_run import SampledGroup
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.loggroup import LogGroup
from loghub_cli.line_reader import CHUNK_BYTES, Chunk, LineLog, LineReader, OnBadLine, Reading
from loghub_cli.log_lines import PLAIN_FIELD, BadLine, LinesOrigin
from loghub_cli.output import InvalidInput
from loghub_cli.up.text_input import AUTO, UnreadableText

PULL_COUNT = 200  # log groups of one answer
_FILE_SHARD = 0  # that the logs of a file seem to be of


@dataclass(slots=True)
class SampledLogs:
    """Log groups by shard and cursor. ``is_cut``: the limit of bytes has left some out."""

    max_bytes: int
    groups: list[SampledGroup] = field(default_factory=list)
    logs: int = 0
    size: int = 0
    is_cut: bool = False

    def add(self, group: SampledGroup) -> bool:
        """Returns False if there is no room for it."""
        if self.size + len(group.log_group) > self.max_bytes:
            self.is_cut = True
            return False
        self.groups.append(group)
        self.logs += len(loggroup.decode(group.log_group).logs)
        self.size += len(group.log_group)
        return True

    def in_order(self) -> "SampledLogs":
        self.groups.sort(key=lambda group: (group.shard, group.cursor))
        return self


def last_logs(client: LogHub, logstore: str, *, number: int, max_bytes: int) -> SampledLogs:
    """The newest log groups with at least this number of logs, taken from the ends of all shards in turn:
    first of those that are written to, then of the others."""
    sampled = SampledLogs(max_bytes)
    shards = client.list_shards(logstore)
    for read_only in (False, True):
        ends = [_backwards(client, logstore, info.shard) for info in shards if info.read_only is read_only]
        while ends and sampled.logs < number and not sampled.is_cut:
            ends = [end for end in ends if _take(end, sampled, number)]
    return sampled.in_order()


def _take(steps: Iterator[list[SampledGroup]], sampled: SampledLogs, number: int) -> bool:
    """Add the next step of a shard. False if the shard has no more."""
    step = next(steps, None)
    for group in step or ():
        if sampled.logs >= number or not sampled.add(group):
            break
    return step is not None


def _backwards(client: LogHub, logstore: str, shard: int) -> Iterator[list[SampledGroup]]:
    """What a shard has, from its end, in steps that grow; the newest first."""
    begin, at = (wire_cursor.decode(client.get_cursor(logstore, shard, position)) for position in _ENDS)
    step = 1
    while at > begin:
        start = max(begin, at - step)
        yield list(reversed(list(_between(client, logstore, shard, begin=start, end=at))))
        at, step = start, min(2 * step, PULL_COUNT)


_ENDS: tuple[Position, Position] = ("begin", "end")


def logs_since(client: LogHub, logstore: str, position: Position, *, max_bytes: int) -> SampledLogs:
    """What all shards have from a position up to now. Each shard has the same share of the limit."""
    shards = client.list_shards(logstore)
    sampled = SampledLogs(0)
    for number, info in enumerate(shards, 1):
        sampled.max_bytes = max_bytes * number // len(shards)
        begin, end = (
            wire_cursor.decode(client.get_cursor(logstore, info.shard, place)) for place in (position, "end")
        )
        for group in _between(client, logstore, info.shard, begin=begin, end=end):
            if not sampled.add(group):
                break
    return sampled.in_order()


def _between(client: LogHub, logstore: str, shard: int, *, begin: int, end: int) -> Iterator[SampledGroup]:
    """The log groups of a shard between two cursors, as they were written."""
    last = wire_cursor.encode(end)
    while begin < end:
        pulled = client.pull_logs(
            logstore, shard, cursor=wire_cursor.encode(begin), count=PULL_COUNT, end_cursor=last
        )
        after = wire_cursor.decode(pulled.next_cursor)
        for number, body in enumerate(loggroup.split(pulled.body), after - pulled.count):
            yield SampledGroup(shard, number, bytes(body))
        if after <= begin:
            return  # no service has more than its end
        begin = after


def logs_of_file(path: Path, *, is_json: bool, clock: Clock, max_bytes: int) -> SampledLogs:
    """Each line as a log group of its own, whose cursor is the number of the line. Raises `InvalidInput`."""
    reading = Reading(
        is_json=is_json,
        field=PLAIN_FIELD,
        origin=LinesOrigin(),
        encoding=AUTO,
        on_bad_line=OnBadLine.STOP,
        follow=False,
    )
    sampled = SampledLogs(max_bytes)
    try:
        for line in _lines(path, LineReader(reading, clock)):
            origin = line.origin
            group = LogGroup(logs=(line.log,), topic=origin.topic, source=origin.source, tags=origin.tags)
            if not sampled.add(SampledGroup(_FILE_SHARD, line.line, loggroup.encode(group))):
                break
    except (BadLine, UnreadableText) as error:
        raise InvalidInput(f"loghub: {path}: {error}") from None
    return sampled


def _lines(path: Path, reader: LineReader) -> Iterator[LineLog]:
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield from reader.logs_of(Chunk(0, data))
    yield from reader.end()
