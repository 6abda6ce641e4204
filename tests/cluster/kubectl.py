"""`kubectl` for tests: objects as values, waits on conditions, a forwarded port.

Objects are read without it, by a request: tests wait by asking again, and a process for each question would
cost more than its answer.
"""

import base64
import functools
import json
import os
import queue
import re
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.cluster.processes import BRIEF, wait_until

Object = dict[str, Any]
T = TypeVar("T")
FORWARD_GUARD_S = 30.0
REQUEST_GUARD_S = 60.0
# Where the API has what tests read: the group with its version, and the name in a path.
_KINDS = {
    "event": ("api/v1", "events"),
    "hpa": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "lease": ("apis/coordination.k8s.io/v1", "leases"),
    "lhcg": ("apis/loghub.dev/v1alpha1", "loghubconsumergroups"),
    "pod": ("api/v1", "pods"),
    "pvc": ("api/v1", "persistentvolumeclaims"),
    "rolebinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "service": ("api/v1", "services"),
    "statefulset": ("apis/apps/v1", "statefulsets"),
}


class RefusedError(RuntimeError):
    """kubectl ended with an error; the text is what it said."""


class Kubectl:
    """One cluster's `kubectl`."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(kubeconfig)]
        self._kubeconfig = kubeconfig

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [*self._command, *arguments]

    def run(self, *arguments: str, text: str | None = None, guard_s: float = 120) -> str:
        """Standard output; raises `RefusedError`."""
        command = self.command(*arguments)
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=guard_s,
            check=False,
            env=os.environ | BRIEF,
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def apply(self, *objects: Object, namespace: str = "") -> None:
        """Objects that name their namespace themselves, or all in ``namespace``."""
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        where = ("--namespace", namespace) if namespace else ()
        self.run("apply", "--server-side", *where, "-f", "-", text=whole)

    def create(self, document: Object) -> Object:
        """The object as the API server answers."""
        answer: Object = json.loads(self.run("create", "-f", "-", "-o", "json", text=json.dumps(document)))
        return answer

    def patch(self, kind: str, name: str, namespace: str, change: Object) -> None:
        self.run("patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(change))

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        return self._read(kind, namespace, name)

    def list(self, kind: str, namespace: str = "", selector: str = "") -> list[Object]:
        """In all namespaces where none is given."""
        found = self._read(kind, namespace, selector=selector) or {}
        items: list[Object] = found.get("items", [])
        return items

    def _read(self, kind: str, namespace: str, name: str = "", selector: str = "") -> Object | None:
        """None where it does not exist; raises `RefusedError`."""
        version, plural = _KINDS[kind]
        place = f"namespaces/{namespace}/{plural}" if namespace else plural
        path = f"{version}/{place}/{name}" if name else f"{version}/{place}"
        query = urllib.parse.urlencode({"labelSelector": selector} if selector else {})
        try:
            with self._opener.open(f"{self._server}/{path}?{query}", timeout=REQUEST_GUARD_S) as answer:
                result: Object = json.load(answer)
                return result
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise RefusedError(error.read().decode(errors="replace")) from error
        except OSError as error:
            raise RefusedError(str(error)) from error

    @functools.cached_property
    def _config(self) -> Object:
        """Cluster and user of the kubeconfig, which has only one of each."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        return {**config["clusters"][0]["cluster"], **config["users"][0]["user"]}

    @property
    def _server(self) -> str:
        server: str = self._config["server"]
        return server

    @functools.cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        def decoded(name: str) -> str:
            return base64.b64decode(self._config[f"{name}-data"]).decode()

        context = ssl.create_default_context(cadata=decoded("certificate-authority"))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(decoded("client-certificate") + decoded("client-key"))
            pair.flush()
            context.load_cert_chain(pair.name)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    @contextmanager
    def forward(self, target: str, namespace: str, port: int, *, local: int = 0) -> Iterator[int]:
        """The local port that leads to ``port`` of the target; a free one unless it is given."""
        ports = f"{local or ''}:{port}"
        arguments = ["port-forward", target, ports, "-n", namespace, "--address", "127.0.0.1"]
        with subprocess.Popen(
            [*self._command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            try:
                yield _forwarded_port(child)
            finally:
                child.kill()


def is_ready(pod: Object) -> bool:
    """Ready, and not being deleted."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _forwarded_port(child: "subprocess.Popen[str]") -> int:
    """The port that kubectl names first; goes on reading, so that the pipe never fills."""
    said: queue.Queue[int | None] = queue.Queue()

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if result := re.search(r"127\.0\.0\.1:(\d+) ->", line):
                said.put(int(result[1]))
        said.put(None)

    threading.Thread(target=read, daemon=True).start()
    port = said.get(timeout=FORWARD_GUARD_S)
    assert port is not None, "kubectl port-forward ended"
    return port


def eventually(ask: Callable[[], T | None], *, what: str, guard_s: float = 180.0, pause_s: float = 0.3) -> T:
    """The first answer that is not None or False; after ``guard_s`` seconds an error."""
    answers: list[T] = []

    def answered() -> bool:
        answer = ask()
        if answer is not None and answer is not False:
            answers.append(answer)
        return bool(answers)

    wait_until(answered, what=what, guard_s=guard_s, pause_s=pause_s)
    return answers[0]
