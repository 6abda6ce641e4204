"""``python -m loghub_operator`` as a process, with the log service as another.

Both are real, and so is the apiserver; there are no nodes, so no worker ever runs.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from tests.loghub_operator.api_server import ROOT, Apiserver
from tests.loghub_operator.examples import document

pytestmark = pytest.mark.cluster

GUARD_S = 180.0
KEY = Credentials(access_key_id="an-id", access_key_secret="a-secret-that-is-never-shown")
PATHS = os.pathsep.join(str(ROOT / part) for part in ("", "operator", "worker"))


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait for a condition; the guard is for a hang."""
    end = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < end, f"not seen: {what}"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(output: Path, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A Python program of this checkout; killed at the end if it still runs."""
    with output.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": PATHS, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait(GUARD_S)


@contextmanager
def log_service(folder: Path) -> Iterator[str]:
    """The embedded service with a key; its URL."""
    keys = folder / "keys"
    keys.mkdir()
    (keys / "accessKeyId").write_text(KEY.access_key_id)
    (keys / "accessKeySecret").write_text(KEY.access_key_secret)
    port_file = folder / "port"
    options = ("--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--port-file", str(port_file))
    with process(
        folder / "service.log", "-m", "loghub.service", *options, "--credentials-dir", str(keys)
    ) as child:
        until("the service's port", lambda: port_file.exists() or child.poll() is not None)
        assert child.poll() is None, (folder / "service.log").read_text()
        yield f"http://{port_file.read_text().strip()}"


class Operator:
    """How to start the operator over and over."""

    def __init__(self, server: Apiserver, folder: Path, endpoint: str, namespace: str) -> None:
        self.log = folder / "operator.log"
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            "KUBECONFIG": str(server.as_the_operator(folder)),
            "LOGHUB_EMBEDDED_ENDPOINT": endpoint,
            "LOGHUB_LIVENESS_ADDRESS": self.address,
            "LOGHUB_NAMESPACES": namespace,
            "LOGHUB_RESYNC_SECONDS": "1",
        }

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        with process(self.log, "-m", "loghub_operator", **self.environment) as child:
            yield child

    def alive(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.address}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def test_killed_between_apply_and_delete_it_finishes_both(server: Apiserver, tmp_path: Path) -> None:
    namespace = f"p-{uuid.uuid4().hex[:8]}"
    server.must("create", "namespace", namespace)
    data = {
        "accessKeyId": base64.b64encode(KEY.access_key_id.encode()).decode(),
        "accessKeySecret": base64.b64encode(KEY.access_key_secret.encode()).decode(),
    }
    about = {"name": "loghub-credentials", "namespace": namespace}
    server.apply({"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data})
    with log_service(tmp_path) as endpoint:
        hub = HttpLogHub(endpoint, "demo", credentials=KEY)
        hub.create_project()
        hub.create_logstore("access", shards=2)
        operator = Operator(server, tmp_path, endpoint, namespace)
        group = document({"deletionPolicy": "Delete", "replicas": 3}, namespace=namespace)
        assert server.apply(group).returncode == 0

        def stateful_set() -> dict[str, object]:
            found = server.run("get", "sts", "access", "-n", namespace, "-o", "json").stdout
            return dict(json.loads(found)) if found else {}

        with operator.running() as child:
            until("alive", operator.alive)
            until("the group", lambda: [one.name for one in hub.list_groups("access")] == ["access"])
            until("the workers", lambda: bool(stateful_set()))
            spec = stateful_set()["spec"]
            assert isinstance(spec, dict)
            assert spec["replicas"] == 2  # as many as there are shards
            child.kill()
            child.wait(GUARD_S)
        server.must("delete", "lhcg", "access", "-n", namespace, "--wait=false")
        assert server.must("get", "lhcg", "access", "-n", namespace, "-o", "name")
        with operator.running() as child:
            gone = ("get", "lhcg", "access", "-n", namespace)
            until("the object gone", lambda: "NotFound" in server.run(*gone).stderr)
            assert hub.list_groups("access") == ()
            assert stateful_set() == {}
            child.send_signal(signal.SIGTERM)
            assert child.wait(GUARD_S) == 0
        hub.close()
    assert KEY.access_key_secret not in operator.log.read_text()
