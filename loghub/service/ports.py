"""Protocols for the external dependencies of the service: files and randomness.

They allow a seeded simulator to run the same service code with its own disk and random numbers. Time is
`loghub.clock`, and the network is ASGI. The production implementations are in `loghub.service.disk`.
"""

from dataclasses import dataclass
from typing import Protocol

from loghub.clock import Clock


class File(Protocol):
    """One open file; offsets and sizes in bytes. All calls may block and raise OSError."""

    def size(self) -> int: ...

    def read_at(self, length: int, *, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end of the file."""

    def write_at(self, data: bytes, *, offset: int) -> None:
        """Write all of ``data``, or raise."""

    def allocate(self, size: int) -> None:
        """Make the file ``size`` bytes long, with allocated blocks that read as zeros."""

    def truncate(self, size: int) -> None: ...

    def sync_data(self) -> None:
        """Return once the written data, and the file size needed to read it, are on stable storage.

        Raises WriteFailed, which is final (`loghub.service.faults`).
        """

    def drop_cached(self) -> None:
        """Let later reads come from stable storage: call it after `sync_data`. What a failed sync has left in
        the cache, readable and never written, is gone then."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of folders and files; paths are absolute strings."""

    def create(self, path: str) -> File:
        """A new empty file, open for reading and writing. Raises FileExistsError if it exists."""

    def open(self, path: str) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder, durably before the call returns. One that does not exist is fine."""

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, sorted; [] if the folder does not exist."""

    def list_tree(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The paths of all files below a folder, and of the folder and those below it, innermost first.

        Nothing if the folder does not exist.
        """

    def free_bytes(self, path: str) -> int:
        """The space that is left on the file system of this folder."""

    def make_dirs(self, path: str) -> None:
        """Create the folder and its missing parents, durably before the call returns."""

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this folder durable. Raises WriteFailed, which is final."""


class Dice(Protocol):
    """Randomness: request ids, the shard of a balanced write, a generated secret, the salts of segments."""

    def hex(self, length: int) -> str:
        """``length`` random hex digits, upper case."""

    def below(self, bound: int) -> int:
        """A random integer in [0, bound)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The machine that a service runs on: its clock, its disk and its randomness."""

    clock: Clock
    disk: Disk
    dice: Dice
