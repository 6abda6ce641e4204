"""The pods that workers make: like the worker's own pod, without what only a worker needs."""

import itertools
import json
from typing import Any

import pytest

from loghub.contract.worker import KUBERNETES, LOCAL_MASTER, ExecutorSettings, decode_settings
from loghub_operator.api.labels import worker_selector
from loghub_operator.model.observed import Placement
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.resources import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import ExecutorRole, WorkerDefaults
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, merge, resource

HERE = Placement(endpoint="http://x", sink_root="/v", needs_project_address=False)
IN_PODS = Placement(endpoint="http://x", sink_root="/sink", needs_project_address=True, has_pods=True)
ROLE = ExecutorRole("ClusterRole", "executors")
SPEC: Document = {
    "spark": {"master": KUBERNETES, "cores": 4, "executors": {"cores": 2}},
    "pipeline": {
        "sql": None,
        "python": {"function": "a:b", "volumeClaim": {"name": "code"}},
        "onFailure": {
            "policy": "DeadLetter",
            "deadLetter": {"folder": {"volumeClaim": "rejected", "path": "a"}},
        },
        "sink": {"credentialsSecret": None},
    },
    "worker": {
        "env": [{"name": "A", "value": "1"}],
        "log": {"file": {"volumeClaim": "logs"}},
    },
}


def spec_document(more: Document | None = None) -> Document:
    given: Document = json.loads(json.dumps(SPEC))
    merge(given, more or {})
    return given


def spec_of(more: Document | None = None, defaults: WorkerDefaults | None = None) -> WorkerSpec:
    return built(spec_document(more), defaults)


def built(given: Document, defaults: WorkerDefaults | None = None) -> WorkerSpec:
    template = given["worker"].pop("podTemplate", None)  # null is a value in it, and not the end of a field
    group = resource(given, uid="uid-1")
    worker = group.spec.worker.model_copy(update={"pod_template": template})
    group = group.model_copy(update={"spec": group.spec.model_copy(update={"worker": worker})})
    defaults = defaults or WorkerDefaults(executor_role=ROLE)
    return worker_spec(group, worker_config(group, IN_PODS), image="w:1", defaults=defaults)


def executors(more: Document | None = None) -> ExecutorSettings:
    result = spec_of(more).config.executors
    assert result is not None
    return result


def kinds(spec: WorkerSpec) -> list[str]:
    return [one["kind"] for one in spec.dependencies]


def template(spec: Document) -> Document:
    return {"worker": {"podTemplate": {"spec": spec}}}


def worker(**fields: Any) -> Document:
    return template({"containers": [{"name": "worker", **fields}]})


def test_the_pod_is_like_the_workers_without_what_only_a_worker_needs() -> None:
    assert executors().pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {
                "app.kubernetes.io/name": "loghub-executor",
                "app.kubernetes.io/instance": "access",
                "app.kubernetes.io/part-of": "loghub",
                "app.kubernetes.io/managed-by": "loghub-operator",
            },
            "annotations": {},
        },
        "spec": {
            "serviceAccountName": "access-workers",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "executor",
                    "image": "w:1",
                    "imagePullPolicy": "IfNotPresent",
                    "env": [{"name": "A", "value": "1"}],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {"requests": {"ephemeral-storage": "1Gi"}},
                    "workingDir": "/var/lib/loghub",
                    "volumeMounts": [
                        {"name": "credentials", "mountPath": "/etc/loghub/credentials", "readOnly": True},
                        {"name": "spark-local-dir-1", "mountPath": "/var/lib/loghub"},
                        {"name": "tmp", "mountPath": "/tmp"},
                        {"name": "sink", "mountPath": "/sink"},
                        {"name": "code", "mountPath": "/code", "readOnly": True},
                    ],
                }
            ],
            "initContainers": [],
            "volumes": [
                {
                    "name": "credentials",
                    "secret": {"secretName": "loghub-credentials", "defaultMode": 0o440},
                },
                {"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": "10Gi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "sink", "persistentVolumeClaim": {"claimName": "sink"}},
                {"name": "code", "persistentVolumeClaim": {"claimName": "code"}},
            ],
        },
    }


def test_the_keys_of_a_bucket_are_where_the_worker_has_them() -> None:
    """Executors write files there themselves."""
    pod = executors({"pipeline": {"sink": {"credentialsSecret": {"name": "keys"}}}}).pod["spec"]
    mount = {"name": "sink-credentials", "mountPath": "/etc/loghub/sink-credentials", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    volume = {"name": "sink-credentials", "secret": {"secretName": "keys", "defaultMode": 0o440}}
    assert volume in pod["volumes"]


def test_an_executor_is_selected_as_a_worker_by_nothing() -> None:
    labels = executors().pod["metadata"]["labels"]
    assert not worker_selector("access").items() <= labels.items()


def test_the_size_of_executors_is_that_of_the_spec_and_their_cpu_request_that_of_their_cores() -> None:
    by_default = executors()
    assert (by_default.cores, by_default.cpu) == (2, "2")
    assert (by_default.memory, by_default.memory_overhead) == ("512m", "1g")
    given = {"cpu": "500m", "memory": "3g", "memoryOverhead": "2g"}
    small = executors({"spark": {"executors": given}})
    assert (small.cpu, small.memory, small.memory_overhead) == ("500m", "3g", "2g")


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "nodeSelector", {"disk": "ssd"}),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations", [{"operator": "Exists"}]),
        ({"imagePullSecrets": [{"name": "r"}]}, "imagePullSecrets", [{"name": "r"}]),
        ({"serviceAccountName": "cloud"}, "serviceAccountName", "cloud"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken", False),
        ({"terminationGracePeriodSeconds": 900}, "terminationGracePeriodSeconds", None),
    ],
)
def test_the_pod_template_of_the_workers_places_executors_too(
    given: Document, field: str, expected: Any
) -> None:
    assert executors(template(given)).pod["spec"].get(field) == expected


def test_the_container_of_the_pod_template_is_that_of_executors_and_a_sidecar_stays_with_the_workers() -> (
    None
):
    overlay = template(
        {
            "containers": [
                {
                    "name": "worker",
                    "image": "own:2",
                    "envFrom": [{"secretRef": {"name": "s"}}],
                    "resources": {"requests": {"ephemeral-storage": "5Gi", "cpu": "3"}},
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                },
                {"name": "sidecar", "image": "s:1"},
            ],
            "initContainers": [
                {"name": "load", "image": "l:1", "volumeMounts": [{"name": "state", "mountPath": "/s"}]}
            ],
            "volumes": [{"name": "models", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}],
        }
    )
    spec = executors(overlay).pod["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["envFrom"]) == ("own:2", [{"secretRef": {"name": "s"}}])
    assert container["resources"] == {"requests": {"ephemeral-storage": "5Gi"}}
    assert {"name": "models", "mountPath": "/models"} in container["volumeMounts"]
    volumes = {one["name"] for one in spec["volumes"]}
    assert "models" in volumes
    assert "unused" not in volumes
    (before,) = spec["initContainers"]
    assert before["volumeMounts"] == [{"name": "spark-local-dir-1", "mountPath": "/s"}]


# Where an author may write anything: to unknown fields of a CRD the API server says nothing.
PLACES = (
    "",
    "metadata",
    "metadata.labels",
    "metadata.annotations",
    "spec",
    "spec.containers",
    "spec.initContainers",
    "spec.volumes",
    *(f"spec.containers.0.{field}" for field in ("name", "env", "resources", "resources.limits")),
    *(f"spec.containers.0.{field}" for field in ("volumeMounts", "volumeMounts.0.name", "livenessProbe")),
    *("spec.volumes.0.name", "spec.initContainers.0.volumeMounts", "spec.terminationGracePeriodSeconds"),
)
JUNK: tuple[Any, ...] = (
    *(None, "x", 7, True, [], ["x"], [None], [[["x"]]], {}, {"name": ["x"]}, [{"name": ["x"]}]),
    *([{"name": None}], [{"name": "worker"}], [{"mountPath": {}}], {"$patch": "delete"}),
    *({"$patch": "replace"}, [{"$patch": "delete", "name": "worker"}], {"$patch": ["x"]}),
)


def whole(place: str, junk: Any) -> Any:
    """A template with the junk at this place."""
    parts: list[Any] = [int(part) if part.isdigit() else part for part in place.split(".") if part]
    for part in reversed(parts):
        junk = [{"name": "worker"} | junk if isinstance(junk, dict) else junk] if part == 0 else {part: junk}
    return junk


def test_a_pod_template_may_be_any_json() -> None:
    """What is invalid is the API server's to refuse, with every master: the object stays what it is."""
    for master, place, junk in itertools.product((KUBERNETES, LOCAL_MASTER), PLACES, JUNK):
        given = whole(place, junk)
        if not isinstance(given, dict):
            continue
        more: Document = {"spark": {"master": master}}
        if master == LOCAL_MASTER:
            more["spark"] |= {"executors": None}
        group = spec_document(more)
        group["worker"]["podTemplate"] = given
        made = built(group)
        assert json.dumps(made.stateful_set), given
        assert (made.config.executors is not None) == (master == KUBERNETES)


def test_a_change_of_the_pod_template_is_one_of_the_settings() -> None:
    """Executors are made from the settings, also by a worker whose container restarts."""
    one, other = (spec_of(template({"nodeSelector": {"disk": name}})) for name in ("ssd", "hdd"))
    assert one.revision.settings != other.revision.settings
    (settings,) = (one for one in one.dependencies if one["kind"] == "ConfigMap")
    config, unknown = decode_settings(settings["data"]["worker.json"].encode())
    assert (config, unknown) == (one.config, ())


def test_workers_may_make_pods_with_this_master_only() -> None:
    spec = spec_of()
    assert kinds(spec).index("RoleBinding") < kinds(spec).index("Service")
    (binding,) = (one for one in spec.dependencies if one["kind"] == "RoleBinding")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "executors",
    }  # fmt: skip
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "access-workers", "namespace": "default"}
    ]
    assert binding["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert spec.stateful_set["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    for master in (LOCAL_MASTER, "spark://m:7077"):
        other = spec_of({"spark": {"master": master, "executors": None}})
        assert "RoleBinding" not in kinds(other)
        assert other.config.executors is None
        assert other.stateful_set["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert "RoleBinding" not in kinds(spec_of(defaults=WorkerDefaults()))


def test_on_a_laptop_the_worker_runs_the_tasks_itself() -> None:
    config = worker_config(resource(SPEC), HERE)
    assert (config.spark_master, config.executors, config.cores) == (LOCAL_MASTER, None, 4)


def test_the_apiserver_accepts_the_pod_and_the_binding(server: Apiserver) -> None:
    (binding,) = (one for one in spec_of().dependencies if one["kind"] == "RoleBinding")
    pod = executors().pod
    for document in (binding, {**pod, "metadata": {**pod["metadata"], "name": "x", "namespace": "default"}}):
        options = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        assert server.run(*options, text=json.dumps(document)).stderr == ""
