"""How much of a data folder was read, as one line on a terminal."""

from loghub.progress_line import ProgressLine


class Progress:
    """What fsck reads: the ends of each shard's segments as at a start, then perhaps all records."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._read, self._total = 0, 0  # bytes

    def shard(self, number: int, count: int) -> None:
        """The shard with this number, from 1, is read as at a start."""
        self._line.show(lambda _: f"shard {number} of {count}")

    def expect(self, size: int) -> None:
        """So many bytes of records will be read."""
        self._read, self._total = 0, size

    def read(self, size: int) -> None:
        """So many bytes of records were read."""
        self._read += size
        self._line.show(lambda _: f"{self._read / 1e6:,.1f} of {self._total / 1e6:,.1f} MB of records")

    def clear(self) -> None:
        self._line.clear()
