"""Spark's checkpoint directory of a stateful query, as files (docs/spark.md 9).

``offsets/<batch>`` exists once a batch is planned, ``commits/<batch>`` once it has ended. The state after
batch N is version N + 1 of each store under ``state/``, and may exist before the batch has ended."""

import re
from collections.abc import Iterator
from pathlib import Path

NONE = -1  # no batch
_STORE_FILE = re.compile(r"\.?(\d+)[._].*")


def last_commit(folder: Path) -> int:
    """The last batch that has ended; -1: none has."""
    return max(_numbers(folder / "commits"), default=NONE)


def pending_batch(folder: Path) -> int | None:
    """The batch that is planned and has not ended, if there is one. There is at most one."""
    planned = max(_numbers(folder / "offsets"), default=NONE)
    return planned if planned > last_commit(folder) else None


def roll_back(folder: Path) -> None:
    """Forget the batch that has not ended, so that Spark plans another one in its place. Spark would read a
    version of the state that the forgotten batch left, if it had the name of a snapshot."""
    last = last_commit(folder)
    for number in _numbers(folder / "offsets"):
        if number > last:
            (folder / "offsets" / str(number)).unlink()
            (folder / "offsets" / f".{number}.crc").unlink(missing_ok=True)
    for file in (folder / "state").rglob("*"):
        version = _STORE_FILE.fullmatch(file.name)
        if version is not None and int(version[1]) > last + 1 and file.is_file():
            file.unlink()


def _numbers(folder: Path) -> Iterator[int]:
    return (int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit())
