"""The bytes of a file that grows, across rotation.

A rotation either renames the file and creates a new one of its name, or copies it and makes it empty.

Renamed: the writer goes on in the old file until it reopens the name, which may be seconds later. So the old
file is read together with the new one until it has not grown for `QUIET_S`, each with lines of its own.

Emptied or overwritten: the bytes before the position are compared with those that were read there. If they
differ, the file is another text, and is read from its start. That is also how a file is recognized that grew
past its old length at once. What was written between the copy and the truncation is in neither file, and a
text that has the same bytes before the position cannot be distinguished from the old one: that is so for
every reader, and why renaming is the better way. Two rotations between two looks (0.2 s) skip the file
between.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from loghub.clock import Clock

CHUNK_BYTES = 256 << 10
QUIET_S = 5.0  # after a rename; what fluent-bit waits, and longer than a daemon takes to reopen its log
MOST_RENAMED = 16  # files open at once; each may be as long as its writer goes on
_KNOWN_BYTES = 256  # of what was read, to recognize the text by
_LAST_LINE_BYTES = 1 << 20
_numbers = count()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one text. ``data`` None: the text has ended, and a last line without a line end is
    complete."""

    text: int
    data: bytes | None


NOTHING = Chunk(-1, b"")


@dataclass(slots=True)
class _Text:
    """An open file and how far it is read."""

    descriptor: int
    position: int = 0
    known: bytes = b""  # the last bytes before the position
    is_below_zeros: bool = False
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
            known = len(self.known)
            # In one call, so that nothing is read of a text that is being replaced.
            found = os.pread(self.descriptor, known + CHUNK_BYTES, self.position - known)
            if found[:known] != self.known:
                yield Chunk(self.number, None)
                self.number = next(_numbers)
                # A writer that goes on at its old position leaves zeros before it.
                self.is_below_zeros = True
                if len(found) < known or found[:known].strip(b"\0"):
                    self.position, self.known = 0, b""
                else:
                    self.known = found[:known]
                continue
            data = found[known:]
            if not data:
                return
            self.position += len(data)
            self.known = found[-_KNOWN_BYTES:]
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
        self._renamed: list[tuple[_Text, float]] = []  # with the time at which it last had something new

    def chunks(self) -> Iterator[Chunk]:
        """What is in the file and what is appended to it; `NOTHING` for each look that found nothing. Raises
        OSError if there is no such file at the beginning; later it is waited for."""
        current = self._opened()
        try:
            if self._from_end:
                current.begin_at_last_line()
            while True:
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

    def _opened(self) -> _Text:
        return _Text(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))

    def _following(self, current: _Text) -> _Text | None:
        """What has the name now, if that is another file: a new one, or one that was renamed back."""
        try:
            status = self._path.stat()
            if (status.st_dev, status.st_ino) == current.identity:
                return None
            for one in self._renamed:
                if one[0].identity == (status.st_dev, status.st_ino):
                    self._renamed.remove(one)
                    return one[0]
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
            if now - quiet_since_s >= QUIET_S or index < len(self._renamed) - MOST_RENAMED:
                yield Chunk(text.number, None)
                del self._renamed[index]
                text.close()
