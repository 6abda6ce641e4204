"""The bytes of a file that grows, across rotation.

A rotation either renames the file and creates a new one of its name, or copies it and makes it empty. In the
first case everything in the renamed file is read to its end before the new one is begun; a writer that still
has the old file open for a moment loses nothing, as long as it stops before the new file's second look. In
the second case, what was written between the copy and the truncation is in neither file: that is so for every
reader, and why renaming is the better way. Two rotations between two looks (0.2 s) skip the file between.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 256 << 10
FILE_END = None  # what follows is another file: a last line without a line end is complete
Bytes = bytes | None


class FollowedFile:
    """``wait()`` is called whenever there is nothing to read, and returns False to end."""

    def __init__(self, path: Path, *, from_end: bool, wait: Callable[[], bool]) -> None:
        self._path = path
        self._wait = wait
        self._file: BinaryIO | None = None
        self._from_end = from_end

    def chunks(self) -> Iterator[Bytes]:
        """What is in the file and what is appended to it; b"" for each look that found nothing. Raises
        OSError if there is no such file at the beginning; later it is waited for."""
        self._file = self._path.open("rb")
        try:
            if self._from_end:
                self._file.seek(0, os.SEEK_END)
            while True:
                yield from self._rest()
                if self._is_replaced():
                    # It may have grown between the last read and the rename.
                    yield from self._rest()
                    yield FILE_END
                    self._file.close()
                    self._file = self._path.open("rb")
                elif self._is_truncated():
                    yield FILE_END
                    self._file.seek(0)
                else:
                    yield b""
                    if not self._wait():
                        return
        finally:
            self._file.close()

    def _rest(self) -> Iterator[bytes]:
        assert self._file is not None
        while data := self._file.read(CHUNK_BYTES):
            yield data

    def _is_replaced(self) -> bool:
        assert self._file is not None
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # renamed, and the new one is not there yet
        mine = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def _is_truncated(self) -> bool:
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size < self._file.tell()
