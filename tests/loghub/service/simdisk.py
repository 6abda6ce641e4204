"""A simulated disk that can lose power: of the changes that were not synced, any part survives.

It implements `loghub.service.ports.Disk` for tests of recovery, and is driven by a seed.
"""

import errno
import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Content:
    """One file's bytes: what is durable, and the changes since, oldest first."""

    durable: bytearray = field(default_factory=bytearray)
    live: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)

    def change_size(self, size: int) -> None:
        del self.live[size:]
        self.live.extend(bytes(size - len(self.live)))

    def sync(self) -> None:
        self.durable[:] = self.live
        self.pending.clear()

    def lose_power(self, dice: random.Random) -> None:
        """Each change since the sync is there, in part, or not; order means nothing."""
        for offset, data in self.pending:
            kept = dice.choice((0, len(data), dice.randrange(len(data) + 1)))
            if offset + kept <= len(self.durable):
                self.durable[offset : offset + kept] = data[:kept]
        self.live[:] = self.durable
        self.pending.clear()


class SimFile:
    def __init__(self, disk: "SimDisk", content: Content) -> None:
        self._disk = disk
        self._content = content

    def size(self) -> int:
        return len(self._content.live)

    def read_at(self, length: int, *, offset: int) -> bytes:
        return bytes(self._content.live[offset : offset + length])

    def write_at(self, data: bytes, *, offset: int) -> None:
        self._disk.fail_if_set("write")
        if offset + len(data) > len(self._content.live):
            self._content.change_size(offset + len(data))
        self._content.live[offset : offset + len(data)] = data
        self._content.pending.append((offset, data))

    def allocate(self, size: int) -> None:
        self._disk.fail_if_set("allocate")
        self._content.change_size(max(size, len(self._content.live)))

    def truncate(self, size: int) -> None:
        self._content.change_size(size)

    def sync_data(self) -> None:
        self._disk.fail_if_set("sync")
        self._disk.syncs += 1
        self._content.sync()

    def close(self) -> None:
        """Nothing is kept open."""


class SimDisk:
    """``fail`` names calls that fail from now on; ``syncs`` counts those of files."""

    def __init__(self) -> None:
        self.fail: set[str] = set()
        self.syncs = 0
        self.live: dict[str, Content] = {}
        self._durable: dict[str, Content] = {}

    def fail_if_set(self, what: str) -> None:
        if what in self.fail:
            raise OSError(errno.ENOSPC if what == "allocate" else errno.EIO, f"{what} fails")

    def create(self, path: str) -> SimFile:
        if path in self.live:
            raise FileExistsError(path)
        self.live[path] = Content()
        return SimFile(self, self.live[path])

    def open(self, path: str) -> SimFile:
        return SimFile(self, self.live[path])

    def rename(self, old: str, new: str) -> None:
        self.live[new] = self.live.pop(old)

    def remove(self, path: str) -> None:
        self.fail_if_set("remove")
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, "nothing to remove", path)
        del self.live[path]

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.live if name.startswith(path + "/")]:
            del self.live[name]

    def list_names(self, path: str) -> list[str]:
        return sorted(
            {name[len(path) + 1 :].split("/")[0] for name in self.live if name.startswith(path + "/")}
        )

    def make_dirs(self, path: str) -> None:
        """Folders are implied by their files."""

    def sync_dir(self, path: str) -> None:
        self.fail_if_set("sync_dir")
        inside = {n: c for n, c in self.live.items() if n.rpartition("/")[0] == path}
        outside = {n: c for n, c in self._durable.items() if n.rpartition("/")[0] != path}
        self._durable = outside | inside

    def lose_power(self, dice: random.Random) -> None:
        """Names that no folder's sync covered are there or not; contents likewise."""
        names = dict(self._durable)
        for name in sorted(self.live.keys() | self._durable.keys()):
            if self.live.get(name) is not self._durable.get(name) and dice.random() < 0.5:
                if name in self.live:
                    names[name] = self.live[name]
                else:
                    names.pop(name, None)
        for content in {id(content): content for content in names.values()}.values():
            content.lose_power(dice)
        self.live, self._durable = dict(names), dict(names)
