"""A simulated disk that can lose power: of the changes that were not synced, any part survives.

It implements `loghub.service.ports.Disk` for tests of recovery, and is driven by a seed.
"""

import errno
import random
from dataclasses import dataclass, field

SECTOR_BYTES = 512


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
        """Of the writes since the sync, all or nothing is there, or all before some byte, or any sectors: a
        disk writes these in any order, each as a whole, with what the file had there at some moment."""
        images = [bytes(self.durable)]
        for offset, data in self.pending:
            if offset + len(data) <= len(images[-1]):
                images.append(images[-1][:offset] + data + images[-1][offset + len(data) :])
        how = dice.choice(("nothing", "all", "part", "sectors"))
        if how == "all":
            self.durable[:] = images[-1]
        elif how == "part":
            begin = min((offset for offset, _ in self.pending), default=0)
            cut = dice.randint(begin, max([begin, *(offset + len(data) for offset, data in self.pending)]))
            self.durable[:cut] = images[-1][:cut]
        elif how == "sectors":
            for at in range(0, len(self.durable), SECTOR_BYTES):
                self.durable[at : at + SECTOR_BYTES] = dice.choice(images)[at : at + SECTOR_BYTES]
        self.live[:] = self.durable
        self.pending.clear()


class PowerCut(Exception):  # noqa: N818 - says what happens
    """The power goes at this call, which does nothing, and neither does any later one."""


class SimFile:
    def __init__(self, disk: "SimDisk", content: Content) -> None:
        self._disk = disk
        self._content = content

    def size(self) -> int:
        return len(self._content.live)

    def read_at(self, length: int, *, offset: int) -> bytes:
        data = bytes(self._content.live[offset : offset + length])
        self._disk.bytes_read += len(data)
        return data

    def write_at(self, data: bytes, *, offset: int) -> None:
        self._disk.step("write")
        if offset + len(data) > len(self._content.live):
            self._content.change_size(offset + len(data))
        self._content.live[offset : offset + len(data)] = data
        self._content.pending.append((offset, data))

    def allocate(self, size: int) -> None:
        self._disk.step("allocate")
        self._content.change_size(max(size, len(self._content.live)))

    def truncate(self, size: int) -> None:
        self._disk.step("truncate")
        self._content.change_size(size)

    def sync_data(self) -> None:
        self._disk.step("sync")
        self._disk.syncs += 1
        self._content.sync()

    def close(self) -> None:
        """Nothing is kept open."""


class SimDisk:
    """``fail`` names calls that fail from now on. ``syncs`` counts those of files, ``bytes_read`` all reads.

    ``steps_left`` is the number of changing calls until the power goes; None: it does not.
    """

    def __init__(self) -> None:
        self.fail: set[str] = set()
        self.syncs = 0
        self.bytes_read = 0
        self.steps_left: int | None = None
        self.live: dict[str, Content] = {}
        self._durable: dict[str, Content] = {}

    def step(self, what: str) -> None:
        if self.steps_left == 0:
            raise PowerCut(what)
        if self.steps_left is not None:
            self.steps_left -= 1
        if what in self.fail:
            raise OSError(errno.ENOSPC if what == "allocate" else errno.EIO, f"{what} fails")

    def create(self, path: str) -> SimFile:
        self.step("create")
        if path in self.live:
            raise FileExistsError(path)
        self.live[path] = Content()
        return SimFile(self, self.live[path])

    def open(self, path: str) -> SimFile:
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, "nothing to open", path)
        return SimFile(self, self.live[path])

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        self.live[new] = self.live.pop(old)

    def remove(self, path: str) -> None:
        self.step("remove")
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, "nothing to remove", path)
        del self.live[path]

    def remove_dir(self, path: str) -> None:
        self.sync_dir(path)

    def list_tree(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        files = sorted(name for name in self.live if name.startswith(path + "/"))
        folders = {name.rpartition("/")[0] for name in files} | {path}
        return tuple(files), tuple(sorted(folders, reverse=True))

    def list_names(self, path: str) -> list[str]:
        return sorted(
            {name[len(path) + 1 :].split("/")[0] for name in self.live if name.startswith(path + "/")}
        )

    def free_bytes(self, path: str) -> int:
        return 1 << 60

    def make_dirs(self, path: str) -> None:
        """Folders are implied by their files."""

    def sync_dir(self, path: str) -> None:
        self.step("sync_dir")
        inside = {n: c for n, c in self.live.items() if n.rpartition("/")[0] == path}
        outside = {n: c for n, c in self._durable.items() if n.rpartition("/")[0] != path}
        self._durable = outside | inside

    def lose_power(self, dice: random.Random) -> None:
        """Start again with what is left. Names that no folder's sync covered are there or not; contents
        likewise."""
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
        self.steps_left = None
