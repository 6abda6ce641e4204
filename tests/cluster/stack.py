"""The project on a cluster: service and operator from `deploy/`, and what tests read of them.

Applies the same manifests that users apply, with this checkout's images and with hostPath volumes.
"""

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from tests.cluster import paths
from tests.cluster.kubectl import Kubectl, Object, eventually, is_ready
from tests.cluster.provider import Cluster

SERVICE_NAMESPACE = "loghub"
OPERATOR_NAMESPACE = "loghub-system"
_NAMES = "{.items[*].metadata.name}"
CRD = "loghubconsumergroups.loghub.dev"
_STOCK = ("default", "local-path-storage")
SECRET = "loghub-credentials"
# `spec.spark` of workers that live for minutes: the JVM's second compiler would not pay.
SHORT_LIFE = {"conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}}
EXAMPLES = paths.REPOSITORY / "deploy" / "examples"
KILL_GUARD_S = 240.0
# By its environment, since a pod's process cannot be killed from within. Another one may end with the first.
_KILL = """for found in $(grep -lzx "HOSTNAME=$0" /proc/[0-9]*/environ 2>/dev/null)
do folder=${found%/environ}; kill -9 "${folder#/proc/}" || [ ! -e "$folder" ]; done"""


class Stack:
    """A deployed project on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
        self.credentials = Credentials(
            access_key_id=f"id{secrets.token_hex(8)}", access_key_secret=secrets.token_hex(16)
        )

    def remove_earlier(self) -> None:
        """What an earlier run has left on a cluster that was kept: manifests or a chart, and its objects."""
        kubectl = self.kubectl
        # First who would put back what is taken away below.
        operators = ("deployments", "-A", "-l", "app.kubernetes.io/name=loghub-operator")
        kubectl.run("delete", *operators, "--cascade=foreground", "--timeout=90s")
        if kubectl.run("get", "crd", CRD, "--ignore-not-found").strip():
            self._forget_groups()
        # An API without a server would block every namespace's removal.
        ours = ("-A", "-l", "app.kubernetes.io/part-of=loghub", "--timeout=90s")
        kubectl.run("delete", "apiservice,clusterrole,clusterrolebinding,role,rolebinding", *ours)
        kubectl.run("delete", "crd", CRD, "--ignore-not-found", "--timeout=90s")
        self._remove_namespaces()
        kubectl.run("delete", "pv", "--all", "--timeout=60s")
        for folder in self.cluster.volumes.iterdir():
            shutil.rmtree(folder)

    def _forget_groups(self) -> None:
        """Removes their finalizers: the operator that would remove them does not run any more."""
        for group in self.kubectl.list("lhcg"):
            meta = group["metadata"]
            self.kubectl.patch("lhcg", meta["name"], meta["namespace"], {"metadata": {"finalizers": None}})

    def _remove_namespaces(self) -> None:
        """``default`` cannot be removed, so what tests make there is."""
        self.kubectl.run("delete", "hpa,statefulset,pvc,configmap", "--all", "-n", "default")
        self.kubectl.run("delete", "secret", SECRET, "-n", "default", "--ignore-not-found")
        namespaces = self._try("get", "namespaces", "-o", f"jsonpath={_NAMES}").split()
        left = [name for name in namespaces if name not in _STOCK and not name.startswith("kube-")]
        if left:
            self.kubectl.run("delete", "namespace", *left, "--timeout=180s", guard_s=200)

    def deploy(self) -> None:
        """`deploy/` as it is but for the images; returns when service and operator are ready."""
        self.make_volume("service-data", namespace=SERVICE_NAMESPACE, claim="data-loghub-service-0")
        self.kubectl.apply(*self.manifests())
        self.make_secret(SERVICE_NAMESPACE)
        wait = ("rollout", "status", "--timeout=180s")
        self.kubectl.run(*wait, "statefulset/loghub-service", "-n", SERVICE_NAMESPACE, guard_s=200)
        self.kubectl.run(*wait, "deployment/loghub-operator", "-n", OPERATOR_NAMESPACE, guard_s=200)

    def manifests(self) -> list[Object]:
        """What `kubectl apply -k deploy` applies, with the images of this checkout."""
        text = self.kubectl.run("kustomize", str(paths.REPOSITORY / "deploy"))
        return [self._with_images(one) for one in yaml.safe_load_all(text) if one]

    def _with_images(self, value: Any) -> Any:
        """Every text that is an image's name in `deploy/` replaced by the image that was built."""
        if isinstance(value, dict):
            return {key: self._with_images(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._with_images(part) for part in value]
        for part, image in self.cluster.images.items():
            if isinstance(value, str) and value.startswith(f"loghub-{part}:"):
                return image
        return value

    def make_secret(self, namespace: str, name: str = SECRET, *, key_secret: str = "") -> None:
        data = {
            "accessKeyId": self.credentials.access_key_id,
            "accessKeySecret": key_secret or self.credentials.access_key_secret,
        }
        self.kubectl.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data},
            namespace=namespace,
        )

    def make_volume(self, name: str, *, namespace: str, claim: str) -> Path:
        """A hostPath volume kept for one claim; the folder as the test sees it."""
        folder = self.cluster.volumes / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)  # pods write as a user that this machine need not have
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": f"{self.cluster.volumes_on_node}/{name}"},
        }
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        self.kubectl.apply(volume)
        return folder

    def make_namespace(self, name: str) -> None:
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.make_secret(name)

    @contextmanager
    def client(self, project: str) -> Iterator[HttpLogHub]:
        """A client of the in-cluster service through a forwarded port."""
        with self.kubectl.forward("pod/loghub-service-0", SERVICE_NAMESPACE, 8080) as port:
            client = HttpLogHub(
                f"http://127.0.0.1:{port}", project, credentials=self.credentials, agent="test"
            )
            try:
                yield client
            finally:
                client.close()

    # --- one consumer group ------------------------------------------------------------------

    def group(self, name: str, namespace: str) -> Object:
        result = self.kubectl.get("lhcg", name, namespace)
        assert result is not None, f"no LogHubConsumerGroup {name}"
        return result

    def condition(self, name: str, namespace: str, kind: str) -> Object | None:
        conditions = self.group(name, namespace).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), None)

    def wait_condition(self, name: str, namespace: str, kind: str, *, status: str, reason: str) -> str:
        """The message of the condition once it has this status and reason."""

        def ask() -> str | None:
            result = self.condition(name, namespace, kind)
            fits = result is not None and (result["status"], result["reason"]) == (status, reason)
            return result["message"] if result is not None and fits else None

        return eventually(ask, what=f"{name}: {kind}={status} {reason}")

    def workers(self, name: str, namespace: str) -> dict[str, str]:
        """Uid by name of the ready worker pods that are not being deleted."""
        pods = self.kubectl.list("pod", namespace, f"app.kubernetes.io/instance={name}")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods if is_ready(pod)}

    def kill(self, pod: str, namespace: str) -> None:
        """SIGKILL to the processes of the pod, whose name no other pod has; returns once the kubelet reports
        it. The pod stays, and its container is started again."""
        command = [*self.cluster.on_node, "sh", "-c", _KILL, pod]
        subprocess.run(command, check=True, timeout=KILL_GUARD_S)
        eventually(lambda: self._killed(pod, namespace), what=f"exit status 137 of {pod}", pause_s=0.1)

    def _killed(self, pod: str, namespace: str) -> bool:
        result = self.kubectl.get("pod", pod, namespace) or {}
        statuses = result.get("status", {}).get("containerStatuses", [])
        states = [one.get(when, {}) for one in statuses for when in ("state", "lastState")]
        return any(state.get("terminated", {}).get("exitCode") == 137 for state in states)

    # --- when something went wrong -----------------------------------------------------------

    def explain(self, *namespaces: str) -> str:
        """Everything that may show why: objects, events, what the pods last said."""
        parts = [self._try("get", "lhcg", "-A", "-o", "yaml")]
        for namespace in (*namespaces, SERVICE_NAMESPACE, OPERATOR_NAMESPACE):
            parts.append(self._try("get", "pods,pvc,sts,svc", "-n", namespace, "-o", "wide"))
            parts.append(self._try("get", "events", "-n", namespace, "--sort-by=.lastTimestamp"))
            parts += [self._logs(namespace, pod) for pod in self._pods(namespace)]
        return "\n".join(parts)

    def _pods(self, namespace: str) -> list[str]:
        return self._try("get", "pods", "-n", namespace, "-o", f"jsonpath={_NAMES}").split()

    def _logs(self, namespace: str, pod: str) -> str:
        arguments = ("logs", pod, "-n", namespace, "--tail=60")
        return f"--- {pod}\n{self._try(*arguments)}\n--- {pod}, before\n{self._try(*arguments, '--previous')}"

    def _try(self, *arguments: str) -> str:
        try:
            return self.kubectl.run(*arguments)
        except Exception as error:  # noqa: BLE001 - shown instead: this runs after a failure
            return f"({error})"


def example(name: str) -> list[Object]:
    """The objects of a file in `deploy/examples/`; claims take a volume that is kept for them."""
    objects = [one for one in yaml.safe_load_all((EXAMPLES / name).read_text()) if one]
    for one in objects:
        if one["kind"] == "PersistentVolumeClaim":
            one["spec"]["storageClassName"] = ""
        if one["kind"] == "LogHubConsumerGroup":
            one["spec"]["spark"] = SHORT_LIFE
    return objects


def consumer_group(name: str, **spec: Any) -> Object:
    """A small consumer group for tests of what goes wrong."""
    sink = {"logstore": {"name": "nowhere"}}
    pipeline = {"sql": "SELECT contents FROM logs", "sink": sink}
    base: Object = {"project": "demo", "logstore": "access", "pipeline": pipeline, "spark": SHORT_LIFE}
    return {
        "apiVersion": "loghub.dev/v1alpha1",
        "kind": "LogHubConsumerGroup",
        "metadata": {"name": name},
        "spec": {**base, **json.loads(json.dumps(spec))},
    }


def claim(name: str) -> Object:
    """A claim of the volume of this name (`Stack.make_volume`)."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": name,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, **modules: str) -> Object:
    """Python modules, by their names."""
    data = {f"{module}.py": text for module, text in modules.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
