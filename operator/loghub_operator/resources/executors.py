"""What a group needs whose workers make executors of Spark as pods: the pod, and the right to make it.

Executors are like the workers of the group in all that concerns where and as whom they run: image, security
context, placement, mounted Secrets and volumes, variables. They have no token, and are no workers: another
label keeps them out of the governing Service, the PodDisruptionBudget and the StatefulSet.
"""

from typing import Any

from loghub.contract.worker import CONTAINER, SCRATCH_VOLUME
from loghub_operator.api.labels import LABEL_NAME
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.revision import Document
from loghub_operator.resources.metadata import metadata, workers_name
from loghub_operator.settings import ExecutorRole

EXECUTOR = "loghub-executor"
# Volumes that only a worker reads or writes, and the start of the names of variables that only it reads.
_OF_WORKERS = ("config", "pod", "dead-letter", "log")
_VARIABLES_OF_WORKERS = "LOGHUB_"
_SCRATCH = "state"
_CONTAINER_FIELDS = ("image", "imagePullPolicy", "env", "envFrom", "securityContext", "volumeMounts")
# Of the pod: Spark restarts executors itself, and they have nothing to drain.
_NOT_OF_EXECUTORS = ("containers", "restartPolicy", "terminationGracePeriodSeconds", "hostname", "subdomain")
_EPHEMERAL = "ephemeral-storage"


def executor_pod(template: Document, container: str) -> Document:
    """The pod of an executor, from the pod template of the workers and the name of their container. Spark
    adds name, memory, CPU and how to reach the worker. The template may be any JSON: what is invalid is left
    out here, and the API server refuses the worker's own pod for it."""
    spec = _map(template.get("spec"))
    ours = next((one for one in _items(spec.get("containers")) if one.get("name") == container), {})
    executor = _container(ours)
    before = [_with_scratch(one) for one in _items(spec.get("initContainers"))]
    mounted = [mount.get("name") for one in (executor, *before) for mount in one["volumeMounts"]]
    volumes = [_renamed(one) for one in _items(spec.get("volumes"))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(template),
        "spec": {
            **{key: value for key, value in spec.items() if key not in _NOT_OF_EXECUTORS},
            "automountServiceAccountToken": False,
            "containers": [executor],
            "initContainers": before,
            "volumes": [one for one in volumes if one.get("name") in mounted],
        },
    }


def _metadata(template: Document) -> Document:
    metadata = _map(template.get("metadata"))
    annotations = {
        key: value for key, value in _map(metadata.get("annotations")).items() if "loghub.dev/" not in key
    }
    return {"labels": {**_map(metadata.get("labels")), LABEL_NAME: EXECUTOR}, "annotations": annotations}


def _container(ours: Document) -> Document:
    result = {key: ours[key] for key in _CONTAINER_FIELDS if key in ours}
    mounts = [one for one in _items(ours.get("volumeMounts")) if one.get("name") not in _OF_WORKERS]
    scratch = next((one.get("mountPath") for one in mounts if one.get("name") == _SCRATCH), None)
    result |= {
        "name": CONTAINER,
        "env": [
            variable
            for variable in _items(ours.get("env"))
            if not str(variable.get("name", "")).startswith(_VARIABLES_OF_WORKERS)
        ],
        "resources": {
            kind: {_EPHEMERAL: amounts[_EPHEMERAL]}
            for kind, amounts in _map(ours.get("resources")).items()
            if isinstance(amounts, dict) and _EPHEMERAL in amounts
        },
        "volumeMounts": mounts,
    }
    if scratch is not None:
        result["workingDir"] = scratch  # to which Spark copies the user's modules
    return _with_scratch(result)


def _with_scratch(container: Document) -> Document:
    return {**container, "volumeMounts": [_renamed(one) for one in _items(container.get("volumeMounts"))]}


def _renamed(item: Document) -> Document:
    """A volume or a mount, where Spark recognizes the volume for its scratch files by the name."""
    return {**item, "name": SCRATCH_VOLUME} if item.get("name") == _SCRATCH else item


def _map(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Document]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def executor_rights(resource: LogHubConsumerGroup, role: ExecutorRole) -> Document:
    """Lets the workers make pods in their namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(resource, workers_name(resource)),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.kind, "name": role.name},
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": workers_name(resource),
                "namespace": resource.metadata.namespace,
            }
        ],
    }
