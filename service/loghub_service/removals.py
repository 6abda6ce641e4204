"""Removes the files of deleted shards and logstores, and of expired segments, one by one.

The removal follows a durable decision: a recorded deletion, or an oldest cursor below which nothing is read
any more. A crash may therefore come at any time, and the next start goes on. Files are removed on a thread of
their own, because a file system may take long for it, and neither writes nor heartbeats may wait meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import structlog

from loghub_service.facts import FolderRemoved
from loghub_service.ports import Disk
from loghub_service.storage.group_commit import Batches, Task
from loghub_service.storage.log_inspection import LoadedSegments

_log = structlog.get_logger("loghub_service")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Files of one folder or, without ``files``, the folder with all that is in it. ``done`` is persisted
    afterwards."""

    folder: str
    files: tuple[str, ...] | None = None
    done: FolderRemoved | None = None


class Removals:
    """The outstanding removals. Used on the event loop only."""

    def __init__(
        self,
        disk: Disk,
        batches: Batches[Task],
        loaded: LoadedSegments,
        *,
        persist: Callable[[FolderRemoved], "asyncio.Future[object]"],
    ) -> None:
        self._disk, self._batches, self._loaded, self._persist = disk, batches, loaded, persist
        self._waiting: deque[Removal] = deque()
        self._failed: list[Removal] = []
        self._added = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._failed

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)
        self._added.set()

    async def run(self) -> None:
        """Carry out the removals that are added, forever."""
        while True:
            await self._added.wait()
            await self.drain()

    def retry(self) -> None:
        """Try the failed removals again."""
        failed, self._failed = self._failed, []
        for removal in failed:
            self.add(removal)

    async def drain(self) -> None:
        """Carry out the waiting removals; a failed one waits for `retry`."""
        self._added.clear()
        while self._waiting:
            removal = self._waiting.popleft()
            try:
                await self._remove(removal)
            except OSError as error:
                _log.warning("files not removed, will retry", folder=removal.folder, error=str(error))
                self._failed.append(removal)

    async def _remove(self, removal: Removal) -> None:
        if removal.files is None:
            files, folders = await self._on_thread(partial(self._disk.list_tree, removal.folder))
            after = [partial(self._disk.remove_dir, folder) for folder in folders]
        else:
            files, after = removal.files, [partial(self._sync_dir, removal.folder)]
        for path in files:
            await self._on_thread(partial(self._remove_file, path))
            self._loaded.forget(path)  # not before: a reader might load it again, and keep its space in use
        for task in after:
            await self._on_thread(task)
        if removal.done is not None:
            await self._persist(removal.done)

    def _remove_file(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except FileNotFoundError:
            return  # an earlier removal that a crash interrupted has removed it

    def _sync_dir(self, path: str) -> None:
        try:
            self._disk.sync_dir(path)
        except FileNotFoundError:
            return  # the shard was deleted meanwhile

    async def _on_thread(self, task: Callable[[], T]) -> T:
        return cast("T", await self._batches.submit(task))
