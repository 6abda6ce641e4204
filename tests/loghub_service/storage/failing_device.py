"""A log on a real ext4 whose device has no space for some of its data: a thin volume that is full.

    unshare --mount --propagation private python -m tests.loghub_service.storage.failing_device FOLDER

The image of the device is a sparse file on a small file system in memory. What ext4 has written has space
there, and once that file system is full, only writes of data to new blocks fail. All mounts are of this
process's namespace and the loop device of its mount, so nothing is left behind, however the process ends.

Records begin with a page each: a write that goes on from a page with space into one without would be short,
and Linux's loop device takes a short write for a whole one.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from loghub_service.errors import WriteFailed
from loghub_service.ports import OsDisk
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.segment_format import (
    END_MARK_BYTES,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.storage.opened_log import open_log

BIRTH = SegmentHeader(first_cursor=1000, logs_before=0, received_us=50, salt=7)
MEMORY = "16m"
IMAGE_BYTES = 96 << 20  # a log leaves 64 MiB free; most of it never takes space in memory
SEGMENT_BYTES = 2 << 20
PAGE_BYTES = 4096
RECORD_BYTES = 8 * PAGE_BYTES
MAKE_EXT4 = (
    "mkfs.ext4",
    "-q",
    "-b",
    "4096",
    "-m",
    "0",
    "-N",
    "64",
    "-J",
    "size=4",
    "-E",
    "nodiscard,lazy_itable_init=0",
)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


class Machine:
    def __init__(self, folder: Path) -> None:
        self._back, self._mounted = folder / "memory", folder / "mounted"
        self._image, self._filler = self._back / "image", self._back / "filler"
        for each in (self._back, self._mounted):
            each.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={MEMORY}", "tmpfs", str(self._back))
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run(*MAKE_EXT4, str(self._image))
        self.start()
        self.log_folder = str(self._mounted / "log")
        os.mkdir(self.log_folder)

    def start(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self._mounted))

    def restart(self) -> None:
        run("umount", str(self._mounted))
        self.start()

    def fill(self) -> None:
        """From now on the device has no space for a block that was never written."""
        os.sync()
        block = bytes(PAGE_BYTES)
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(block):
                    pass
            except OSError:
                return

    def empty(self) -> None:
        self._filler.unlink()

    def process(self, work: Callable[[ShardLog], None]) -> None:
        """In a process of its own, with what the kernel has in its cache; AssertionError if it fails."""
        child = os.fork()
        if child == 0:
            try:
                log, _ = open_log(OsDisk(), folder=self.log_folder, birth=BIRTH, segment_bytes=SEGMENT_BYTES)
                work(log)
            except BaseException as error:  # noqa: BLE001 - the process ends
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def numbers_in(log: ShardLog) -> list[int]:
    read = log.read(cursor=0, end_cursor=1 << 62, max_groups=1000, max_bytes=1 << 30)
    return [int(entry.group[1:5]) for entry in read.entries]


def append(log: ShardLog, number: int, *, first: bool = False) -> None:
    size = RECORD_BYTES - RECORD_HEADER_BYTES - END_MARK_BYTES - (SEGMENT_HEADER_BYTES if first else 0)
    log.append([NewGroup(group=(b"\n%04d" % number).ljust(size, b"x"), logs=1, received_us=100)])
    log.sync()


def main(folder: Path) -> None:
    machine = Machine(folder)

    def before(log: ShardLog) -> None:
        for number in range(5):
            append(log, number, first=number == 0)
        machine.fill()
        try:
            append(log, 5)
        except WriteFailed:
            return
        raise AssertionError("the sync has not failed")

    def after(log: ShardLog) -> None:
        # The failed one may be there, but then it must stay.
        (folder / "readable").write_text(",".join(map(str, numbers_in(log))))
        for number in range(100, 103):
            append(log, number)

    def at_last(log: ShardLog) -> None:
        found = numbers_in(log)
        readable = [int(number) for number in (folder / "readable").read_text().split(",")]
        assert readable[:5] == [*range(5)], f"acknowledged groups are missing: {readable}"
        assert found == [*readable, 100, 101, 102], f"{readable} and 100 to 102 were readable, now {found}"

    machine.process(before)
    machine.empty()
    machine.process(after)
    machine.restart()
    machine.process(at_last)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
