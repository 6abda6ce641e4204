"""The chart on a cluster, by the real helm: `helm install` with this checkout's images, its notes, `helm
test`.
"""

import json
import os
import re
import socket
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import paths
from tests.cluster.kubectl import Object
from tests.cluster.processes import BRIEF
from tests.cluster.stack import SERVICE_NAMESPACE, Stack

NAME = "loghub"
OPERATOR = "loghub-loghub-operator"  # Deployment and Lease
CHART = paths.REPOSITORY / "charts" / "loghub-operator"
GUARD_S = 240.0
# Of workers that live for minutes: the JVM's second compiler would not pay.
_WORKER = {"name": "worker", "env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1"}]}
_KAFKA = 9092
_PASTED = re.compile(r"kubectl apply -f - <<'EOF'\n(.*?)\n *EOF\n", re.DOTALL)


class Release:
    """One installed chart, operator and service in one namespace."""

    def __init__(self, stack: Stack, helm: Path) -> None:
        self.stack = stack
        self._helm = helm
        self.notes = ""
        # Held until it is forwarded, so that no other process gets it.
        self._kafka_port = socket.socket()
        self._kafka_port.bind(("127.0.0.1", 0))
        self._kafka_address = f"127.0.0.1:{self._kafka_port.getsockname()[1]}"

    def install(self, **values: Any) -> None:
        """Returns when two operators and the service are ready; ``values`` go over those of the images."""
        self._make_namespace()
        self.stack.make_volume("service-data", namespace=SERVICE_NAMESPACE, claim="data-loghub-service-0")
        whole = json.dumps({**self._images(), **values})
        arguments = ("install", NAME, str(CHART), "--values", "-", "--wait", "--timeout", "180s")
        self.notes = self._run(*arguments, text=whole)

    def pasted(self) -> str:
        """The resource that the notes say to paste, as it is there but for the indent."""
        result = _PASTED.search(self.notes)
        assert result is not None, self.notes
        return textwrap.dedent(result[1])

    @contextmanager
    def testing(self) -> Iterator[None]:
        """`helm test` while the body runs; it has passed when this ends.

        Without `--logs`: before it reads them helm 3 has removed the pod that succeeded, and fails.
        """
        arguments = self._command("test", NAME, "--timeout", "120s")
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
        ) as child:
            try:
                yield
                said, _ = child.communicate(timeout=GUARD_S)
            except BaseException:
                child.kill()
                raise
        assert child.returncode == 0, said
        assert re.search(r"Phase:\s+Succeeded", said), said

    @contextmanager
    def kafka(self) -> Iterator[str]:
        """Where Kafka clients of this machine reach the Service: the address that it advertises. Once."""
        self._kafka_port.close()
        local = int(self._kafka_address.rpartition(":")[2])
        with self.stack.kubectl.forward("service/loghub-service", SERVICE_NAMESPACE, _KAFKA, local=local):
            yield self._kafka_address

    def holder(self) -> str:
        """Who acts, another one after each start: the name of the operator's pod, ``_``, an id."""
        lease = self.stack.kubectl.get("lease", OPERATOR, SERVICE_NAMESPACE)
        holder: str = (lease or {}).get("spec", {}).get("holderIdentity", "")
        return holder

    def kill_leader(self) -> None:
        """SIGKILL to the process that leads; returns once the kubelet reports it."""
        pod, _, _ = self.holder().partition("_")
        self.stack.kill(pod, SERVICE_NAMESPACE)

    def take_lease_away(self) -> None:
        """Who acts holds nothing any more, and who waits may begin."""
        self.stack.kubectl.run("delete", "lease", OPERATOR, "-n", SERVICE_NAMESPACE)

    def _make_namespace(self) -> None:
        """As strict as a namespace can be."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace: Object = {"apiVersion": "v1", "kind": "Namespace"}
        namespace["metadata"] = {"name": SERVICE_NAMESPACE, "labels": labels}
        self.stack.kubectl.apply(namespace)
        self.stack.make_secret(SERVICE_NAMESPACE)

    def _images(self) -> dict[str, Any]:
        images = {part: _image(name) for part, name in self.stack.cluster.images.items()}
        return {
            "image": images["operator"],
            "worker": {"image": images["worker"], "podTemplate": {"spec": {"containers": [_WORKER]}}},
            "embeddedService": {
                "enabled": True,
                "image": images["service"],
                "kafka": {"enabled": True, "plaintext": True, "advertisedAddress": self._kafka_address},
            },
        }

    def _run(self, *arguments: str, text: str | None = None) -> str:
        command = self._command(*arguments)
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
            env=_environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        options = ("--kubeconfig", str(self.stack.cluster.kubeconfig), "--namespace", SERVICE_NAMESPACE)
        return [str(self._helm), *arguments, *options]


def _image(name: str) -> dict[str, str]:
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}


def _environment() -> dict[str, str]:
    """Nothing of the user's own helm is read or written."""
    folder = Path(tempfile.gettempdir()) / f"loghub-helm-{os.getuid()}"
    return {**os.environ, **BRIEF, **{f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in _HOMES}}


_HOMES = ("CACHE", "CONFIG", "DATA")
