"""The files and indexes of the sealed segments that were read last, for all shards together.

Memory and open files must not grow with the data that is kept, so only a bounded number of segments is
loaded at a time. A reader that has a file keeps it open until it is done, whatever is evicted meanwhile.
"""

import threading
from collections import OrderedDict

import structlog

from loghub.service.ports import Disk, File
from loghub.service.storage import record
from loghub.service.storage.footer import END_BLOCK_BYTES, EndBlock, Marks, unpack_end_block, unpack_marks
from loghub.service.storage.record import DamagedRecord
from loghub.service.storage.recovery import inspect
from loghub.service.storage.segment import LogDamaged

_log = structlog.get_logger("loghub.service.storage")
MOST_LOADED = 128


class LoadedSegments:
    """The `SegmentFiles` of a running service; any thread may use it."""

    def __init__(self, disk: Disk, *, most: int = MOST_LOADED) -> None:
        self._disk = disk
        self._most = most
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, tuple[File, Marks]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loaded)

    def get(self, path: str) -> tuple[File, Marks]:
        """Raises FileNotFoundError, LogDamaged."""
        with self._lock:
            known = self._loaded.get(path)
            if known is not None:
                self._loaded.move_to_end(path)
                return known
        # Not under the lock: the disk may be slow, and others read what is loaded.
        loaded = _load(self._disk, path)
        with self._lock:
            self._loaded[path] = loaded
            while len(self._loaded) > self._most:
                self._loaded.popitem(last=False)
        return loaded

    def forget(self, path: str) -> None:
        """Close a segment that is removed."""
        with self._lock:
            self._loaded.pop(path, None)


def read_end_block(file: File) -> EndBlock | None:
    """The end of a file's footer; None if there is no valid one."""
    size = file.size()
    at = max(size - END_BLOCK_BYTES, 0)
    return unpack_end_block(file.read_at(END_BLOCK_BYTES, offset=at), file_bytes=size)


def _load(disk: Disk, path: str) -> tuple[File, Marks]:
    file = disk.open(path)
    block = read_end_block(file)
    try:
        if block is not None:
            return file, unpack_marks(file.read_at(block.marks_bytes, offset=block.marks_at), block)
    except DamagedRecord as error:
        _log.warning(
            "index of a segment is damaged, reading the records instead", file=path, error=str(error)
        )
    return file, _marks_of_records(file, path)


def _marks_of_records(file: File, path: str) -> Marks:
    """The index of a segment without a footer. A damaged record is reported when it is read."""
    data = file.read_at(file.size(), offset=0)
    try:
        header, layout = record.unpack_segment_header(data)
    except DamagedRecord as error:
        raise LogDamaged(f"{path}: {error}") from error
    return inspect(data, header, layout).marks
