"""The storage of a commit log in a folder of a POSIX file system, local or NFS.

Under ``<folder>/_loghub/<project>/<logstore>/<group>/`` are the records in their folders, ``stage/<batch>/``
with the files of a batch, and ``parts/`` with files that are about to get the name of a record by hard link.
An opening is written in place, never replaced: NFS shows a file's new content to everyone who opens it
afterwards, but not always at once a new file under an old name (nfs(5), close-to-open cache consistency).
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from loghub_worker.sink.exclusive_files import age_s, link_exclusively, sync, unlinked_file
from loghub_worker.sink.log_storage import FOLDER, data_files

_TOKEN_BYTES = 16  # all tokens have the same length, so that one write replaces another


class EarlierLayoutError(Exception):
    """The folder has claims of an earlier release, which this one does not read."""


class FolderStorage:
    """`LogStorage` in a folder, which must support hard links."""

    def __init__(self, folder: Path, *, group_path: tuple[str, ...]) -> None:
        """`group_path` is project, logstore, group. Raises `EarlierLayoutError` and `OSError`."""
        self._folder = folder
        self._home = folder.joinpath(FOLDER, *group_path)
        self._stage = self._home / "stage"
        self._parts = self._home / "parts"
        self._openings = self._home / "openings"
        for path in (
            self._stage,
            self._parts,
            self._openings,
            self._home / "batches",
            self._home / "range-claims",
        ):
            path.mkdir(parents=True, exist_ok=True)
        earlier = self._home / "claims"
        if earlier.is_dir() and any(earlier.iterdir()):
            raise EarlierLayoutError(
                f"{earlier} has range claims of an earlier release, which this one does not read: run the"
                " workers of that release once more and suspend the group, which saves the checkpoints and"
                " removes the claims"
            )

    def try_out(self) -> None:
        """Raises `OSError` if the folder is not writable, or does not support hard links."""
        trial = f"batches/trial-{secrets.token_hex(8)}"  # never read: decisions end in .json
        with self.creating(bytes(4096)) as create_as:
            create_as(trial)
        (self._home / trial).unlink()

    def describe(self, name: str) -> str:
        return str(self._home / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._home / name).read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def creating(self, content: bytes) -> Iterator[Callable[[str], bytes]]:
        """All records that are created with one content are links to one file, so that they cost one flush
        together."""
        with unlinked_file(self._parts, content) as part:
            yield lambda name: link_exclusively(part, self._home / name)

    def flush(self, folder: str) -> None:
        sync(self._home / folder)

    def exists(self, name: str) -> bool:
        return (self._home / name).exists()

    def names(self, folder: str) -> list[str]:
        with os.scandir(self._home / folder) as entries:
            return [entry.name for entry in entries]

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        return {path.name: age_s(path, now_unix_s) for path in (self._home / folder).iterdir()}

    def remove(self, name: str) -> None:
        (self._home / name).unlink(missing_ok=True)

    def open(self, name: str) -> str:
        token = secrets.token_hex(_TOKEN_BYTES)
        handle = os.open(self._openings / name, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(handle, token.encode(), 0)
            os.ftruncate(handle, len(token))  # it may be a foreign or damaged file
        finally:
            os.close(handle)
        return token

    def last_openings(self, names: Iterable[str]) -> Mapping[str, str]:
        contents = {name: self.read(f"openings/{name}") for name in names}
        return {name: token.decode("latin-1") for name, token in contents.items() if token is not None}

    def stage(self, batch: str) -> Path:
        return self._stage / batch

    def seal(self, batch: str) -> list[str]:
        stage = self.stage(batch)
        files = data_files(stage)
        for path in files:
            sync(path)
        if stage.exists():
            sync(stage)
        return [path.name for path in files]

    def is_staged(self, batch: str) -> bool:
        return self.stage(batch).exists()

    def place(self, batch: str, name: str, target: str) -> bool:
        try:
            (self.stage(batch) / name).rename(self._folder / target)
        except FileNotFoundError:
            return (self._folder / target).exists()
        return True

    def flush_files(self) -> None:
        sync(self._folder)

    def discard(self, batch: str) -> None:
        shutil.rmtree(self.stage(batch), ignore_errors=True)

    def staged_ages_s(self, now_unix_s: float) -> Mapping[str, float]:
        return self.ages_s("stage", now_unix_s)

    def remove_parts(self, *, older_than_s: float, now_unix_s: float) -> None:
        for part in self._parts.iterdir():
            if age_s(part, now_unix_s) > older_than_s:
                part.unlink(missing_ok=True)
