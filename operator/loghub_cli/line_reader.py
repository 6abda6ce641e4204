"""From the bytes of an input to its logs: decoded, divided into lines, and what is no log skipped, kept or
refused.

An input may have several texts at once, such as a file that was renamed and the file that took its name. Each
has an encoding and lines of its own. A file that grows is followed across rotations, of which there are two
kinds: the file is renamed and a new one takes its name, or it is copied and made empty.

Renamed: the writer goes on in the old file until it reopens the name, which may be seconds later. So the old
file is read together with the new one until it has not grown for `QUIET_S`.

Emptied or overwritten: the bytes before the position are compared with the bytes that were read there. If
they differ, the file is another text, and is read from its start. That is also how a file is recognized that
grew past its old length at once. What was written between the copy and the truncation is in neither file, and
a text that has the same bytes before the position cannot be distinguished from the old one: that is so for
every reader, and why renaming is the better way. Two rotations between two looks (0.2 s) skip the file
between.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path

import click

from loghub.clock import Clock
from loghub.wire.loggroup import Log
from loghub_cli.log_lines import (
    MAX_JSON_LINE_BYTES,
    MAX_VALUE_BYTES,
    BadLine,
    Line,
    LineBuffer,
    LineNumbers,
    LinesOrigin,
    json_log,
    plain_log,
    raw_logs,
    reject_too_long,
)
from loghub_cli.up.text_input import TextDecoder, UnreadableText

CHUNK_BYTES = 256 << 10  # of one read: a few chunks fill a batch, and an interrupt waits for one
QUIET_S = 5.0  # after a rename; what fluent-bit waits, and longer than a daemon takes to reopen its log
MAX_RENAMED = 16  # files open at once; each may be as long as its writer goes on
_KNOWN_BYTES = 256  # of what was read, to recognize the text by: lines of a log begin with a time
_LAST_LINE_BYTES = 1 << 20  # the maximum of a value in SLS: what is longer cannot be sent as one log anyway
_numbers = count()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one text. ``data`` None: the text has ended, and a last line without a line end is
    complete."""

    text: int
    data: bytes | None


NOTHING = Chunk(-1, b"")


@dataclass(slots=True)
class _FollowedText:
    """An open file and how far it is read."""

    descriptor: int
    position: int = 0
    known: bytes = b""  # Invariant: the min(position, _KNOWN_BYTES) bytes that end at the position
    is_below_zeros: bool = False  # the text began again, and only zeros were read of it
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def identity(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def close(self) -> None:
        os.close(self.descriptor)

    def begin_at_last_line(self) -> None:
        """At the end, or where its unfinished last line begins."""
        end = os.fstat(self.descriptor).st_size
        start = max(0, end - _LAST_LINE_BYTES)
        last = os.pread(self.descriptor, end - start, start)
        newline = last.rfind(b"\n")
        self.position = start + newline + 1 if newline >= 0 or start == 0 else end
        self.known = os.pread(
            self.descriptor, min(self.position, _KNOWN_BYTES), max(0, self.position - _KNOWN_BYTES)
        )
        os.lseek(self.descriptor, self.position, os.SEEK_SET)
        # for who looks at this process

    def rest(self) -> Iterator[Chunk]:
        """What is there and is not read yet."""
        while True:
            overlap = len(self.known)
            # In one call, so that nothing is read of a text that is being replaced.
            read = os.pread(self.descriptor, overlap + CHUNK_BYTES, self.position - overlap)
            if read[:overlap] != self.known:
                yield Chunk(self.number, None)
                self.number = next(_numbers)
                # A writer that goes on at its old position leaves zeros before it.
                self.is_below_zeros = True
                if len(read) < overlap or read[:overlap].strip(b"\0"):
                    self.position, self.known = 0, b""
                else:
                    self.known = read[:overlap]
                continue
            # The text is the one that was read before, and goes on here.
            data = read[overlap:]
            if not data:
                return
            self.position += len(data)
            self.known = read[-_KNOWN_BYTES:]
            if self.is_below_zeros:
                data = data.lstrip(b"\0")
                self.is_below_zeros = not data
            yield Chunk(self.number, data)


class FollowedFile:
    """``wait()`` is called whenever there is nothing to read, and returns False to end."""

    def __init__(self, path: Path, *, from_end: bool, clock: Clock, wait: Callable[[], bool]) -> None:
        self._path = path
        self._clock = clock
        self._wait = wait
        self._from_end = from_end
        # with the time at which it last had something new
        self._renamed: list[tuple[_FollowedText, float]] = []

    def chunks(self) -> Iterator[Chunk]:
        """What is in the file and what is appended to it; `NOTHING` for each look that found nothing. Raises
        OSError if there is no such file at the beginning; later it is waited for."""
        current = self._opened()
        try:
            if self._from_end:
                current.begin_at_last_line()
            while True:
                # The name is looked up after the rest was read, so that nothing of the old file is missed.
                yield from self._rest_of_renamed()
                yield from current.rest()
                following = self._following(current)
                if following is not None:
                    self._renamed.append((current, self._clock.monotonic_s()))
                    current = following
                    continue
                yield NOTHING
                if not self._wait():
                    return
        finally:
            for text in (current, *(text for text, _ in self._renamed)):
                text.close()

    def _opened(self) -> _FollowedText:
        return _FollowedText(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))

    def _following(self, current: _FollowedText) -> _FollowedText | None:
        """What has the name now, if that is another file: a new one, or one that was renamed back."""
        try:
            status = self._path.stat()
            if (status.st_dev, status.st_ino) == current.identity:
                return None
            for entry in self._renamed:
                if entry[0].identity == (status.st_dev, status.st_ino):
                    self._renamed.remove(entry)
                    return entry[0]
            return self._opened()
        except FileNotFoundError:
            return None  # renamed, and the new one is not there yet

    def _rest_of_renamed(self) -> Iterator[Chunk]:
        now = self._clock.monotonic_s()
        for index, (text, since_s) in reversed(list(enumerate(self._renamed))):
            before = text.position
            yield from text.rest()
            quiet_since_s = since_s if text.position == before else now
            self._renamed[index] = (text, quiet_since_s)
            if now - quiet_since_s >= QUIET_S or index < len(self._renamed) - MAX_RENAMED:
                yield Chunk(text.number, None)
                del self._renamed[index]
                text.close()


_NAMED_LINES = 10  # bad lines that are reported one by one: a file in a wrong format has only bad ones


class OnBadLine(StrEnum):
    STOP = "stop"
    SKIP = "skip"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a line becomes. ``field`` is the text of a plain line, ``origin`` what a log does not say."""

    is_json: bool
    field: str
    origin: LinesOrigin
    encoding: str
    on_bad_line: OnBadLine
    follow: bool  # a text that cannot be read does not end it


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLog:
    """A log, what it shares with others of its group, and the number of its line."""

    log: Log
    origin: LinesOrigin
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
        self._max_bytes = MAX_JSON_LINE_BYTES if reading.is_json else MAX_VALUE_BYTES
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
        buffer = LineBuffer(self._max_bytes, self._numbers)
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
                reject_too_long(line, self._max_bytes)
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
