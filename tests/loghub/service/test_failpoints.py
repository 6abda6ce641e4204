"""The service is killed at each step of storage, and then loses its page cache: while it rolls and seals a
segment, commits metadata such as checkpoints, and recovers.

`tests.loghub.service.storage.test_crash_steps` has every call of a simulated disk; this is a real process on
a real one, above `stable_storage`.
"""

import shutil
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.loghub.service import stable_storage
from tests.loghub.service.stable_storage import StableStorage
from tests.loghub.service.writers import Writers, missing_data, prepare
from tests.support import ServiceProcess, running_service

pytestmark = pytest.mark.long

SMALL_SEGMENTS = ("--segment-mib", "1")
LINE_BYTES = 60_000  # so that segments are full soon
Kill = tuple[str, int]  # at the sync of a path with this suffix, after so many others
# The service syncs a new segment under its first name, then the folder, and a segment when a batch is
# committed and when it is sealed.
ROLL = [
    (".seg.new", 3),  # the first segment that follows another one
    (".seg.new", 5),
    ("/000001", 4),  # the folder that has a new segment's name
]
BATCH = [(".seg", 1), (".seg", 40), (".seg", 100)]
CHECKPOINT = [("-wal", 20), ("-wal", 60), ("-wal", 90)]
RECOVERY = [
    (".seg", 0),
    (".seg", 2),
    ("/000002", 0),
    ("-wal", 0),
    ("metadata.sqlite", 0),
    ("folder.json.new", 0),
    ("folder.json.new", 1),
    ("/logs", 0),
]
EARLIER = (".seg", 60)  # the kill that a recovery follows
# A hundred kills each of segment rolls, checkpoints and recoveries, after different histories.
DEEP_ROLL = [(suffix, n) for suffix in (".seg.new", "/000001") for n in range(6, 56)]
DEEP_CHECKPOINT = [("-wal", n) for n in range(100, 200)]
DEEP_RECOVERY = [(kill, (".seg", 61 + n)) for n, kill in zip(range(100), cycle(RECOVERY), strict=False)]


def _name(kill: Kill) -> str:
    return f"{kill[0].strip('/.')}-{kill[1]}"


def _deep(cases: Iterable[Any]) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.deep) for case in cases]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stable_storage.build(tmp_path_factory.mktemp("shim"))


def _written(tmp_path: Path, storage: StableStorage, kill: Kill) -> Writers:
    """Write until the service is killed at this step."""
    environment = storage.environment()
    with running_service(tmp_path, extra=SMALL_SEGMENTS, environment=environment) as service:
        prepare(service)
        service.terminate()
    killed = ServiceProcess(
        tmp_path, extra=SMALL_SEGMENTS, environment=storage.environment(kill=kill), port=service.port
    )
    killed.start()
    writers = Writers(killed, size=LINE_BYTES)
    writers.run_until_the_end()
    killed.kill9()
    assert not killed.running
    return writers


def _checked(tmp_path: Path, storage: StableStorage, writers: Writers) -> None:
    """Nothing is missing, neither after the kill nor after a power cut at the same moment."""
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    for power_cut in (False, True):
        shutil.rmtree(tmp_path / "data")
        if power_cut:
            storage.after_power_cut(tmp_path / "data")
        else:
            (tmp_path / "killed").rename(tmp_path / "data")
        with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
            assert missing_data(service, writers) == []


@pytest.mark.parametrize(
    "kill", [*ROLL, *BATCH, *CHECKPOINT, *_deep(DEEP_ROLL), *_deep(DEEP_CHECKPOINT)], ids=_name
)
def test_a_kill_while_writing_loses_nothing_acknowledged(tmp_path: Path, library: Path, kill: Kill) -> None:
    (tmp_path / "data").mkdir()
    storage = StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")
    _checked(tmp_path, storage, _written(tmp_path, storage, kill))


@pytest.mark.parametrize(
    "kills",
    [*((kill, EARLIER) for kill in RECOVERY), *_deep(DEEP_RECOVERY)],
    ids=lambda kills: f"{_name(kills[0])}-after-{_name(kills[1])}",
)
def test_a_kill_while_recovering_loses_nothing_acknowledged(
    tmp_path: Path, library: Path, kills: tuple[Kill, Kill]
) -> None:
    """From an earlier kill."""
    kill, earlier = kills
    (tmp_path / "data").mkdir()
    storage = StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")
    writers = _written(tmp_path, storage, earlier)
    recovering = ServiceProcess(tmp_path, extra=SMALL_SEGMENTS, environment=storage.environment(kill=kill))
    with pytest.raises(AssertionError, match="ended at its start"):
        recovering.start()
    _checked(tmp_path, storage, writers)
