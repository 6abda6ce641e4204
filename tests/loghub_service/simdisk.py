"""A simulated disk that can lose power: of the changes that were not synced, any part survives.

A sync that fails does what Linux does: some of the pages were written and others not, all of them are marked
clean and stay readable, and a later sync succeeds without writing them. What the file system knows of a block
whose first write has failed is wrong: later writes to it are lost as well, until the file is cut before it.

It implements `loghub_service.ports.Disk` for tests of recovery, and is driven by a seed.
"""

import errno
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from loghub_service.errors import WriteFailed

SECTOR_BYTES = 512
PAGE_BYTES = 512  # less than a real one, as the segments of these tests are


@dataclass(slots=True)
class Content:
    """One file's bytes: what is durable, and the changes since, oldest first."""

    durable: bytearray = field(default_factory=bytearray)
    live: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)  # pages that a failed sync has not written
    unmapped: set[int] = field(default_factory=set)  # pages of which no write ever gets to the disk

    def change_size(self, size: int) -> None:
        del self.live[size:]
        self.live.extend(bytes(size - len(self.live)))
        self.lost = {page for page in self.lost if page * PAGE_BYTES < size}
        self.unmapped = {page for page in self.unmapped if page * PAGE_BYTES < size}

    def sync(self) -> None:
        dirty = self._dirty()
        self.lost = (self.lost - dirty) | (self.unmapped & dirty)
        kept = {page: self.durable[page_of(page)] for page in self.lost}
        self.durable[:] = self.live
        for page, content in kept.items():
            self.durable[page_of(page)] = content.ljust(len(self.durable[page_of(page)]), b"\0")
        self.pending.clear()

    def fail_sync(self, dice: random.Random) -> None:
        for page in sorted(self._dirty()):
            has_place = page not in self.unmapped and (page + 1) * PAGE_BYTES <= len(self.durable)
            if has_place and dice.random() < 0.5:
                self.durable[page_of(page)] = self.live[page_of(page)]
                self.lost.discard(page)
            else:
                self.lost.add(page)
                if not any(self.durable[page_of(page)]):
                    self.unmapped.add(page)
        self.pending.clear()

    def drop_cached(self) -> None:
        for page in self.lost - self._dirty():
            content = self.durable[page_of(page)]
            self.live[page_of(page)] = content.ljust(len(self.live[page_of(page)]), b"\0")
            self.lost.discard(page)

    def _dirty(self) -> set[int]:
        return {
            page
            for offset, data in self.pending
            for page in range(offset // PAGE_BYTES, -(-(offset + len(data)) // PAGE_BYTES))
            if page * PAGE_BYTES < len(self.live)
        }

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
        self.lost.clear()
        self.unmapped.clear()


def page_of(number: int) -> slice:
    return slice(number * PAGE_BYTES, (number + 1) * PAGE_BYTES)


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
        try:
            self._disk.step("sync")
        except OSError as error:
            self._content.fail_sync(self._disk.dice)
            raise WriteFailed(str(error)) from error
        self._disk.syncs += 1
        self._content.sync()

    def drop_cached(self) -> None:
        self._content.drop_cached()

    def close(self) -> None:
        """Nothing is kept open."""


class SimDisk:
    """``fail`` names calls that fail from now on, syncs with EIO and others with ``errno``. ``syncs`` counts
    those of files, ``bytes_read`` all reads.

    ``steps_left`` is the number of changing calls until the power goes, ``error_in`` that until one of them
    fails with EIO; None: none does.
    """

    def __init__(self) -> None:
        self.fail: set[str] = set()
        self.errno = errno.ENOSPC
        self.dice = random.Random(0)  # which pages a failed sync has written
        self.syncs = 0
        self.bytes_read = 0
        self.steps_left: int | None = None
        self.error_in: int | None = None
        self.live: dict[str, Content] = {}
        self._durable: dict[str, Content] = {}
        self._lost_names: set[str] = set()  # whose change a failed sync has not written

    def step(self, what: str) -> None:
        if self.steps_left == 0:
            raise PowerCut(what)
        if self.steps_left is not None:
            self.steps_left -= 1
        if self.error_in is not None:
            self.error_in = self.error_in - 1 if self.error_in else None
            if self.error_in is None:
                raise OSError(errno.EIO, f"{what} fails")
        if what in self.fail:
            raise OSError(errno.EIO if "sync" in what else self.errno, f"{what} fails")

    def create(self, path: str) -> SimFile:
        self.step("create")
        if path in self.live:
            raise FileExistsError(path)
        self._change(path, Content())
        return SimFile(self, self.live[path])

    def open(self, path: str) -> SimFile:
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, "nothing to open", path)
        return SimFile(self, self.live[path])

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        content = self.live[old]
        self._change(old, None)
        self._change(new, content)

    def _change(self, path: str, content: Content | None) -> None:
        self.live.pop(path, None)
        if content is not None:
            self.live[path] = content
        self._lost_names.discard(path)

    def remove(self, path: str) -> None:
        self.step("remove")
        if path not in self.live:
            raise FileNotFoundError(errno.ENOENT, "nothing to remove", path)
        self._change(path, None)

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
        names = [name for name in self._changed_names() if name.rpartition("/")[0] == path]
        try:
            self.step("sync_dir")
        except OSError as error:
            self._lost_names.update(name for name in names if self.dice.random() < 0.5)
            self._keep_names(name for name in names if name not in self._lost_names)
            raise WriteFailed(str(error)) from error
        self._keep_names(names)

    def _changed_names(self) -> list[str]:
        """Names that are not durable as they are, and which a sync would write."""
        names = sorted((self.live.keys() | self._durable.keys()) - self._lost_names)
        return [name for name in names if self.live.get(name) is not self._durable.get(name)]

    def _keep_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.live:
                self._durable[name] = self.live[name]
            else:
                del self._durable[name]

    def lose_power(self, dice: random.Random) -> None:
        """Start again with what is left. Names that no folder's sync covered are there or not; contents
        likewise."""
        self._keep_names(name for name in self._changed_names() if dice.random() < 0.5)
        for content in {id(content): content for content in self._durable.values()}.values():
            content.lose_power(dice)
        self.live = dict(self._durable)
        self._lost_names.clear()
        self.steps_left = None
