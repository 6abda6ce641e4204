"""What a folder may contain after its machine has lost power, as POSIX allows it.

`Disk` notes what a process flushes. A name counts as durable once its folder was flushed while it was there,
and the content of a file once the file was flushed. Of what was not flushed, anything may be left:
`after_a_cut` makes a folder in which all of it is gone, or all but one name, such as that of a file without
its content. A renamed file is never at both names, nor at none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from loghub import atomic_file
from loghub_worker.sink.files import storage

File = tuple[int, int]  # inode and time of the last change, since inodes are used again


def _file(path: Path) -> File:
    found = path.stat()
    return found.st_ino, 0 if path.is_dir() else found.st_mtime_ns


class Disk:
    """The folder `root`. Its files are small, and are not changed once they have their content."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[File, bytes] = {}  # durable ones
        self._names: dict[Path, File] = {}  # durable ones

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is flushed meanwhile. What exists at the beginning is durable."""
        for folder in [self._root, *(path for path in self._root.rglob("*") if path.is_dir())]:
            self.flush(folder)
        with (
            patch.object(atomic_file, "sync", self.flush),
            patch.object(storage, "sync", self.flush),
        ):
            yield

    def flush(self, path: Path) -> None:
        """In place of `atomic_file.sync`."""
        if path.is_file():
            self._contents[_file(path)] = path.read_bytes()
            return
        gone = [name for name in self._names if name.parent == path]
        for name in gone:
            del self._names[name]
        self._names |= {name: _file(name) for name in path.iterdir()}

    def unflushed(self) -> list[Path]:
        """The names that are there and not durable."""
        return [path for path in sorted(self._root.rglob("*")) if self._names.get(path) != _file(path)]

    def after_a_cut(self, target: Path, *, kept: Path | None = None) -> None:
        """Make the folder `target` what is left: what was flushed, and the name `kept`."""
        names = dict(self._names)
        if kept is not None:
            moved = [name for name, file in names.items() if file == _file(kept) and not name.exists()]
            for name in moved:
                del names[name]
            names |= {path: _file(path) for path in (kept, *kept.parents) if self._root in path.parents}
        target.mkdir()
        for path, file in sorted(names.items()):
            copy = target / path.relative_to(self._root)
            if not copy.parent.exists():
                continue  # nobody finds it
            if file[1] == 0:
                copy.mkdir()
            else:
                copy.write_bytes(self._contents.get(file, b""))
