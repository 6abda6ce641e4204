"""The checkpoints of before a reposition, kept as files.

What for: what the ConfigMaps of `loghub_operator.resources.checkpoint_backup` are in a cluster, under the
same names. What it must not know: when one is written. Read next: `loghub_operator.local.backend`."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub_operator.model.reposition import MoveRecord


@dataclass(frozen=True, slots=True)
class KeptCheckpoints:
    """One folder, a file for each; a file is written once and never changed."""

    folder: Path

    def keep(self, name: str, record: MoveRecord) -> None:
        """Unless it is there: that is of before. Raises `OSError`."""
        path = self._path(name)
        if path.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(record)))

    def read(self, name: str) -> MoveRecord | None:
        """None: there is none. Raises ValueError for one that was changed by hand."""
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=MoveRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path(name)} cannot be read: {error}") from None

    def source(self, name: str | None) -> dict[str, str] | None:
        """The checkpoints in it, as a ConfigMap has them; None: there is none."""
        record = None if name is None else self.read(name)
        return None if record is None else {str(shard): cursor for shard, cursor in record.before.items()}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
