"""`helm test`: its script, run as the pod would run it, against the real apiserver."""

import base64
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.charts.chart import FOLDER, Chart, only
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import make_namespace

SCRIPT = FOLDER / "files" / "check.py"


@contextmanager
def operator(status: int) -> Iterator[str]:
    """Something that answers /healthz with this status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(b"what it said\n")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}/healthz"
        listening.shutdown()


@pytest.fixture(scope="module")
def account(server: Apiserver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is mounted in a pod whose account has no rights at all."""
    folder = tmp_path_factory.mktemp("account")
    namespace = make_namespace(server)
    server.must("create", "serviceaccount", "nobody", "-n", namespace)
    (folder / "token").write_text(server.must("create", "token", "nobody", "-n", namespace))
    (cluster,) = yaml.safe_load(server.kubeconfig.read_text())["clusters"]
    (folder / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    return folder


def check(
    server: Apiserver, account: Path, url: str, *, code: str = ""
) -> "subprocess.CompletedProcess[str]":
    (cluster,) = yaml.safe_load(server.kubeconfig.read_text())["clusters"]
    address = urlsplit(cluster["cluster"]["server"])
    environment = {
        "KUBERNETES_SERVICE_HOST": address.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "LOGHUB_CHECK_ACCOUNT": str(account),
        "LOGHUB_CHECK_OPERATOR": url,
        "LOGHUB_CHECK_SECONDS": "0",
    }
    command = [sys.executable, "-c", code or SCRIPT.read_text()]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_check_succeeds(server: Apiserver, account: Path) -> None:
    with operator(200) as url:
        done = check(server, account, url)
    assert (done.returncode, done.stdout) == (
        0,
        "/apis/loghub.dev/v1alpha1 is served and the operator is healthy\n",
    )


def test_the_check_fails_for_a_hanging_operator(server: Apiserver, account: Path) -> None:
    with operator(503) as url:
        done = check(server, account, url)
    assert done.returncode == 1
    assert "the operator is not healthy: HTTP Error 503" in done.stdout
    assert "what it said" in done.stdout


def test_the_check_fails_without_an_operator(server: Apiserver, account: Path) -> None:
    done = check(server, account, "http://127.0.0.1:9/healthz")
    assert done.returncode == 1
    assert "the operator is not healthy" in done.stdout


def test_the_check_fails_without_the_crd(server: Apiserver, account: Path) -> None:
    other = SCRIPT.read_text().replace("loghub.dev/v1alpha1", "loghub.dev/v9")
    with operator(200) as url:
        done = check(server, account, url, code=other)
    assert done.returncode == 1
    assert "the CRD is not served: HTTP Error 404" in done.stdout


def test_the_pod_runs_this_script_against_the_operators_service(chart: Chart) -> None:
    objects = chart.render()
    pod, service = only(objects, "Pod"), only(objects, "Service", "loghub-operator")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    assert container["args"] == [SCRIPT.read_text()]
    (port,) = service["spec"]["ports"]
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    (variable,) = container["env"]
    assert variable["value"] == f"http://{name}.{namespace}.svc:{port['port']}/healthz"
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
