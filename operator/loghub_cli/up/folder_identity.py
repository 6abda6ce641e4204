"""Whether a folder is the folder that a program used before, or a copy of it.

A copy has the same key, the same address and the same names of consumers, so a program that goes by its
content acts on what belongs to the original. A copy has an inode of its own, a folder that was only moved or
renamed keeps its inode, and on another machine the number means nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file

_FILE = "folder.json"
_MACHINE_ID = Path("/etc/machine-id")


class FolderIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Where a folder is. ``path`` is for people."""

    machine: str
    inode: int
    path: str

    def is_same(self, other: "FolderIdentity") -> bool:
        return (self.machine, self.inode) == (other.machine, other.inode)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The identity that is noted in a folder."""

    folder: Path

    @property
    def note(self) -> Path:
        return self.folder / _FILE

    def claim(self) -> None:
        """Notes that the folder is the original from now on. Raises OSError."""
        replace_file(self.note, msgspec.json.encode(self._now()))

    def copied_from(self) -> str | None:
        """The path of the original, if this is a copy. A folder of an older release has no note and is taken
        for an original."""
        try:
            noted = msgspec.json.decode(self.note.read_bytes(), type=FolderIdentity)
            return None if noted.is_same(self._now()) else noted.path
        except (OSError, msgspec.DecodeError):
            return None

    def _now(self) -> FolderIdentity:
        try:
            machine = _MACHINE_ID.read_text().strip()
        except OSError:
            machine = ""
        return FolderIdentity(
            machine=machine, inode=self.folder.stat().st_ino, path=str(self.folder.absolute())
        )
