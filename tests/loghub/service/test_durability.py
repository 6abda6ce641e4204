"""Nothing acknowledged is lost: by kill -9, and by a power cut that takes the page cache."""

import shutil
from pathlib import Path

import pytest

from loghub.wire import cursor as wire_cursor
from tests.loghub.service import stable_storage
from tests.loghub.service.rawclient import RawClient, group_of
from tests.loghub.service.stable_storage import StableStorage
from tests.loghub.service.writers import Writers, lost, prepare
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long

ACKS = 250
QUIET_LOOKS = 10
SMALL_SEGMENTS = ("--segment-mib", "1")


def test_kill9_during_writes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
        prepare(service)
        for _ in range(2):
            writers = Writers(service)
            writers.run_until(acks=ACKS)
            service.kill9()
            writers.join()
            assert len(writers.acked) >= ACKS
            service.start()
            assert _lost_of(service, writers) == []
            _start_over(service)


def test_kill9_during_splits_and_merges_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The rows and files of every single step are in `test_reshard_crash`; here is a real kill."""
    with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
        prepare(service)
        for _ in range(3):
            writers = Writers(service, reshard=True)
            writers.run_until(acks=ACKS)
            service.kill9()
            writers.join()
            assert writers.made
            service.start()
            assert _lost_of(service, writers) == []
            _start_over(service)


def _lost_of(service: ServiceProcess, writers: Writers) -> list[str]:
    missing = lost(service, writers)
    with RawClient(service) as client:  # and it takes new data
        assert client.put(group_of("after")).status == 200
    return missing


def _start_over(service: ServiceProcess) -> None:
    with RawClient(service) as client:
        client.ok("DELETE", "/logstores/access")
        client.ok("DELETE", "/")
    prepare(service)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stable_storage.build(tmp_path_factory.mktemp("shim"))


def _power_cut(tmp_path: Path, library: Path, *, ignore: str = "") -> list[str]:
    """Write, cut the power, restart on what is left; what was acknowledged and is gone."""
    (tmp_path / "data").mkdir()
    storage = StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")
    environment = storage.environment(ignore=ignore)
    with running_service(tmp_path, extra=SMALL_SEGMENTS, environment=environment) as service:
        prepare(service)
        writers = Writers(service)
        writers.run_until(acks=ACKS)
        service.kill9()
        writers.join()
    assert len(writers.acked) >= ACKS
    shutil.rmtree(tmp_path / "data")
    storage.after_power_cut(tmp_path / "data")
    with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
        return lost(service, writers)


def test_power_cut_during_writes_loses_nothing_acknowledged(tmp_path: Path, library: Path) -> None:
    assert _power_cut(tmp_path, library) == []


@pytest.mark.parametrize(
    ("ignore", "what"),
    [
        (".seg", "group "),  # log data
        ("-wal", "all: "),  # SQLite: already the project was only in the log
        ("/000000", "group "),  # the names of one shard's log files
    ],
)
def test_without_its_sync_a_power_cut_loses_data(
    tmp_path: Path, library: Path, ignore: str, what: str
) -> None:
    """The test above can fail: the same run with one kind of sync taken out loses what it guards."""
    missing = _power_cut(tmp_path, library, ignore=ignore)
    assert [line for line in missing if line.startswith(what)], missing


@pytest.mark.parametrize("unsynced", [".seg", "-wal"])
def test_what_a_restart_shows_survives_a_power_cut(tmp_path: Path, library: Path, unsynced: str) -> None:
    """A kill before the sync leaves a write in the page cache, where the restart finds it. Who has been
    shown it may rest on it, so from then on it must stay."""
    (tmp_path / "data").mkdir()
    gate = tmp_path / "gate"
    gate.touch()
    storage = StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")
    environment = storage.environment() | {"STABLE_GATE": str(gate), "STABLE_GATED": unsynced}
    with running_service(tmp_path, environment=environment) as service:
        with RawClient(service) as client:
            client.create()
            client.create_group()
            client.put(group_of("first"))
            gate.unlink()
            (file,) = tmp_path.glob(f"data/**/*{unsynced}")
            before = file.read_bytes()
            if unsynced == ".seg":
                client.begin_put(group_of("late"))
            else:
                client.begin_checkpoint(0, 7, consumer="", force="true")
            looks = [before]
            wait_until(lambda: _is_written(file, looks), "the write to be in the file")
            service.kill9()
        gate.touch()
        service.start()
        shown = _shown(service)
        service.kill9()
    shutil.rmtree(tmp_path / "data")
    storage.after_power_cut(tmp_path / "data")
    with running_service(tmp_path) as service:
        assert _shown(service) == shown
    late = ([group_of("first"), group_of("late")], "")
    assert shown == (late if unsynced == ".seg" else ([group_of("first")], wire_cursor.encode(7)))


def _is_written(file: Path, looks: list[bytes]) -> bool:
    """Something new, and since many looks no more: the sync behind it does not end."""
    looks.append(file.read_bytes())
    return len(looks) > QUIET_LOOKS and looks[0] != looks[-1] and len(set(looks[-QUIET_LOOKS:])) == 1


def _shown(service: ServiceProcess) -> tuple[list[bytes], str]:
    with RawClient(service) as client:
        (saved,) = client.ok("GET", "/logstores/access/consumergroups/g").json()
        return client.pull_all(), saved["checkpoint"]
