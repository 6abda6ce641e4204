"""From the bytes of an input to its logs: decoded, divided into lines, and what is no log skipped, kept or
refused.

An input may have several texts at once, such as a file that was renamed and the one that took its name. Each
has an encoding and lines of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import click

from loghub.clock import Clock
from loghub.wire.loggroup import Log
from loghub_operator.cli.followed_file import Chunk
from loghub_operator.cli.log_lines import (
    MAX_JSON_LINE_BYTES,
    MAX_VALUE_BYTES,
    BadLine,
    Line,
    LineBuffer,
    LineNumbers,
    Origin,
    json_log,
    plain_log,
    raw_logs,
    reject_too_long,
)
from loghub_operator.local.text_input import TextDecoder, UnreadableText

_NAMED_LINES = 10  # bad lines that are reported one by one


class OnBadLine(StrEnum):
    STOP = "stop"
    SKIP = "skip"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a line becomes; ``field`` is that of a plain line, ``origin`` what a log itself does not say."""

    is_json: bool
    field: str
    origin: Origin
    encoding: str
    on_bad_line: OnBadLine
    follow: bool  # a text that cannot be read does not end it


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLog:
    """A log, what it shares with others of its group, and the number of its line."""

    log: Log
    origin: Origin
    line: int


@dataclass(slots=True)
class _Text:
    decoder: TextDecoder
    buffer: LineBuffer
    is_unreadable: bool = field(default=False)


class LineReader:
    """Chunks in, logs out. ``bad_lines`` counts the lines that are skipped or kept raw."""

    def __init__(self, reading: Reading, clock: Clock) -> None:
        self._reading = reading
        self._clock = clock
        self._most_bytes = MAX_JSON_LINE_BYTES if reading.is_json else MAX_VALUE_BYTES
        self._numbers = LineNumbers()
        self._texts: dict[int, _Text] = {}
        self.bad_lines = 0

    def logs_of(self, chunk: Chunk) -> Iterator[LineLog]:
        """Raises `BadLine` or `UnreadableText` if that must stop it."""
        if chunk.data is None:
            yield from self._end(chunk.text)
        elif chunk.data:
            text = self._texts.get(chunk.text) or self._new(chunk.text)
            yield from self._read(text, chunk.data)

    def end(self) -> Iterator[LineLog]:
        """The last lines, if they have no line end."""
        for number in list(self._texts):
            yield from self._end(number)

    def _new(self, number: int) -> _Text:
        buffer = LineBuffer(self._most_bytes, self._numbers)
        self._texts[number] = text = _Text(TextDecoder(self._reading.encoding), buffer)
        return text

    def _end(self, number: int) -> Iterator[LineLog]:
        text = self._texts.pop(number, None)
        if text is not None:
            yield from self._read(text, None)
            yield from self._logs(text.buffer.end())

    def _read(self, text: _Text, data: bytes | None) -> Iterator[LineLog]:
        if text.is_unreadable:
            return
        try:
            for piece in text.decoder.end() if data is None else text.decoder.add(data):
                yield from self._logs(text.buffer.add(piece))
        except UnreadableText as error:
            if not self._reading.follow:
                yield from self._logs(text.buffer.end())
                raise
            # A follower outlives it: the name may get another file.
            text.is_unreadable = True
            click.echo(f"loghub: the file {error}; it is skipped", err=True)

    def _logs(self, lines: Iterator[Line]) -> Iterator[LineLog]:
        for line in lines:
            if self._reading.is_json and not line.data.strip() and not line.too_long:
                continue
            try:
                reject_too_long(line, self._most_bytes)
                yield self._log(line)
            except BadLine as error:
                if self._reading.on_bad_line is OnBadLine.STOP:
                    raise
                self._note(line, error)
                if self._reading.on_bad_line is OnBadLine.RAW:
                    yield from self._raw(line)

    def _log(self, line: Line) -> LineLog:
        now_unix_s, origin = self._clock.unix_s(), self._reading.origin
        if self._reading.is_json:
            log, origin = json_log(line, origin, now_unix_s=now_unix_s)
        else:
            log = plain_log(line, field=self._reading.field, now_unix_s=now_unix_s)
        return LineLog(log=log, origin=origin, line=line.number)

    def _raw(self, line: Line) -> Iterator[LineLog]:
        for log in raw_logs(line, field=self._reading.field, now_unix_s=self._clock.unix_s()):
            yield LineLog(log=log, origin=self._reading.origin, line=line.number)

    def _note(self, line: Line, error: BadLine) -> None:
        if not line.begins:
            return
        self.bad_lines += 1
        if self.bad_lines <= _NAMED_LINES:
            done = "skipped" if self._reading.on_bad_line is OnBadLine.SKIP else "kept as it is"
            more = "; further ones are only counted" if self.bad_lines == _NAMED_LINES else ""
            click.echo(f"loghub: {error}; it is {done}{more}", err=True)
