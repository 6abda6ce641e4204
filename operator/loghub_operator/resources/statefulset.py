"""The StatefulSet of the workers, whose stable pod names are the consumer names.

Pods are created and deleted in parallel, and replaced one by one. The preStop hook begins the drain, and the
grace period is longer than the drain, so a worker finishes its batch. The pods comply with the restricted Pod
Security Standard. `loghub.contract.worker` defines what the container receives.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from loghub.contract import worker as contract
from loghub.contract.worker import WorkerConfig
from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.api.worker import StateVolume
from loghub_operator.model.revision import Document, Revision, WorkerSpec
from loghub_operator.resources.executors import executor_pod, executor_rights
from loghub_operator.resources.metadata import (
    CODE_ROOT,
    CONFIG_FILE,
    DEAD_LETTER_ROOT,
    LOG_ROOT,
    SINK_ROOT,
    config_map,
    config_map_name,
    labels,
    metadata,
    workers_name,
)
from loghub_operator.resources.services import (
    METRICS_PORT,
    disruption_budget,
    governing_service,
    service_account,
)
from loghub_operator.resources.strategic_merge import apply_pod_template
from loghub_operator.resources.worker_config import (
    AFTER_DRAIN_S,
    DRAIN_TIMEOUT_S,
    config_hash,
    heap_mib,
    processes_of,
)
from loghub_operator.settings import NO_DEFAULTS, WorkerDefaults

CONTAINER = "worker"
_OUR_VOLUMES = {
    "config",
    "credentials",
    "sink-credentials",
    "pod",
}  # a pod template may replace state and tmp
GRACE_S = DRAIN_TIMEOUT_S + AFTER_DRAIN_S
USER = 10001  # of the image (Dockerfile)
# Begins the drain even if the image's entry point does not forward signals.
PRE_STOP = ("python", "-m", "loghub_worker.pre_stop")
_CONFIG = "/etc/loghub/worker"
_CREDENTIALS = "/etc/loghub/credentials"
_SINK_CREDENTIALS = "/etc/loghub/sink-credentials"
_POD = "/etc/loghub/pod"
_STATE, _STATE_VOLUME = "/var/lib/loghub", "state"
# In addition to the JVM's heap: the rest of the JVM, the Python processes and their Arrow buffers; the limit
# leaves room for one more batch.
_REQUEST_MIB, _LIMIT_MIB = 1024, 1536
# For a processor: of the worker itself, and of each process; the code of the user needs memory too.
_PROCESSOR_MIB = (128, 160), (256, 384)
# A worker whose Spark spills more is evicted, instead of filling the node's disk.
_SCRATCH, _SCRATCH_REQUEST = "ephemeral-storage", "1Gi"
_STATE_LIMIT, _TMP_LIMIT = "10Gi", "1Gi"


def worker_spec(
    resource: LogHubConsumerGroup,
    config: WorkerConfig,
    *,
    image: str,
    defaults: WorkerDefaults = NO_DEFAULTS,
) -> WorkerSpec:
    """Everything that is applied for the workers; ``image`` is for CRs that do not set one."""
    overlays = (defaults.pod_template, resource.spec.worker.pod_template)

    def overlaid(template: Document) -> Document:
        return apply_pod_template(template, overlays, container=CONTAINER, volumes=_OUR_VOLUMES)

    if config.executors is not None:
        pod = executor_pod(overlaid(_template(resource, "", image)), CONTAINER)
        config = msgspec.structs.replace(config, executors=msgspec.structs.replace(config.executors, pod=pod))
    settings = config_hash(config)
    ours = _template(resource, settings, image)

    def merged(annotations: Mapping[str, str]) -> Document:
        return overlaid({**ours, "metadata": _with_annotations(ours["metadata"], annotations)})

    on_pods = Revision(settings=settings, pod_template=_hash(merged({})))
    built = _stateful_set(resource, merged({ANNOTATION_REVISION: str(on_pods)}))
    dependencies = _dependencies(resource, config, defaults)
    objects, generation = _hash([built, *dependencies]), resource.metadata.generation
    revision = replace(on_pods, objects=objects, generation=generation)
    built["metadata"]["annotations"] = {ANNOTATION_REVISION: str(revision)}
    return WorkerSpec(revision=revision, config=config, stateful_set=built, dependencies=dependencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnvironment:
    """Workers as pods of a StatefulSet; what the administrator sets for all of them."""

    image: str
    defaults: WorkerDefaults = NO_DEFAULTS

    def worker_spec(self, resource: LogHubConsumerGroup, config: WorkerConfig) -> WorkerSpec:
        """Implements `loghub_operator.model.observed.WorkerEnvironment`."""
        return worker_spec(resource, config, image=self.image, defaults=self.defaults)


def with_replicas(stateful_set: Document, replicas: int) -> Document:
    """The StatefulSet of a `WorkerSpec`, complete."""
    return {**stateful_set, "spec": {**stateful_set["spec"], "replicas": replicas}}


def is_observed(stateful_set: Document) -> bool:
    """Whether the controller of StatefulSets has observed the last change of its spec."""
    generation = stateful_set["metadata"].get("generation", 0)
    return bool(stateful_set.get("status", {}).get("observedGeneration", 0) >= generation)


def _with_annotations(metadata: Document, annotations: Mapping[str, str]) -> Document:
    return {**metadata, "annotations": {**metadata["annotations"], **annotations}}


def _dependencies(
    resource: LogHubConsumerGroup, config: WorkerConfig, defaults: WorkerDefaults
) -> tuple[Document, ...]:
    """In the order in which they are applied: first the objects that the pods need."""
    role = None if config.executors is None else defaults.executor_role
    return (
        config_map(resource, config),
        service_account(resource),
        *(() if role is None else (executor_rights(resource, role),)),
        governing_service(resource, ip_family_policy=defaults.ip_family_policy),
        disruption_budget(resource),
    )


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _stateful_set(resource: LogHubConsumerGroup, template: Document) -> Document:
    document = _without_claims(resource, template)
    if resource.spec.pipeline.stateful:
        document["spec"] |= {
            "volumeClaimTemplates": [_state_claim(resource)],
            # A suspended group has no workers, and continues with its state.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        }
    return document


def _state_claim(resource: LogHubConsumerGroup) -> Document:
    volume = resource.spec.pipeline.state or StateVolume()
    spec: Document = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class_name is not None:
        spec["storageClassName"] = volume.storage_class_name
    return {"metadata": {"name": _STATE_VOLUME}, "spec": spec}


def _without_claims(resource: LogHubConsumerGroup, template: Document) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(resource, resource.metadata.name),
        "spec": {
            "serviceName": workers_name(resource),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 5,
            "selector": {"matchLabels": worker_selector(resource.metadata.name)},
            "template": template,
        },
    }


def _template(resource: LogHubConsumerGroup, settings: str, image: str) -> Document:
    return {
        "metadata": {
            "labels": labels(resource),
            "annotations": {contract.DRAIN_ANNOTATION: contract.DRAIN_NOT_REQUESTED},
        },
        "spec": {
            "serviceAccountName": workers_name(resource),
            "automountServiceAccountToken": resource.spec.spark.makes_pods,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "securityContext": _pod_security(),
            "containers": [_container(resource, image)],
            "volumes": _volumes(resource, settings),
        },
    }


def _pod_security() -> Document:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container(resource: LogHubConsumerGroup, image: str) -> Document:
    """The image's own entry point starts the worker, under an init process that reaps Spark's children."""
    return {
        "name": CONTAINER,
        "image": resource.spec.worker.image or image,
        "imagePullPolicy": "IfNotPresent",
        "env": _environment(resource),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", every_s=2, failures=150),
        "readinessProbe": _probe("/readyz", every_s=2, failures=3),
        "livenessProbe": _probe("/healthz", every_s=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": list(PRE_STOP)}}},
        "resources": _resources(resource),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": _mounts(resource),
    }


def _environment(resource: LogHubConsumerGroup) -> list[Document]:
    """The user's variables come first, so that none of them overrides a variable of the operator."""
    plain = {
        contract.ENV_CONFIG: f"{_CONFIG}/{CONFIG_FILE}",
        contract.ENV_CREDENTIALS_DIR: _CREDENTIALS,
        contract.ENV_DRAIN_FILE: f"{_POD}/drain",
        contract.ENV_STATE_DIR: f"{_STATE}/state",
        contract.ENV_STATUS_FILE: f"{_STATE}/status.json",
        contract.ENV_METRICS_ADDRESS: f":{METRICS_PORT}",
        contract.ENV_TERMINATION_LOG: "/dev/termination-log",
    }
    if resource.spec.pipeline.sink_credentials is not None:
        plain[contract.ENV_SINK_CREDENTIALS_DIR] = _SINK_CREDENTIALS
    name = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return [
        *(one.to_dict() for one in resource.spec.worker.env),
        {"name": contract.ENV_CONSUMER, "valueFrom": name},
        *({"name": key, "value": value} for key, value in plain.items()),
    ]


def _probe(path: str, *, every_s: int, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": every_s,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _resources(resource: LogHubConsumerGroup) -> Document:
    """The user's values win key by key; memory that is set only as request or limit is used for both."""
    resources = resource.spec.worker.resources
    request, limit = _memory_mib(resource)
    requests: dict[str, Any] = {"cpu": "250m", "memory": _mib(request), _SCRATCH: _SCRATCH_REQUEST}
    requests |= {
        key: value for key, value in resources.limits.items() if key in requests
    } | resources.requests
    limits: dict[str, Any] = {} if limit is None else {"memory": _mib(limit)}
    limits |= resources.limits
    if "memory" in resources.requests and "memory" not in resources.limits:
        limits["memory"] = resources.requests["memory"]
    return {"requests": _text(requests), "limits": _text(limits)}


def _memory_mib(resource: LogHubConsumerGroup) -> tuple[int, int | None]:
    """Request and limit. Without a known number of processes, no limit is right."""
    if resource.spec.pipeline.processor is None:
        heap = heap_mib(resource.spec.spark)
        return heap + _REQUEST_MIB, heap + _LIMIT_MIB
    processes = processes_of(resource)
    request, limit = (base + max(1, processes) * each for base, each in _PROCESSOR_MIB)
    return request, limit if processes else None


def _mib(mib: int) -> str:
    """Spelled as the API server does, since what was written is compared with what is stored."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def _text(quantities: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in quantities.items()}


def _mounts(resource: LogHubConsumerGroup) -> list[Document]:
    mounts: list[Document] = [
        {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        {"name": "credentials", "mountPath": _CREDENTIALS, "readOnly": True},
        {"name": "pod", "mountPath": _POD, "readOnly": True},
        {"name": _STATE_VOLUME, "mountPath": _STATE},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
    ]
    if resource.spec.pipeline.sink_credentials is not None:
        mounts.append({"name": "sink-credentials", "mountPath": _SINK_CREDENTIALS, "readOnly": True})
    if resource.spec.pipeline.sink_volume_claim is not None:
        mounts.append({"name": "sink", "mountPath": SINK_ROOT})
    if resource.spec.pipeline.on_failure.folder is not None:
        mounts.append({"name": "dead-letter", "mountPath": DEAD_LETTER_ROOT})
    if _log_claim(resource) is not None:
        mounts.append({"name": "log", "mountPath": LOG_ROOT})
    if _code_claim(resource) is not None:
        mounts.append({"name": "code", "mountPath": CODE_ROOT, "readOnly": True})
    return mounts


def _code_claim(resource: LogHubConsumerGroup) -> str | None:
    code = resource.spec.pipeline.code
    return None if code is None or code.volume_claim is None else code.volume_claim.name


def _log_claim(resource: LogHubConsumerGroup) -> str | None:
    file = resource.spec.worker.log.file
    return None if file is None else file.volume_claim


def _volumes(resource: LogHubConsumerGroup, digest: str) -> list[Document]:
    drain = {
        "path": "drain",
        "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{contract.DRAIN_ANNOTATION}']"},
    }
    secret = {"secretName": resource.spec.credentials_secret.name, "defaultMode": 0o440}
    volumes: list[Document] = [
        {"name": "config", "configMap": {"name": config_map_name(resource, digest), "defaultMode": 0o444}},
        {"name": "credentials", "secret": secret},
        {"name": "pod", "downwardAPI": {"defaultMode": 0o444, "items": [drain]}},
        {"name": "tmp", "emptyDir": {"sizeLimit": _TMP_LIMIT}},
    ]
    if not resource.spec.pipeline.stateful:  # otherwise a claim of each pod has the name
        volumes.insert(-1, {"name": _STATE_VOLUME, "emptyDir": {"sizeLimit": _STATE_LIMIT}})
    of_sink = resource.spec.pipeline.sink_credentials
    if of_sink is not None:
        secret = {"secretName": of_sink.name, "defaultMode": 0o440}
        volumes.append({"name": "sink-credentials", "secret": secret})
    folder = resource.spec.pipeline.on_failure.folder
    claims = {
        "sink": resource.spec.pipeline.sink_volume_claim,
        "dead-letter": None if folder is None else folder.volume_claim,
        "log": _log_claim(resource),
        "code": _code_claim(resource),
    }
    volumes += [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in claims.items()
        if claim
    ]
    return volumes
