"""The service is killed at each step of storage, and then loses its page cache: while it rolls and seals a
segment, commits metadata such as checkpoints, and recovers.

`tests.loghub_service.storage.test_crash_steps` has every call of a simulated disk; this is a real process on
a real one, above `stable_storage`.
"""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from loghub_consumer.service_process import ServiceEndedError
from tests.loghub_service.stable_storage import StableStorage
from tests.loghub_service.writers import Writers, missing_data, prepare
from tests.support import ServiceProcess, running_service

pytestmark = pytest.mark.long

SMALL_SEGMENTS = ("--segment-mib", "1")
LINE_BYTES = 60_000  # so that segments are full soon
Kill = tuple[str, int]  # at the sync of a path with this suffix, after so many others
# The service syncs a new segment under its first name, then the folder, and a segment when a batch is
# committed and when it is sealed.
WRITING = [
    (".seg.new", 3),  # the first segment that follows another one
    ("/000001", 4),  # the folder that has a new segment's name
    (".seg", 40),  # a batch
    ("-wal", 60),  # checkpoints
]
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
# The same in the order in which one start after the other comes so far.
IN_TURN = [
    ("metadata.sqlite", 0),
    ("folder.json.new", 0),
    ("/logs", 0),
    (".seg", 0),
    (".seg", 2),
    ("/000002", 0),
    ("-wal", 0),
    ("folder.json.new", 0),
]
EARLIER = (".seg", 60)  # the kill that a recovery follows
# A hundred kills each of segment rolls, checkpoints and recoveries, after different histories.
DEEP_WRITING = [(".seg.new", 5), (".seg", 1), (".seg", 100), ("-wal", 20), ("-wal", 90)]
DEEP_ROLL = [(suffix, n) for suffix in (".seg.new", "/000001") for n in range(6, 56)]
DEEP_CHECKPOINT = [("-wal", n) for n in range(100, 200)]
DEEP_RECOVERY = [(kill, (".seg", 61 + n)) for n, kill in zip(range(100), cycle(RECOVERY), strict=False)]


def _name(kill: Kill) -> str:
    return f"{kill[0].strip('/.')}-{kill[1]}"


def _deep(cases: Iterable[Any]) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.deep) for case in cases]


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


def _check(folder: Path, writers: Writers) -> None:
    """A service over ``data`` in this folder has everything."""
    with running_service(folder, extra=SMALL_SEGMENTS) as service:
        assert missing_data(service, writers) == []


def _check_after_power_cut(folder: Path, storage: StableStorage, writers: Writers) -> None:
    storage.after_power_cut(folder / "data")
    _check(folder, writers)


def _storage(tmp_path: Path, library: Path) -> StableStorage:
    (tmp_path / "data").mkdir()
    return StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")


@pytest.mark.parametrize(
    "kill", [*WRITING, *_deep(DEEP_WRITING), *_deep(DEEP_ROLL), *_deep(DEEP_CHECKPOINT)], ids=_name
)
def test_a_kill_while_writing_loses_nothing_acknowledged(tmp_path: Path, library: Path, kill: Kill) -> None:
    """Nothing is missing, neither after the kill nor after a power cut at the same moment."""
    storage = _storage(tmp_path, library)
    writers = _written(tmp_path, storage, kill)
    _check_after_power_cut(tmp_path / "cut", storage, writers)
    _check(tmp_path, writers)


@pytest.mark.parametrize(
    ("earlier", "kills"),
    [
        pytest.param(EARLIER, IN_TURN, id="each-step-in-turn"),
        *(
            pytest.param(earlier, [kill], id=f"{_name(kill)}-after-{_name(earlier)}", marks=pytest.mark.deep)
            for kill, earlier in [*((kill, EARLIER) for kill in RECOVERY), *DEEP_RECOVERY]
        ),
    ],
)
def test_kills_while_recovering_lose_nothing_acknowledged(
    tmp_path: Path, library: Path, earlier: Kill, kills: list[Kill]
) -> None:
    """From an earlier kill, and from each other; after each of them the power may be cut too."""
    storage = _storage(tmp_path, library)
    writers = _written(tmp_path, storage, earlier)
    for number, kill in enumerate(kills):
        environment = storage.environment(kill=kill)
        recovering = ServiceProcess(tmp_path, extra=SMALL_SEGMENTS, environment=environment)
        with pytest.raises(ServiceEndedError, match="ended at its start"):
            recovering.start()
        _check_after_power_cut(tmp_path / f"cut-{number}", storage, writers)
    _check(tmp_path, writers)
