"""One object that brings out a fault among others, with the operator as a process of its own.

Its log service does not answer: what an object raises when it is listed, watched and parsed does not need it.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.loghub_operator.support.apiserver import GUARD_S, Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.subprocesses import Operator, make_namespace

pytestmark = pytest.mark.cluster
# An API server decodes 10,000; Python's own limit is at a thousand.
LEVELS = 9_000
DEEP = "[" * LEVELS + "]" * LEVELS
GUARD = f"--timeout={GUARD_S - 60:.0f}s"


def template(inside: str) -> Document:
    return {"worker": {"podTemplate": {"metadata": {"x": inside}}}}


def test_an_object_that_no_other_could_read_stops_nobody_and_can_be_deleted(
    server: Apiserver, tmp_path: Path
) -> None:
    namespace = make_namespace(server)

    def create(name: str, spec: Document | None = None) -> None:
        text = json.dumps(document(spec, name=name, namespace=namespace)).replace('"DEEP"', DEEP)
        done = server.run("create", "-f", "-", text=text)
        assert done.returncode == 0, done.stderr[:500]

    def wait(name: str, reason: str, generation: int) -> None:
        for path, value in (
            (".status.conditions[0].reason", reason),
            (".status.observedGeneration", generation),
        ):
            what = f"--for=jsonpath={{{path}}}={value}"
            server.must("wait", f"lhcg/{name}", "-n", namespace, what, GUARD)

    def edit(name: str, field: str, value: object) -> None:
        """By a JSON patch: the API server takes seconds for a merge patch, time that grows as the square."""
        change = [{"op": "add", "path": f"/spec/{field}", "value": value}]
        file = tmp_path / "patch.json"
        file.write_text(json.dumps(change).replace('"DEEP"', DEEP))
        server.must("patch", f"lhcg/{name}", "-n", namespace, "--type=json", f"--patch-file={file}")

    def is_running(child: "subprocess.Popen[bytes]") -> None:
        assert child.poll() is None, operator.log.read_text()[-2000:]

    operator = Operator(server, tmp_path, "http://127.0.0.1:1", namespace)
    create("good")
    create("edited")
    with operator.running() as child:
        wait("good", "EndpointUnreachable", 1)
        wait("edited", "EndpointUnreachable", 1)
        create("deep", template("DEEP"))
        wait("deep", "InvalidSpec", 1)
        edit("edited", "worker", template("DEEP")["worker"])
        wait("edited", "InvalidSpec", 2)
        is_running(child)
    with operator.running() as child:
        edit("good", "replicas", 2)
        wait("good", "EndpointUnreachable", 2)
        for name in ("deep", "edited", "good"):
            server.must("delete", f"lhcg/{name}", "-n", namespace, GUARD)
        is_running(child)
