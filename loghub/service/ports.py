"""The outside world as the service sees it: files and randomness behind small protocols.

What for: a seeded simulator can drive the same service code with its own disk and dice;
time is `loghub.clock`, the network is ASGI. What it must not know: which log, which API.
Read next: `disk` (the real ones), `storage.segment` (the main user).
"""

from typing import Protocol


class File(Protocol):
    """One open file; offsets and sizes in bytes. All calls may block and raise OSError."""

    def size(self) -> int: ...

    def read_at(self, length: int, *, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end of the file."""

    def write_at(self, data: bytes, *, offset: int) -> None:
        """Write all of it, or raise."""

    def allocate(self, size: int) -> None:
        """Make the file ``plan_replicas`` bytes long, with real blocks, reading as zeros."""

    def truncate(self, size: int) -> None: ...

    def sync_data(self) -> None:
        """Return once what was written, and the size needed to read it, is on stable storage."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of folders and files; paths are absolute strings."""

    def create(self, path: str) -> File:
        """A new empty file, open for reading and writing; FileExistsError if it is there."""

    def open(self, path: str) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, sorted; [] if there is no such folder."""

    def make_dirs(self, path: str) -> None:
        """Make the folder and its missing parents, durable before the call returns."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this folder durable."""


class Dice(Protocol):
    """Randomness: request ids, the shard of a balanced write, a fresh secret."""

    def hex(self, length: int) -> str:
        """``length`` random hex digits, upper case."""

    def below(self, bound: int) -> int:
        """A random number of [0, bound)."""
