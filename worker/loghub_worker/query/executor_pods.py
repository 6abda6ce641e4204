"""Executors that Spark makes as pods, next to the worker's own pod: Spark's settings for them, and the
worker's own requests to the API server; and ``python -m loghub_worker executor``, which becomes such an
executor.

Each pod is a copy of the one in the settings, is owned by the worker's pod, and has its name in a label.
Spark deletes its executors when it ends. The executors of a killed process end by themselves, and stay as
objects until the next process of the pod deletes them, or Kubernetes does with the worker's pod.

Spark starts the container of an executor with the image's entry point and the argument ``executor``, and says
in the environment what to run. Spark's own images have a shell script for that; the worker's image has this
module.
"""

import copy
import http.client
import importlib.util
import json
import os
import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn
from urllib.parse import quote

from loghub.contract.worker import CONTAINER, ENV_CLASS_ARCHIVE, LABEL_OF_WORKER, ExecutorSettings
from loghub_worker.cluster_error import UNAVAILABLE, ClusterError

ARGUMENT = "executor"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class NotAnExecutorError(Exception):
    """The environment is not one that Spark gives to the container of an executor."""


def command(environment: Mapping[str, str], spark: Path) -> list[str]:
    """The command line of the executor's JVM; `spark` is the folder of pyspark. Raises
    `NotAnExecutorError`."""
    try:
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        arguments = [part for name, key in _ARGUMENTS.items() for part in (name, environment[key])]
    except KeyError as error:
        raise NotAnExecutorError(f"{error.args[0]} is not set: only Spark starts executors") from error
    options = [environment[name] for name in sorted(filter(_is_option, environment), key=_number)]
    java = Path(environment.get("JAVA_HOME", ""), "bin", "java")
    return [
        str(java) if environment.get("JAVA_HOME") else "java",
        *_archive(environment),
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _class_path(environment, spark),
        BACKEND,
        *arguments,
    ]


def _is_option(name: str) -> bool:
    return name.startswith(_JAVA_OPTION) and name[len(_JAVA_OPTION) :].isdecimal()


def _number(name: str) -> int:
    return int(name[len(_JAVA_OPTION) :])


def _archive(environment: Mapping[str, str]) -> list[str]:
    archive = environment.get(ENV_CLASS_ARCHIVE)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive else []


def _class_path(environment: Mapping[str, str], spark: Path) -> str:
    """The class path in the order of Spark's own launcher, because a JVM uses the archive of classes only
    with the class path of the JVM that made it."""
    jars = spark / "jars"
    first = (spark / "conf", *sorted(jars.glob("slf4j-api-*.jar")), jars / "*")
    class_path = environment.get("SPARK_CLASSPATH")
    return os.pathsep.join([*map(str, first), *([class_path] if class_path else [])])


def become_executor(environment: Mapping[str, str]) -> NoReturn:
    """Replace this process with the executor. Raises `NotAnExecutorError`."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotAnExecutorError("pyspark is not installed")
    line = command(environment, Path(spec.origin).parent)
    if shutil.which(line[0]) is None:
        raise NotAnExecutorError(f"there is no {line[0]}: Spark needs Java 17 or newer")
    os.execvp(line[0], line)  # noqa: S606 - Spark's own program, without a shell


Document = dict[str, Any]
ADDRESS = ("kubernetes.default.svc", 443)
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where the kubelet mounts the token
CALL_S = 10.0  # the pods are only read to explain a failure, which an API server must not delay
# Settings that the user may override.
DEFAULTS = {
    # Without this, any process that reaches the ports of the driver can run code in the worker.
    "spark.authenticate": "true",
    # Spark's own for drivers in pods: known ports can be named in a NetworkPolicy.
    "spark.driver.port": "7078",
    "spark.blockManager.port": "7079",
    # As the worker's own, instead of several lines for each task.
    "spark.executor.syncLogLevel.enabled": "true",
    # By default an application ends after a few failed executors in all its life, which has no end here.
    "spark.executor.maxNumFailures": "100",
    "spark.executor.failuresValidityInterval": "1h",
}
_MAX_CHARS = 500


class ExecutorPods:
    """The executors of one worker. Each call raises `ClusterError` ``SparkMasterUnavailable`` if the API
    server does not answer, or refuses."""

    def __init__(self, settings: ExecutorSettings, *, worker: str, account: Path = ACCOUNT) -> None:
        self._settings = settings
        self._worker = worker
        self._account = account

    def delete_earlier(self) -> None:
        """Delete the executors of earlier processes of this pod. The first call, so it also finds out whether
        the API server can be used."""
        self._call("DELETE", self._path(labelled=True))

    def why_missing(self) -> str:
        """Why no executor runs, in words."""
        pods = self._call("GET", self._path(labelled=True)).get("items") or []
        if pods:
            return why_not_running(pods)
        try:
            self._call("POST", f"{self._path()}?dryRun=All", body=self._complete())
        except ClusterError as refused:
            return str(refused)
        return "Spark has made no pod, see the worker's log"

    def spark_settings(self, template: Path, *, cores: int) -> Mapping[str, str]:
        """Spark's settings for the executors of a worker with `cores` cores in all. Writes the pod from which
        Spark makes them to the file `template`."""
        template.write_text(json.dumps(self._owned_pod()), encoding="utf-8")
        names = {
            "spark.kubernetes.namespace": self._namespace(),
            "spark.kubernetes.executor.podTemplateFile": str(template),
            # Names of earlier processes may still be in use.
            "spark.kubernetes.executor.podNamePrefix": f"{self._worker}-{token_hex(3)}",
        }
        return names | executor_conf(self._settings, cores=cores)

    def _owned_pod(self) -> Document:
        """Spark would set the owner if it knew the driver's pod, but would first wait for that to be ready,
        which a worker without executors is not."""
        worker = self._call("GET", f"{self._path()}/{self._worker}")
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self._worker,
            "uid": worker["metadata"]["uid"],
            "controller": True,
        }
        pod = copy.deepcopy(self._settings.pod)
        pod["metadata"]["labels"][LABEL_OF_WORKER] = self._worker
        pod["metadata"]["ownerReferences"] = [owner]
        return pod

    def _complete(self) -> Document:
        """An executor about as Spark makes it, to ask the API server whether it would accept one."""
        pod, settings = self._owned_pod(), self._settings
        pod["metadata"]["generateName"] = f"{self._worker}-"
        memory = f"{mib(settings.memory) + mib(settings.memory_overhead)}Mi"
        resources = pod["spec"]["containers"][0].setdefault("resources", {})
        resources["requests"] = resources.get("requests", {}) | {"memory": memory, "cpu": settings.cpu}
        resources["limits"] = resources.get("limits", {}) | {"memory": memory}
        return pod

    def _namespace(self) -> str:
        return self._read("namespace").strip()

    def _path(self, *, labelled: bool = False) -> str:
        selector = quote(f"{LABEL_OF_WORKER}={self._worker}")
        query = f"?labelSelector={selector}" if labelled else ""
        return f"/api/v1/namespaces/{self._namespace()}/pods{query}"

    def _call(self, method: str, path: str, *, body: Document | None = None) -> Document:
        headers = {"Authorization": f"Bearer {self._read('token').strip()}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            trusted = ssl.create_default_context(cafile=self._account / "ca.crt")
            connection = http.client.HTTPSConnection(*ADDRESS, timeout=CALL_S, context=trusted)
            try:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(UNAVAILABLE, f"the API server does not answer the worker: {error}") from error
        if answer.status >= http.client.BAD_REQUEST:
            raise ClusterError(
                UNAVAILABLE, f"the API server refuses the worker's executors: {_message(text)}"
            )
        return _document(text)

    def _read(self, name: str) -> str:
        try:
            return (self._account / name).read_text(encoding="utf-8")
        except OSError as error:
            raise ClusterError(
                UNAVAILABLE,
                f"the worker has no token of its ServiceAccount, which it needs to make executors: {error};"
                " worker.podTemplate must not turn automountServiceAccountToken off",
            ) from error


def _document(text: str) -> Document:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _message(text: str) -> str:
    return str(_document(text).get("message") or text)[:_MAX_CHARS]


def why_not_running(pods: list[Document]) -> str:
    """The statements of the kubelet and the scheduler about these pods, each once."""
    statuses = [pod.get("status") or {} for pod in pods]
    said = [_of_containers(one) or _of_scheduler(one) or f"phase {one.get('phase')}" for one in statuses]
    return "; ".join(dict.fromkeys(said))


def _of_containers(status: Document) -> str:
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        reason = state.get("waiting") or state.get("terminated") or {}
        if reason.get("exitCode", 1):
            code = f"exit status {reason['exitCode']}" if "exitCode" in reason else ""
            text = ": ".join(filter(None, (reason.get("reason"), code, reason.get("message"))))
            if text:
                return text
    return ""


def _of_scheduler(status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message')}"
    return ""


def mib(memory: str) -> int:
    """Mebibytes in Spark's notation: 512m or 2g."""
    return int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)


def executor_conf(settings: ExecutorSettings, *, cores: int) -> dict[str, str]:
    """The settings that users cannot override, for a worker with `cores` cores in all. Spark makes only pods,
    so the worker needs no other rights."""
    container = settings.pod["spec"]["containers"][0]
    return {
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        "spark.kubernetes.executor.container.image": str(container["image"]),
        "spark.kubernetes.container.image.pullPolicy": str(container.get("imagePullPolicy", "IfNotPresent")),
        "spark.kubernetes.executor.request.cores": settings.cpu,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.executor.instances": str(cores // settings.cores),
        "spark.executor.cores": str(settings.cores),
        "spark.executor.memory": settings.memory,
        "spark.executor.memoryOverhead": settings.memory_overhead,
    }
