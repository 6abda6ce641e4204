"""The operator and the log service as processes.

For tests of the real programs over a real apiserver; there are no nodes, so no worker ever runs.
"""

import base64
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.client.port import Credentials
from tests.loghub_operator.support.apiserver import Apiserver
from tests.ports import free_port
from tests.support import PYTHON_PATH

GUARD_S = 180.0
KEY = Credentials(access_key_id="an-id", access_key_secret="a-secret-that-is-never-shown")


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait for a condition; the guard is for a hang."""
    end = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < end, f"not seen: {what}"
        time.sleep(0.1)


@contextmanager
def process(output: Path, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A Python program of this checkout; killed at the end if it still runs."""
    with output.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": PYTHON_PATH, **environment},
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
        folder / "service.log", "-m", "loghub_service", *options, "--credentials-dir", str(keys)
    ) as child:
        until("the service's port", lambda: port_file.exists() or child.poll() is not None)
        assert child.poll() is None, (folder / "service.log").read_text()
        address = port_file.read_text().strip()
        until("the service", lambda: health(address)[0] == 200 or child.poll() is not None)
        yield f"http://{address}"


class Operator:
    """How to start the operator over and over."""

    def __init__(
        self, server: Apiserver, folder: Path, endpoint: str, namespace: str, *, name: str = "operator"
    ) -> None:
        self.log = folder / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            "KUBECONFIG": str(server.as_the_operator(folder)),
            "LOGHUB_EMBEDDED_ENDPOINT": endpoint,
            "LOGHUB_HTTP_ADDRESS": self.address,
            "LOGHUB_WATCH_NAMESPACES": namespace,
            "LOGHUB_RESYNC_SECONDS": "1",
        }

    @contextmanager
    def running(self, *program: str) -> Iterator["subprocess.Popen[bytes]"]:
        with process(self.log, "-m", *(program or ("loghub_operator",)), **self.environment) as child:
            yield child

    def alive(self) -> bool:
        return health(self.address)[0] == 200


def health(address: str) -> tuple[int, str]:
    """The HTTP status of ``/healthz``; 0 without an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/healthz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return 0, ""


def make_namespace(server: Apiserver) -> str:
    """A new one, with the key's Secret in it."""
    namespace = f"p-{uuid.uuid4().hex[:8]}"
    server.create_namespace(namespace)
    data = {
        "accessKeyId": base64.b64encode(KEY.access_key_id.encode()).decode(),
        "accessKeySecret": base64.b64encode(KEY.access_key_secret.encode()).decode(),
    }
    metadata = {"name": "loghub-credentials", "namespace": namespace}
    server.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    return namespace
