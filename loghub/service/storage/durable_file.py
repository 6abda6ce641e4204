"""Small files that are replaced atomically and durably through the disk's port."""

from contextlib import suppress

from loghub.service.ports import Disk

_MAX_BYTES = 1 << 20


def replace_durably(disk: Disk, folder: str, name: str, content: bytes) -> None:
    """After a crash the file has the old or the new content; on return it has the new one. Raises OSError."""
    fresh = f"{folder}/{name}.new"
    with suppress(FileNotFoundError):  # of a crash
        disk.remove(fresh)
    file = disk.create(fresh)
    try:
        file.write_at(content, offset=0)
        file.sync_data()
    finally:
        file.close()
    disk.rename(fresh, f"{folder}/{name}")
    disk.sync_dir(folder)


def read_small(disk: Disk, folder: str, name: str) -> bytes | None:
    """The content of a small file; None if it does not exist. Raises OSError."""
    try:
        file = disk.open(f"{folder}/{name}")
    except FileNotFoundError:
        return None
    try:
        return file.read_at(_MAX_BYTES, offset=0)
    finally:
        file.close()
