"""``loghub put``: lines of a file or of standard input become logs.

A batch is written as one log group, all or nothing. Logs of different origins are never in one batch, and
batches keep the order of the logs. A log group whose outcome is not known, because the connection broke, is
not written a second time unless ``--repeat-unsure`` says so: then every log arrives, some perhaps twice.
"""

import os
import select
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from loghub.client.port import LogHub
from loghub.clock import Clock, SystemClock
from loghub.wire.errors import LogHubException
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_cli.commands import Command
from loghub_cli.connection import ServiceConnection
from loghub_cli.line_reader import (
    CHUNK_BYTES,
    NOTHING,
    Chunk,
    FollowedFile,
    LineLog,
    LineReader,
    OnBadLine,
    Reading,
)
from loghub_cli.log_lines import PLAIN_FIELD, BadLine, LinesOrigin
from loghub_cli.options import DURATION, FOLDER, HASH_KEY, LOGSTORE, Show, connected, formatted
from loghub_cli.output import Failed, InvalidInput, ShownProgress
from loghub_cli.patience import Patience, interruption
from loghub_cli.up.text_input import AUTO, HEAD_BYTES, UnreadableText, is_text_encoding, kind_of

_OVERHEAD_BYTES = 16  # of a log and of a field, about: tags, lengths and a time


@dataclass(slots=True, kw_only=True)
class LineBatch:
    """Logs of one origin. ``first_line`` and ``last_line`` count the lines that were read, from 1."""

    origin: LinesOrigin
    began_s: float
    first_line: int  # Invariant: first_line <= last_line, once there is a log; lines without a log count too
    last_line: int = 0
    size: int = 0  # bytes, about
    logs: list[Log] = field(default_factory=list)

    def encoded(self) -> bytes:
        origin = self.origin
        return encode(
            LogGroup(logs=tuple(self.logs), topic=origin.topic, source=origin.source, tags=origin.tags)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBatchLimits:
    """When a batch is complete: its logs, its bytes, or the seconds since its first log."""

    logs: int
    size: int
    linger_s: float


class LineBatches:
    """Collects logs; each method yields the batches that are now complete."""

    def __init__(self, limits: LineBatchLimits) -> None:
        self._limits = limits
        self._open: LineBatch | None = None

    def add(self, log: Log, origin: LinesOrigin, *, line: int, now: float) -> Iterator[LineBatch]:
        size = _OVERHEAD_BYTES + sum(
            _size(key) + _size(value) + _OVERHEAD_BYTES for key, value in log.contents
        )
        # Before the log is added: a batch must not exceed its limit, nor have logs of two origins.
        if self._open is not None and self._must_end(self._open, origin, size):
            yield from self.end()
        if self._open is None:
            self._open = LineBatch(origin=origin, began_s=now, first_line=line)
        batch = self._open
        batch.logs.append(log)
        batch.size += size
        batch.last_line = line
        if len(batch.logs) >= self._limits.logs or batch.size >= self._limits.size:
            yield from self.end()

    def tick(self, *, now: float) -> Iterator[LineBatch]:
        if self._open is not None and now - self._open.began_s >= self._limits.linger_s:
            yield from self.end()

    def end(self) -> Iterator[LineBatch]:
        batch, self._open = self._open, None
        if batch is not None:
            yield batch

    def _must_end(self, batch: LineBatch, origin: LinesOrigin, size: int) -> bool:
        return batch.origin != origin or batch.size + size > self._limits.size


def _size(text: str | bytes) -> int:
    """In bytes, as a log group has it: a character may be four."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())


class SendingPace:
    """At most so many logs a second. What was not used is not saved up: after a pause there is no burst."""

    def __init__(self, logs_per_s: float) -> None:
        self._logs_per_s = logs_per_s
        self._free_at: float | None = None

    def wait_s(self, *, now: float) -> float:
        """How long the next batch must wait."""
        return 0.0 if self._free_at is None else max(0.0, self._free_at - now)

    def sent(self, logs: int, *, now: float) -> None:
        # From now at the earliest: time in which nothing was sent is lost.
        begin = now if self._free_at is None else max(now, self._free_at)
        self._free_at = begin + logs / self._logs_per_s


_LOOK_S = 0.2  # between two looks at a file that has not grown; a look is one `stat`
_STEPS_PER_S = 4  # batches a second at least, with a rate: a low rate sends evenly and not in bursts
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOptions:
    """The options of the command; a rate of None is unlimited."""

    file: Path | None  # None: standard input
    follow: bool
    from_end: bool
    lines: str  # plain or json
    field: str
    topic: str
    source: str
    tags: tuple[tuple[str, str], ...]
    key: str | None
    rate: float | None
    batch_logs: int
    batch_mib: float
    linger: float
    encoding: str
    on_bad_line: OnBadLine | None  # None: not given
    retry_for: float
    repeat_unsure: bool


def _tag(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = [value.partition("=") for value in values]
    if wrong := [
        value for value, (key, equals, _) in zip(values, pairs, strict=True) if not (key and equals)
    ]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return tuple((key, value) for key, _, value in pairs)


def _encoding(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not (value == AUTO or is_text_encoding(value)):
        raise click.BadParameter(f"{value!r} is no known encoding of text, such as utf-8 or gb18030")
    return value


def _on_bad_line(_ctx: click.Context, _param: click.Parameter, value: str | None) -> OnBadLine | None:
    return None if value is None else OnBadLine(value)


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("file", type=FOLDER, required=False)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what is appended to FILE, across its rotation."
)
@click.option("--from-end", is_flag=True, help="With --follow: begin with what is appended from now on.")
@click.option("--lines", type=click.Choice(["plain", "json"]), default="plain", show_default=True,
              help="A plain line is one field; a JSON line is an object of fields.")  # fmt: skip
@click.option(
    "--encoding",
    default=AUTO,
    show_default=True,
    callback=_encoding,
    metavar="NAME",
    help="Encoding of the text, such as gb18030; auto: UTF-8, UTF-16 with its byte order mark, gzip.",
)
@click.option(
    "--on-bad-line",
    type=click.Choice([one.value for one in OnBadLine]),
    callback=_on_bad_line,
    help="A line that is no log, or too long: stop there, skip it, or keep it as it is in the field of plain "
    "lines; default: stop, with --follow skip.",
)
@click.option("--field", default=PLAIN_FIELD, show_default=True, help="Name of the field of a plain line.")
@click.option("--topic", default="", help="Topic of the log groups.")
@click.option("--source", default="", help="Source of the log groups.")
@click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, callback=_tag, help="Tag; repeatable.")
@click.option("--key", type=HASH_KEY, help="Hash key, which chooses the shard; default: the shards in turn.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="At most N logs a second.")
@click.option("--batch-logs", type=click.IntRange(1, 4096), default=1000, show_default=True,
              help="Most logs of a log group.")  # fmt: skip
@click.option("--batch-mib", type=click.FloatRange(0, 8, min_open=True), default=1.0, show_default=True,
              help="Most MiB of a log group.")  # fmt: skip
@click.option("--linger", type=DURATION, default=1.0, show_default=True,
              help="Longest time for which a log waits for others of its group.")  # fmt: skip
@click.option("--retry-for", type=DURATION, default=60.0, show_default=True,
              help="How long to try again while the service is away or busy.")  # fmt: skip
@click.option("--repeat-unsure", is_flag=True,
              help="Write a log group again if it is not known whether it was written.")  # fmt: skip
@connected
@formatted
def put(logstore: str, file: Path | None, place: ServiceConnection, show: Show, **values: Any) -> int:
    """Write lines to a logstore: of FILE, or of standard input without FILE or with "-"."""
    options = PutOptions(file=None if file in (None, Path("-")) else file, **values)
    if options.follow and options.file is None:
        raise click.UsageError("--follow needs a FILE; standard input is read until it ends anyway")
    if options.from_end and not options.follow:
        raise click.UsageError("--from-end belongs to --follow")
    clock = SystemClock()
    with place.open() as client, interruption() as stop:
        writer = Writer(client, logstore, options, clock=clock, stop=stop)
        try:
            writer.write_all(_chunks(options, clock, stop))
        except OSError as error:
            raise Failed(f"loghub: {error}; {writer.written()}") from None
        finally:
            writer.progress.clear()
    bad = {"badLines": writer.bad_lines} if writer.bad_lines else {}
    show({"logs": writer.logs, "logGroups": writer.groups, "bytes": writer.size, **bad})
    if stop.is_set() and not options.follow:
        click.echo(f"loghub: interrupted before the end of the input; {writer.written()}", err=True)
        return 1
    return 0


class Writer:
    """Writes the lines of one input; the counts are of what the service has acknowledged."""

    def __init__(
        self, client: LogHub, logstore: str, options: PutOptions, *, clock: Clock, stop: threading.Event
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._options = options
        self._clock = clock
        self._stop = stop
        self._lines = LineReader(_reading(options), clock)
        self._pace = SendingPace(options.rate) if options.rate else None
        self._batches = LineBatches(_limits(options))
        self._patience = Patience(clock, seconds=options.retry_for, stop=stop)
        self._total = _size_of(options)
        self.progress = ShownProgress(clock)
        self.logs = self.groups = self.size = 0

    def written(self) -> str:
        return f"{self.logs} logs in {self.groups} log groups are written"

    @property
    def bad_lines(self) -> int:
        return self._lines.bad_lines

    def write_all(self, chunks: Iterator[Chunk]) -> None:
        """Raises `InvalidInput` for a line that is no log, or for bytes that are no text, `Failed` where the
        service refuses, or does not answer for too long."""
        try:
            for chunk in chunks:
                self._add_all(self._lines.logs_of(chunk))
                self._send(self._batches.tick(now=self._clock.monotonic_s()))
            self._add_all(self._lines.end())
        except (BadLine, UnreadableText) as error:
            self._send(self._batches.end())
            raise InvalidInput(f"loghub: {error}; {self.written()}") from None
        self._send(self._batches.end())

    def _add_all(self, logs: Iterator[LineLog]) -> None:
        """Until the user interrupts: with a rate, what was read already might take long."""
        for entry in logs:
            if self._stop.is_set():
                return
            self._send(
                self._batches.add(entry.log, entry.origin, line=entry.line, now=self._clock.monotonic_s())
            )

    def _send(self, batches: Iterator[LineBatch]) -> None:
        for batch in batches:
            self._wait_for_turn()
            group = batch.encoded()
            try:
                self._patience.call(
                    lambda group=group: self._client.put_logs(  # type: ignore[misc]
                        self._logstore, group, hash_key=self._options.key
                    ),
                    repeats_unsure=self._options.repeat_unsure,
                )
            except LogHubException as error:
                raise Failed(f"loghub: {self._stopped_at(batch, error)}") from None
            self.logs += len(batch.logs)
            self.groups += 1
            self.size += batch.size
            self.progress.show(self.logs, self.size, total=self._total)
            if self._pace is not None:
                self._pace.sent(len(batch.logs), now=self._clock.monotonic_s())

    def _wait_for_turn(self) -> None:
        """With a rate; an interruption does not let the rest pass faster than that, it ends the reading."""
        if self._pace is not None:
            self._stop.wait(self._pace.wait_s(now=self._clock.monotonic_s()))

    def _stopped_at(self, batch: LineBatch, error: LogHubException) -> str:
        is_unsure = not getattr(error, "definite", True)
        outcome = "may be written or not" if is_unsure else "and those after them are not written"
        return f"{error}; {self.written()}; lines {batch.first_line} to {batch.last_line} {outcome}"


def _reading(options: PutOptions) -> Reading:
    return Reading(
        is_json=options.lines == "json",
        field=options.field,
        origin=LinesOrigin(topic=options.topic, source=options.source, tags=options.tags),
        encoding=options.encoding,
        on_bad_line=options.on_bad_line or (OnBadLine.SKIP if options.follow else OnBadLine.STOP),
        follow=options.follow,
    )


def _limits(options: PutOptions) -> LineBatchLimits:
    logs, linger_s = options.batch_logs, options.linger
    if options.rate:
        logs = max(1, min(logs, int(options.rate / _STEPS_PER_S)))
    return LineBatchLimits(logs=logs, size=int(options.batch_mib * _MIB), linger_s=linger_s)


def _size_of(options: PutOptions) -> int | None:
    if options.file is None or options.follow:
        return None
    try:
        return options.file.stat().st_size
    except OSError:
        return None


def _chunks(options: PutOptions, clock: Clock, stop: threading.Event) -> Iterator[Chunk]:
    look_s = min(_LOOK_S, options.linger)
    if options.file is None:
        return _of_descriptor(sys.stdin.fileno(), stop, look_s=look_s)
    if not options.follow:
        return _of_file(options.file, stop, look_s=look_s)
    if options.file.exists() and not options.file.is_file():
        raise InvalidInput(f"loghub: {options.file} is not a regular file; leave out --follow")
    if options.from_end:
        _reject_no_end(options.file, options.encoding)
    return FollowedFile(
        options.file, from_end=options.from_end, clock=clock, wait=lambda: not stop.wait(look_s)
    ).chunks()


def _reject_no_end(file: Path, encoding: str) -> None:
    """Where a line begins can be found from the end only if a byte 0A is a line end."""
    with file.open("rb") as opened:
        kind = kind_of(opened.read(HEAD_BYTES)) if encoding == AUTO else encoding
    if kind == "gzip" or kind.lower().replace("_", "-").startswith(("utf-16", "utf-32", "utf16", "utf32")):
        raise InvalidInput(
            f"loghub: {file} is {kind}, which is followed from its begin: leave out --from-end"
        )


def _of_file(path: Path, stop: threading.Event, *, look_s: float) -> Iterator[Chunk]:
    with path.open("rb", buffering=0) as file:
        yield from _of_descriptor(file.fileno(), stop, look_s=look_s)


def _of_descriptor(descriptor: int, stop: threading.Event, *, look_s: float) -> Iterator[Chunk]:
    """Of a pipe, a terminal or a file, with `NOTHING` whenever nothing has come for ``look_s``."""
    while not stop.is_set():
        if not select.select([descriptor], [], [], look_s)[0]:
            yield NOTHING
            continue
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield Chunk(0, data)
