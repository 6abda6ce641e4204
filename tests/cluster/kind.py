"""A cluster by the `kind` program, for machines with a Docker engine. Never run here.

This is the provider that most users of the project will have. It calls the programs `kind` and `docker`; its
commands are tested with a recording runner, because the project's own machines have no Docker engine.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cluster import images, ip_family, mounts, paths
from tests.cluster.ip_family import IpFamily
from tests.cluster.provider import PARTS, Cluster

NAME = "loghub-test"
ON_NODE = "/loghub-volumes"
_ON_NODE = ("docker", "exec", f"{NAME}-control-plane")
UP_GUARD_S = 600.0

Runner = Callable[[list[str]], str]


def run(command: list[str]) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=UP_GUARD_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout


class Kind:
    """See `provider.ClusterProvider`."""

    name = "kind"

    def __init__(self, runner: Runner = run) -> None:
        self.run = runner
        self.family = ip_family.chosen()
        self.folder = paths.run_folder() / "kind"

    def up(self) -> Cluster:
        self.down()
        (self.folder / "volumes").mkdir(parents=True)
        self._config().write_text(self._configured())
        self.run(
            [
                *("kind", "create", "cluster", "--name", NAME, "--config", str(self._config())),
                *("--kubeconfig", str(self._kubeconfig()), "--wait", "180s"),
            ]
        )
        self.load_images()
        return self._cluster()

    def load_images(self) -> dict[str, str]:
        names = {part: f"localhost/loghub-{part}:{images.key(part)}" for part in PARTS}
        for part, name in names.items():
            self.run(["docker", "build", "--target", part, "--tag", name, str(paths.REPOSITORY)])
        self.run(["kind", "load", "docker-image", "--name", NAME, *names.values()])
        (self.folder / "images.json").write_text(json.dumps(names))
        return names

    def running(self) -> Cluster | None:
        """None for one of the other family too; `up` removes it."""
        if NAME not in self.run(["kind", "get", "clusters"]).split():
            return None
        known = (self.folder / "images.json").exists() and self._config().read_text() == self._configured()
        return self._cluster() if known else None

    def down(self) -> None:
        self.run(["kind", "delete", "cluster", "--name", NAME])
        mounts.remove_folder(self.folder)

    def _config(self) -> Path:
        return self.folder / "kind.yaml"

    def _configured(self) -> str:
        return json.dumps(cluster_config(self.folder / "volumes", self.family))  # JSON is YAML

    def _kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def _cluster(self) -> Cluster:
        return Cluster(
            kubeconfig=self._kubeconfig(),
            kubectl=Path(shutil.which("kubectl") or "kubectl"),
            images=json.loads((self.folder / "images.json").read_text()),
            volumes=self.folder / "volumes",
            volumes_on_node=ON_NODE,
            restart_apiserver=self._restart_apiserver,
            on_node=_ON_NODE,
        )

    def _restart_apiserver(self) -> None:
        """The kubelet restarts it from the manifest in its folder."""
        self.run([*_ON_NODE, "pkill", "-KILL", "-x", "kube-apiserver"])


def cluster_config(volumes: Path, family: IpFamily) -> dict[str, object]:
    """One node with addresses of that family, which sees ``volumes`` of this machine at `ON_NODE`."""
    mount = {"hostPath": str(volumes), "containerPath": ON_NODE}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        # kubectl runs outside of the cluster, and an engine need not publish a port at ::1.
        "networking": {"ipFamily": family.name, "apiServerAddress": "127.0.0.1"},
        "nodes": [{"role": "control-plane", "extraMounts": [mount]}],
    }
