"""No acknowledged data is lost by kill -9, nor by a power cut that loses the page cache."""

import shutil
from pathlib import Path

import pytest

from loghub.wire import cursor as wire_cursor
from loghub_consumer.service_process import ServiceEndedError
from tests.loghub_service.rawclient import RawClient, group_of
from tests.loghub_service.stable_storage import StableStorage
from tests.loghub_service.writers import Writers, missing_data, prepare
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long

ACKS = 80
QUIET_READS = 10
SMALL_SEGMENTS = ("--segment-mib", "1")


@pytest.mark.deep
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
            assert _missing_after_restart(service, writers) == []
            _start_over(service)


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.deep)])
def test_kill9_during_splits_and_merges_loses_nothing_acknowledged(tmp_path: Path, kills: int) -> None:
    """Nor of what is written meanwhile. `test_reshard_crash` tests every single step; this is a real kill."""
    with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
        prepare(service)
        for _ in range(kills):
            writers = Writers(service, reshard=True)
            writers.run_until(acks=ACKS)
            service.kill9()
            writers.join()
            assert writers.created
            service.start()
            assert _missing_after_restart(service, writers) == []
            _start_over(service)


def _missing_after_restart(service: ServiceProcess, writers: Writers) -> list[str]:
    missing = missing_data(service, writers)
    with RawClient(service) as client:  # and it takes new data
        assert client.put(group_of("after")).status == 200
    return missing


def _start_over(service: ServiceProcess) -> None:
    with RawClient(service) as client:
        client.ok("DELETE", "/logstores/access")
        client.ok("DELETE", "/")
    prepare(service)


def _power_cut(tmp_path: Path, library: Path, *, ignore: str = "", acks: int = ACKS) -> list[str]:
    """Write, cut the power, restart on what is left. Return the acknowledged data that is missing."""
    (tmp_path / "data").mkdir()
    storage = StableStorage(library=library, live=tmp_path / "data", shadow=tmp_path / "shadow")
    environment = storage.environment(ignore=ignore)
    with running_service(tmp_path, extra=SMALL_SEGMENTS, environment=environment) as service:
        prepare(service)
        writers = Writers(service)
        writers.run_until(acks=acks)
        service.kill9()
        writers.join()
    assert len(writers.acked) >= acks
    shutil.rmtree(tmp_path / "data")
    storage.after_power_cut(tmp_path / "data")
    with running_service(tmp_path, extra=SMALL_SEGMENTS) as service:
        return missing_data(service, writers)


def test_power_cut_during_writes_loses_nothing_acknowledged(tmp_path: Path, library: Path) -> None:
    assert _power_cut(tmp_path, library) == []


@pytest.mark.parametrize(
    ("ignore", "what"),
    [
        (".seg", "group "),  # log data
        ("/000000", "group "),  # the names of one shard's log files
    ],
)
def test_a_power_cut_loses_data_if_a_sync_is_left_out(
    tmp_path: Path, library: Path, ignore: str, what: str
) -> None:
    """Proves that the test above can fail: the same run without one kind of sync loses the data it
    protects."""
    missing = _power_cut(tmp_path, library, ignore=ignore)
    assert [line for line in missing if line.startswith(what)], missing


def test_a_power_cut_without_the_sync_of_the_metadata_is_refused(tmp_path: Path, library: Path) -> None:
    """The catalog lacks all that was created: it must not be served as an empty one, nor the logs removed."""
    with pytest.raises(ServiceEndedError, match=r"metadata\.sqlite .*run `loghub fsck"):
        # So few that SQLite does not move its write-ahead log (1,000 pages) to the database meanwhile.
        _power_cut(tmp_path, library, ignore="-wal", acks=40)
    assert list(tmp_path.glob("data/logs/*/*/*.seg"))


@pytest.mark.parametrize("unsynced", [".seg", "-wal"])
def test_data_that_is_read_after_a_restart_survives_a_power_cut(
    tmp_path: Path, library: Path, unsynced: str
) -> None:
    """A kill before the sync leaves a write in the page cache, and the restarted service returns it. A client
    may rely on it from then on, so it must be durable."""
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
            contents_read = [before]
            wait_until(lambda: _is_written(file, contents_read), "the write to be in the file")
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


def _is_written(file: Path, contents_read: list[bytes]) -> bool:
    """The file has changed, and then stayed the same for many reads: the sync after the write does not
    return."""
    contents_read.append(file.read_bytes())
    return (
        len(contents_read) > QUIET_READS
        and contents_read[0] != contents_read[-1]
        and len(set(contents_read[-QUIET_READS:])) == 1
    )


def _shown(service: ServiceProcess) -> tuple[list[bytes], str]:
    with RawClient(service) as client:
        (saved,) = client.ok("GET", "/logstores/access/consumergroups/g").json()
        return client.pull_all(), saved["checkpoint"]
