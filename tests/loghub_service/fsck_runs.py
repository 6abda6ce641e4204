"""A data folder to damage, and runs of `loghub fsck` on it, for the tests of fsck."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.domain.group import SaveCheckpoint
from loghub_service.engine import Engine
from loghub_service.fsck.__main__ import main
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live

FIRST = 1000


async def put(engine: Engine, count: int, *, shard: int = 0, name: str = "first") -> None:
    for number in range(count):
        await engine.append(engine.logs[STORE_ID, shard], f"{name} {number} ".encode() * 50, logs=1)


def stored(engine: Engine, logstore: int = STORE_ID, shard: int = 0) -> dict[int, bytes]:
    """Cursor -> the first words of a group."""
    log = engine.logs[logstore, shard]
    result: dict[int, bytes] = {}
    cursor = log.extent.oldest_cursor
    while cursor < log.extent.end_cursor:
        read = log.read(cursor=cursor, end_cursor=1 << 62, max_groups=1000, max_bytes=1 << 30)
        result |= {entry.cursor: b" ".join(entry.group.split()[:2]) for entry in read.entries}
        cursor = read.next_cursor
    return result


def first_groups(*numbers: int) -> dict[int, bytes]:
    return {FIRST + number: b"first %d" % number for number in numbers}


def files(data: Path) -> dict[str, bytes]:
    return {str(p.relative_to(data)): p.read_bytes() for p in sorted(data.rglob("*")) if p.is_file()}


class Reported:
    """One run of fsck."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.status = main([str(data), "-o", "json", *arguments])
        printed = capsys.readouterr()
        self.error = printed.err
        self.document: dict[str, Any] = json.loads(printed.out) if printed.out else {}

    @property
    def kinds(self) -> list[str]:
        return [finding["kind"] for finding in self.document["findings"]]

    @property
    def lost(self) -> list[tuple[int, int | None]]:
        return [
            (finding["begin_cursor"], finding["end_cursor"])
            for finding in self.document["findings"]
            if finding["begin_cursor"] is not None
        ]


Fsck = Callable[..., Reported]


def only_lists(fsck: Fsck, data: Path) -> Reported:
    """The diagnosis, which writes nothing and finds something that prevents the start."""
    before = files(data)
    reported = fsck()
    assert files(data) == before
    assert (reported.status, reported.document["starts"]) == (1, False)
    return reported


def segments(data: Path, shard: int = 0) -> list[Path]:
    return sorted(data.glob(f"logs/*/{shard:06d}/*.seg"))


def flip(segment: Path, text: bytes) -> None:
    content = segment.read_bytes()
    at = content.index(text)
    segment.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def segment_of(data: Path, text: bytes) -> Path:
    (found,) = [path for path in segments(data) if text in path.read_bytes()]
    return found


def as_killed(data: Path, clock: ManualClock, tmp_path: Path) -> None:
    """The folder as a service leaves it that starts and is then killed."""

    async def scenario(_: Engine) -> None:
        shutil.copytree(data, tmp_path / "killed")

    live(data, clock, scenario)
    shutil.rmtree(data)
    (tmp_path / "killed").rename(data)


def filled(folder: Path) -> Path:
    """30 log groups in several segments, with a checkpoint at the end."""

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await put(engine, 30)
        saved = SaveCheckpoint(consumer="", shard=0, cursor=FIRST + 30, force=True, updated_unix_us=7)
        await engine.groups.apply_durably(engine.groups.of(STORE_ID)["g"], saved)

    live(folder, ManualClock(), scenario)
    return folder
