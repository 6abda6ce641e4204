"""The service as a process: start, lock, credentials, restart, stop."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub.client.port import Credentials
from loghub_consumer.service_process import ServiceEndedError
from loghub_service.storage.segment_format import SEGMENT_HEADER_BYTES
from tests.loghub_service.rawclient import RawClient, group_of
from tests.support import ROOT, ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loghub_service", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_sigterm_ends_the_service_with_status_0_and_keeps_all_data(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create(shards=2)
            client.create_group("g", timeout=33)
            client.put(group_of("kept"), key="0" * 32)
            client.heartbeat("a", [])
            client.checkpoint(1, 99, consumer="a")
            before = client.status()
        assert service.terminate() == 0
        service.start()
        with RawClient(service) as client:
            assert client.pull_all() == [group_of("kept")]
            after = client.status()
            # The holders have a new session, because it is not known how long they were silent.
            assert [s["holder"] for s in after["shards"]] == ["a", "a"]
            assert [s["checkpoint"] for s in after["shards"]] == [s["checkpoint"] for s in before["shards"]]
            assert after["group"] == before["group"] == {"name": "g", "timeout_s": 33, "order": False}
            assert [c["name"] for c in after["consumers"]] == ["a"]
            assert client.heartbeat("a", []) == [0, 1]


def test_a_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        second = _run("--data", str(service.data), "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert f"in use by process {service.pid}" in second.stderr
        with RawClient(service) as client:
            client.create()


def test_a_folder_that_is_moved_away_ends_its_service(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create()
            client.put(group_of("kept"))
        moved = service.data.rename(tmp_path / "moved")
        assert service.wait() == 1
        assert "moved, removed or replaced while it was in use" in service.log_tail()
        assert not service.data.exists()
        service.data = moved
        service.start()
        with RawClient(service) as client:
            assert client.pull_all() == [group_of("kept")]


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        second = _run("--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{service.port}")
    assert second.returncode == 1
    assert "Address already in use" in second.stderr.splitlines()[-1]
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("missing", ["accessKeyId", "accessKeySecret"])
def test_missing_credentials_are_reported_in_one_line(tmp_path: Path, missing: str) -> None:
    for name in {"accessKeyId", "accessKeySecret"} - {missing}:
        (tmp_path / name).write_text("x")
    run = _run(
        "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--credentials-dir", str(tmp_path)
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith(f"{missing} does not exist")


@pytest.mark.parametrize("listen", ["127.0.0.1", ":x", "127.0.0.1:70000"])
def test_an_invalid_address_is_a_usage_error(tmp_path: Path, listen: str) -> None:
    run = _run("--data", str(tmp_path), "--listen", listen)
    assert run.returncode == 2
    assert "HOST:PORT" in run.stderr


def _output_of_one_run(command: list[str], port_file: Path) -> str:
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: port_file.exists() or process.poll() is not None, "the port file")
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    return output


def test_without_a_credentials_folder_the_service_generates_a_key(tmp_path: Path) -> None:
    data, port_file = tmp_path / "data", tmp_path / "port"
    command = [sys.executable, "-m", "loghub_service", "--data", str(data)]
    command += ["--listen", "127.0.0.1:0", "--port-file", str(port_file)]
    secrets = set()
    for _ in range(2):
        port_file.unlink(missing_ok=True)
        output = _output_of_one_run(command, port_file)
        folder = data / "credentials"
        secret = (folder / "accessKeySecret").read_text()
        secrets.add(secret)
        assert len(secret) == 40
        assert secret not in output
        assert str(folder) in output
        assert f"listening on {port_file.read_text().strip()}" in output
        for name in ("accessKeyId", "accessKeySecret"):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert len(secrets) == 1  # kept over the restart


def test_a_stop_during_the_start_exits_with_status_0(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loghub_service", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        assert process.stdout is not None
        assert '"event": "access keys read"' in process.stdout.readline()  # logged before the data is opened
        process.terminate()
        rest, _ = process.communicate(timeout=180)
    assert process.returncode == 0, rest
    assert '"event": "stopped"' in rest


def test_rotated_credentials_take_effect(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create()
        old = service.credentials
        service.credentials = Credentials(access_key_id="newKeyId", access_key_secret="newKeySecret")
        for name, value in (("accessKeyId", "newKeyId"), ("accessKeySecret", "newKeySecret")):
            fresh = service.credentials_dir / f"{name}.new"
            fresh.write_text(value)
            os.replace(fresh, service.credentials_dir / name)
        with RawClient(service) as client:
            wait_until(lambda: client.send("GET", "/").status == 200, "the new key to be valid")
        service.credentials = old
        with RawClient(service) as client:
            assert client.send("GET", "/").code == "Unauthorized"


def test_each_state_change_is_one_log_line_and_no_line_contains_a_secret(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create()
            client.create_group()
            client.heartbeat("a", [])
        service.terminate()
        changes = service.events("shard state changed")
        keys = ("project", "logstore", "group", "shard", "old", "new", "trigger", "holder")
        assert [tuple(change.get(key) for key in keys) for change in changes] == [
            ("demo", "access", "g", 0, None, "not_alloc", "appeared", None),
            ("demo", "access", "g", 0, "not_alloc", "already_alloc", "assigned", "a"),
        ]
        assert service.credentials.access_key_secret not in service.log.read_text()


def test_damaged_log_data_is_reported_with_its_place_at_the_start(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create()
            for text in "abc":
                client.put(group_of(text * 100))
        service.terminate()
        (segment,) = service.data.glob("logs/*/*/*.seg")
        with segment.open("r+b") as file:
            file.seek(SEGMENT_HEADER_BYTES + 50)
            file.write(b"?")
    run = _run("--data", str(service.data), "--listen", "127.0.0.1:0")
    assert run.returncode == 1
    assert f"{segment} at {SEGMENT_HEADER_BYTES}" in run.stderr.splitlines()[-1]


def test_base_names_restrict_the_hosts(tmp_path: Path) -> None:
    extra = ("--base-name", "loghub.svc", "--base-name=loghub.svc.cluster.local")
    with running_service(tmp_path, extra=extra) as service, RawClient(service) as client:
        for host in ("demo.loghub.svc", "demo.loghub.svc.cluster.local", "demo.127.0.0.1"):
            client.host_header = host
            assert client.send("GET", "/").code == "ProjectNotExist"
        client.host_header = "demo.elsewhere.net"
        assert client.send("GET", "/").code == "MissingHost"


def test_the_address_it_listens_on_is_a_name_of_the_service_too(tmp_path: Path) -> None:
    extra = ("--listen", "[::]:0", "--base-name", "loghub.svc")
    with running_service(tmp_path, extra=extra) as service, RawClient(service) as client:
        client.host_header = "demo.[::]"
        assert client.send("GET", "/").code == "ProjectNotExist"
        client.host_header = "demo.[fd00::7]"
        assert client.send("GET", "/").code == "MissingHost"


def test_a_failing_disk_stops_the_service_and_nothing_unsynced_is_acknowledged(
    tmp_path: Path, library: Path
) -> None:
    """After a failed sync it is not known what the kernel has dropped (docs/decisions/storage.md)."""
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create(shards=2)
        client.put(group_of("before"), key="0" * 32)
        service.terminate()
    (segment,) = tmp_path.glob("data/logs/*/000000/*.seg")
    # Shard 1, born at the same moment, will have a segment of the same name.
    environment = {"LD_PRELOAD": str(library), "STABLE_FAIL": f"000001/{segment.name}"}
    broken = ServiceProcess(tmp_path, environment=environment)
    broken.start()
    with RawClient(broken) as client:
        reply = client.put(group_of("not durable"), key="e" * 32)
        assert (reply.status, reply.code) == (500, "InternalServerError")
    wait_until(lambda: not broken.running, "the service to end by itself")
    assert broken.kill9() == 1
    with running_service(tmp_path) as service, RawClient(service) as client:
        assert client.pull_all() == [group_of("before")]


def test_the_start_fails_if_the_recovered_log_cannot_be_synced(tmp_path: Path, library: Path) -> None:
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create()
        client.put(group_of("before"))
    broken = ServiceProcess(tmp_path, environment={"LD_PRELOAD": str(library), "STABLE_FAIL": ".seg"})
    with pytest.raises(ServiceEndedError, match=r"\.seg: .*Input/output error"):
        broken.start()
    assert not broken.running


@contextmanager
def _gated(tmp_path: Path, library: Path, files: str) -> Iterator[tuple[ServiceProcess, Path]]:
    """A service whose syncs of these files wait while the file that serves as the gate does not exist."""
    gate = tmp_path / "gate"
    gate.touch()
    environment = {"LD_PRELOAD": str(library), "STABLE_GATE": str(gate), "STABLE_GATED": files}
    with running_service(tmp_path, environment=environment) as service:
        yield service, gate


def test_a_slow_log_disk_does_not_delay_heartbeats(tmp_path: Path, library: Path) -> None:
    """A put waits for its sync; a heartbeat that changes nothing waits for no disk."""
    with _gated(tmp_path, library, ".seg") as (service, gate):
        with RawClient(service) as client:
            client.create()
            client.create_group()
            client.put(group_of("first"))
            client.heartbeat("a", [])
        gate.unlink()
        with RawClient(service) as writer, RawClient(service) as client:
            group = group_of("slow")
            writer.begin_put(group)
            for _ in range(20):
                assert client.heartbeat("a", [0]) == [0]
            assert client.pull_all() == [group_of("first")]  # not durable, so not readable
            gate.touch()
            assert writer.end().status == 200
            assert client.pull_all() == [group_of("first"), group]


def test_a_checkpoint_is_answered_only_once_it_is_durable(tmp_path: Path, library: Path) -> None:
    """So is every response that depends on it. A group without unsaved changes is not delayed."""
    with _gated(tmp_path, library, "-wal") as (service, gate):
        with RawClient(service) as client:
            client.create()
            client.create_group("g")
            client.create_group("other")
            client.heartbeat("a", [])
            client.heartbeat("a", [], group="other")
        gate.unlink()
        path = "/logstores/access/consumergroups/g"
        query = {"type": "checkpoint", "consumer": "a", "forceSuccess": "false"}
        with RawClient(service) as saver, RawClient(service) as reader, RawClient(service) as client:
            saver.begin("POST", path, query, body=b'{"shard":0,"checkpoint":"NzE="}', headers={})
            assert not saver.answered(within_s=0.3)
            reader.begin("GET", path, {}, body=b"", headers={})
            assert client.heartbeat("a", [0], group="other") == [0]
            assert not saver.answered(within_s=0.1)
            assert not reader.answered(within_s=0.1)
            gate.touch()
            assert saver.end().status == 200
            assert reader.end().json()[0]["checkpoint"] == "NzE="
