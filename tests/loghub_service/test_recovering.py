"""The service listens at once: while it recovers it says how far it is, and serves nothing else."""

import json
import os
import socket
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire.errors import Code, LogHubError
from loghub_consumer.service_process import ServiceEndedError
from tests.loghub_service.rawclient import RawClient, group_of
from tests.support import ServiceProcess, get, running_service, wait_until

pytestmark = pytest.mark.long


class Recovering(ServiceProcess):
    """A service that is not waited for: `start` returns as soon as it listens."""

    def is_ready(self) -> bool:
        return self.health()[0] != 0


def refuses_connections(service: ServiceProcess) -> bool:
    """A connection that nobody accepts would be made by the kernel, and its client would wait."""
    try:
        socket.create_connection((service.host, service.port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_recovering_service_says_how_far_it_is(tmp_path: Path, library: Path) -> None:
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create(shards=3)
        for key in ("0" * 32, "8" * 32, "e" * 32):
            client.put(group_of("before"), key=key)
        port = service.port
    gate = tmp_path / "gate"
    # The sync of the last log's folder waits for the gate.
    environment = {"LD_PRELOAD": str(library), "STABLE_GATE": str(gate), "STABLE_GATED": "/000002"}
    recovering = Recovering(tmp_path, port=port, environment=environment)
    try:
        recovering.start()
        read = {"status": "recovering", "message": "recovering 2 of 3 shards"}
        wait_until(lambda: json.loads(recovering.health()[1]) == read, "two of the logs to be recovered")
        assert recovering.health()[0] == 503
        assert get(f"{recovering.host}:{port}", "/_loghub/v1/info")[0] == 503
        log_service = HttpLogHub(recovering.endpoint, "demo", credentials=recovering.credentials)
        with pytest.raises(LogHubError) as busy:
            log_service.get_cursor("access", 0, "end")
        assert (busy.value.code, busy.value.status) == (Code.SERVER_BUSY, 503)
        with RawClient(recovering) as client:  # also with a body, which is not read
            assert client.put(group_of("x" * 100_000)).status == 503
        gate.touch()
        wait_until(lambda: recovering.health()[0] == 200, "the end of the recovery")
        with RawClient(recovering) as client:
            assert client.pull_all() == [group_of("before")]
    finally:
        recovering.kill9()


def test_a_stop_during_the_recovery_exits_with_status_0(tmp_path: Path, library: Path) -> None:
    """After the step that is under way; the next start recovers everything."""
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create(shards=2)
        client.put(group_of("before"), key="0" * 32)
        client.put(group_of("before"), key="f" * 31 + "e")
    gate = tmp_path / "gate"
    environment = {"LD_PRELOAD": str(library), "STABLE_GATE": str(gate), "STABLE_GATED": ".seg"}
    recovering = Recovering(tmp_path, environment=environment)
    recovering.start()
    os.kill(recovering.pid, 15)
    wait_until(lambda: refuses_connections(recovering), "the end of listening")
    gate.touch()
    assert recovering.wait() == 0
    with running_service(tmp_path) as service, RawClient(service) as client:
        assert client.pull_all() == [group_of("before")]


def test_a_refused_start_ends_the_process_with_one_line(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        with RawClient(service) as client:
            client.create()
            client.put(group_of("kept"))
        service.terminate()
        (service.data / "metadata.sqlite").unlink()
        with pytest.raises(ServiceEndedError, match="the service ended at its start"):
            service.start()
        last = service.log.read_text().splitlines()[-1]
        assert last.startswith("loghub_service: metadata.sqlite is missing")
        assert f"run `loghub fsck {service.data}`" in last
        assert "Traceback" not in service.log.read_text()
        assert list(service.data.glob("logs/*/*/*.seg"))
