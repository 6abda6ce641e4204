"""Copies of a data folder as kills would leave it: one after each change of the folder.

The engine works on a real folder. After each change of it, by a commit or by the disk, the folder is copied.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loghub_service.ports import OsDisk
from loghub_service.storage.group_commit import Commit, T
from tests.loghub_service.inline_batches import InlineBatches


class Camera:
    """Copies the data folder whenever it may have changed, while it is on."""

    def __init__(self, data: Path, album: Path) -> None:
        self._data, self._album = data, album
        self.on = False
        self.pictures: list[Path] = []

    def shoot(self) -> None:
        if self.on:
            self.pictures.append(self._album / f"{len(self.pictures):03d}")
            shutil.copytree(self._data, self.pictures[-1])

    def start_batches(
        self, *, name: str, commit: Commit[T], on_failed: Callable[[BaseException], None], **more: Any
    ) -> InlineBatches[T]:
        def watched(batch: Sequence[T]) -> Sequence[object]:
            self.shoot()
            outcomes = commit(batch)
            self.shoot()
            return outcomes

        return InlineBatches(name=name, commit=watched, on_failed=on_failed, **more)


class WatchedDisk(OsDisk):
    """The real one; the folder is copied after each change of its names."""

    def __init__(self, camera: Camera) -> None:
        self._camera = camera

    def make_dirs(self, path: str) -> None:
        super().make_dirs(path)
        self._camera.shoot()

    def remove(self, path: str) -> None:
        super().remove(path)
        self._camera.shoot()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._camera.shoot()

    def remove_dir(self, path: str) -> None:
        super().remove_dir(path)
        self._camera.shoot()
