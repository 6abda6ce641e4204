"""Backups of the checkpoints from before a checkpoint reset, as files.

They correspond to the ConfigMaps of `loghub_operator.resources.checkpoint_backup` in a cluster and have the
same names."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub_operator.model.checkpoint_reset import CheckpointBackup
from loghub_operator.plan.checkpoint_backups import needed_backups, superseded


class _File(msgspec.Struct, rename="camel"):
    """A backup as stored. Users undo a reset with it, so its keys do not follow the names in the code."""

    requested_at: str
    before: Mapping[int, str]
    targets: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class CheckpointBackups:
    """A folder with one file per backup; a file is written once and never changed. Older ones are removed."""

    folder: Path

    def keep(self, name: str, backup: CheckpointBackup, *, source: str | None = None) -> None:
        """Writes the backup unless it exists: the existing file holds the checkpoints from before the reset.
        Removes older ones, but not the ``source`` of the reset. Raises `OSError`."""
        path = self._path(name)
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file = _File(requested_at=backup.requested_at, before=backup.before, targets=backup.targets)
            replace_file(path, msgspec.json.format(msgspec.json.encode(file)))
        for old in superseded(self._requested_at(), needed=needed_backups(name, source)):
            self._path(old).unlink(missing_ok=True)

    def _requested_at(self) -> dict[str, str]:
        """By name; without files that cannot be decoded, which a user may have put there."""
        times: dict[str, str] = {}
        for path in self.folder.glob("*.json"):
            with suppress(ValueError):
                backup = self.read(path.stem)
                if backup is not None:
                    times[path.stem] = backup.requested_at
        return times

    def read(self, name: str) -> CheckpointBackup | None:
        """Reads a backup; None if it does not exist. Raises ValueError if it cannot be decoded, for example
        after a manual change."""
        try:
            file = msgspec.json.decode(self._path(name).read_bytes(), type=_File)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path(name)} cannot be read: {error}") from None
        return CheckpointBackup(requested_at=file.requested_at, before=file.before, targets=file.targets)

    def source(self, name: str | None) -> dict[str, str] | None:
        """The backup's checkpoints in the form of a ConfigMap's data; None if there is no such backup."""
        backup = None if name is None else self.read(name)
        return None if backup is None else {str(shard): cursor for shard, cursor in backup.before.items()}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
