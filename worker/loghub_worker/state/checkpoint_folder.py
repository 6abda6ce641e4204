"""Spark's checkpoint directory of a stateful query, as files (docs/spark.md 9).

``offsets/<batch>`` exists once a batch is planned, ``commits/<batch>`` once it has ended. The state after
batch N is version N + 1 of each store under ``state/``, and may exist before the batch has ended.

Spark flushes none of these files. After a loss of power any that was written last may be there without its
content, which Spark does not expect: it would fail at it forever. So `DurableFolder` flushes what a batch
needs before the sink may have it, and `forget_cut_off` forgets what was not flushed."""

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from loghub.atomic_file import sync_all

NONE = -1  # no batch
FLUSH_ATTEMPTS = 10  # each fails only because Spark has just removed another old file
_STORE_FILE = re.compile(r"\.?(\d+)[._].*")
# The beginning of a file of checksums, which Hadoop keeps next to a file, and how many bytes each CRC-32
# covers.
_SUMS_HEAD, _SUMMED_BYTES = b"crc\x00" + struct.pack(">I", 512), 512


def last_commit(folder: Path) -> int:
    """The last batch that has ended; -1: none has."""
    return max(_numbers(folder / "commits"), default=NONE)


def pending_batch(folder: Path) -> int | None:
    """The batch that is planned and has not ended, if there is one. There is at most one."""
    planned = max(_numbers(folder / "offsets"), default=NONE)
    return planned if planned > last_commit(folder) else None


def roll_back(folder: Path) -> None:
    """Forget the batch that has not ended, so that Spark plans another batch in its place. If a version of
    the state that the forgotten batch left had the name of a snapshot, Spark would read it."""
    _forget_after(folder, last_commit(folder))


def _forget_after(folder: Path, batch: int) -> None:
    for number in _numbers(folder / "offsets"):
        if number > batch:
            _remove(folder / "offsets" / str(number))
    for file in (folder / "state").rglob("*"):
        version = _STORE_FILE.fullmatch(file.name)
        if version is not None and int(version[1]) > batch + 1 and file.is_file():
            file.unlink()


def forget_cut_off(folder: Path, *, delivered: int, publishing: int) -> bool:
    """Forget what a loss of power has cut off the last batches: the end of a batch that the sink has, so that
    it is computed again for its state, and the plan of a batch that the sink cannot have. `delivered` is the
    last batch that the sink has, `publishing` the batch that it may have. Returns False if more is damaged,
    so that Spark cannot continue. Whether the state itself is whole is not examined."""
    last = last_commit(folder)
    if last > NONE and not _is_whole(folder / "commits" / str(last)):
        if last != delivered or publishing > last:
            return False
        _forget_after(folder, last)
        _remove(folder / "commits" / str(last))
    pending = pending_batch(folder)
    if pending is not None and not _is_whole(folder / "offsets" / str(pending)):
        if pending <= max(delivered, publishing):
            return False
        roll_back(folder)
    logs = [
        folder / name / str(batch) for name in ("offsets", "commits") for batch in _numbers(folder / name)
    ]
    metadata = folder / "metadata"
    is_sound = all(map(_is_whole, [*logs, metadata] if logs or metadata.exists() else []))
    return is_sound and all(map(_has_its_sums, (folder / "state").rglob("_metadata/**/*")))


def _is_whole(file: Path) -> bool:
    """Whether a file of lines, of which the last is JSON, has its content."""
    try:
        json.loads(file.read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return False
    return _has_its_sums(file)


def _has_its_sums(file: Path) -> bool:
    if not file.is_file() or file.name.endswith(".crc"):
        return True
    content, sums = file.read_bytes(), _sums_of(file)
    if not sums.exists():
        return bool(content)
    parts = (content[at : at + _SUMMED_BYTES] for at in range(0, len(content), _SUMMED_BYTES))
    expected = _SUMS_HEAD + b"".join(struct.pack(">I", zlib.crc32(part)) for part in parts)
    return bool(content) and sums.read_bytes() == expected


def _sums_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    _sums_of(file).unlink(missing_ok=True)


def _numbers(folder: Path) -> Iterator[int]:
    return (int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit())


class DurableFolder:
    """Flushes the files of a folder, which are written once each. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._flushed: frozenset[tuple[Path, int]] = frozenset()  # with the number of the inode

    def flush(self) -> None:
        """Make durable the files that were written since the last call. Raises `OSError`."""
        for _ in range(FLUSH_ATTEMPTS - 1):
            try:
                self._flush()
            except FileNotFoundError:
                continue  # removed just now
            return
        self._flush()

    def _flush(self) -> None:
        files = frozenset((path, path.stat().st_ino) for path in self._folder.rglob("*"))
        new = {path for path, _ in files - self._flushed}
        folders = {path.parent for path in new}
        sync_all([*new, *(folders - new)])
        self._flushed = files
