"""Metadata that all objects of one consumer group share, the paths of volumes in worker pods, and its
ConfigMaps.

All objects have our labels, and an owner reference for garbage collection. There are three kinds of
ConfigMap. The user's Python files come from a ConfigMap of the user's; the cluster and `loghub up` accept and
reject the same ones with the same messages, and `loghub_operator.resources.worker_config` makes the files a
part of the workers' settings, so a change of a file is a change of the settings. The settings are in a
ConfigMap that the pods mount as a file. Its name contains the hash of the settings, and it is immutable, so
that a pod of an older revision that restarts reads the settings that it ran with.

The checkpoints from before a reset are in the third. ``data`` maps shard IDs to cursors, "" for none, so that
it can be used for another reset as it is; an annotation has the target cursors. It is immutable.
`loghub_operator.plan.checkpoint_reset` decides when it is written, and when later resets remove it.
"""

import json

from loghub.contract.worker import WorkerConfig, encode_settings
from loghub_operator.api.labels import (
    ANNOTATION_RESET_REQUESTED_AT,
    ANNOTATION_REVISION,
    ANNOTATION_TARGET_CHECKPOINTS,
    CHECKPOINTS,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_PART_OF,
    MANAGER,
    PART_OF,
    worker_selector,
)
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup
from loghub_operator.model.observed import CheckpointBackup, UserCodeFiles
from loghub_operator.model.revision import Document, Revision
from loghub_operator.resources.worker_config import config_hash

SINK_ROOT = "/sink"
CODE_ROOT = "/code"
DEAD_LETTER_ROOT = "/dead-letter"
LOG_ROOT = "/log"


def code_source(resource: LogHubConsumerGroup) -> str | None:
    """Name of the ConfigMap with the pipeline's code, in the object's namespace."""
    code = resource.spec.pipeline.code
    return None if code is None or code.config_map is None else code.config_map.name


def code_in(resource: LogHubConsumerGroup, config_map: Document | None) -> UserCodeFiles:
    """The files of the ConfigMap that `code_source` names; ``config_map`` is None if it does not exist."""
    name, code = code_source(resource), resource.spec.pipeline.code
    assert code is not None  # otherwise `code_source` is None
    where = f"ConfigMap {name}"
    if config_map is None:
        return UserCodeFiles(error=f"there is no {where} in namespace {resource.metadata.namespace}")
    if config_map.get("binaryData"):
        return UserCodeFiles(error=f"{where} has binaryData; code is text, under data")
    files = {str(key): str(value) for key, value in (config_map.get("data") or {}).items()}
    if code.module_file not in files:
        return UserCodeFiles(error=f"{where} has no key {code.module_file}, which must contain {code.entry}")
    return UserCodeFiles(files=files)


def labels(resource: LogHubConsumerGroup) -> dict[str, str]:
    """Labels of every object in the CR's namespace."""
    return {**worker_selector(resource.metadata.name), LABEL_PART_OF: PART_OF, LABEL_MANAGED_BY: MANAGER}


def workers_name(resource: LogHubConsumerGroup) -> str:
    """Name of every object that concerns the workers as a whole."""
    return f"{resource.metadata.name}-workers"


def is_ours(resource: LogHubConsumerGroup, document: Document) -> bool:
    """Whether it was created for this object, which its name alone does not show."""
    existing = document["metadata"]
    owners = [one.get("uid") for one in existing.get("ownerReferences") or ()]
    return (
        resource.metadata.uid in owners or labels(resource).items() <= (existing.get("labels") or {}).items()
    )


def metadata(resource: LogHubConsumerGroup, name: str) -> Document:
    """Namespace, labels and owner."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": resource.metadata.namespace,
        "labels": labels(resource),
        "ownerReferences": [owner],
    }


def checkpoint_backup(resource: LogHubConsumerGroup, name: str, backup: CheckpointBackup) -> Document:
    """Its name label differs from the name label of the workers, because the removal of old worker settings
    selects by that label.
    """
    object_metadata = metadata(resource, name)
    object_metadata["labels"] |= backup_selector(resource)
    targets = {str(shard): cursor for shard, cursor in sorted(backup.targets.items())}
    object_metadata["annotations"] = {
        ANNOTATION_RESET_REQUESTED_AT: backup.requested_at,
        ANNOTATION_TARGET_CHECKPOINTS: json.dumps(targets),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_metadata,
        "immutable": True,
        "data": {str(shard): cursor for shard, cursor in sorted(backup.before.items())},
    }


def backup_selector(resource: LogHubConsumerGroup) -> dict[str, str]:
    """Labels that select the backups of the object."""
    return {LABEL_NAME: CHECKPOINTS, LABEL_INSTANCE: resource.metadata.name}


def backup_in(document: Document) -> CheckpointBackup | None:
    """The backup in a ConfigMap; None if the operator did not write it, or it was edited into something
    invalid.
    """
    annotations = document["metadata"].get("annotations") or {}
    try:
        targets = {
            int(key): str(value)
            for key, value in json.loads(annotations[ANNOTATION_TARGET_CHECKPOINTS]).items()
        }
        before = {int(key): str(value) for key, value in (document.get("data") or {}).items()}
        return CheckpointBackup(
            requested_at=annotations[ANNOTATION_RESET_REQUESTED_AT], before=before, targets=targets
        )
    except (KeyError, ValueError, AttributeError, TypeError):
        return None


CONFIG_FILE = "worker.json"


def config_map_name(resource: LogHubConsumerGroup, settings: str) -> str:
    """One ConfigMap per hash of the settings."""
    return f"{resource.metadata.name}-{settings}"


def is_settings(resource: LogHubConsumerGroup, document: Document) -> bool:
    """Whether the operator created it: a user's ConfigMap may have the labels of the workers."""
    annotations = document["metadata"].get("annotations") or {}
    return ANNOTATION_REVISION in annotations and is_ours(resource, document)


def config_map(resource: LogHubConsumerGroup, config: WorkerConfig) -> Document:
    """The settings as one file."""
    settings = config_hash(config)
    object_metadata = metadata(resource, config_map_name(resource, settings))
    object_metadata["annotations"] = {ANNOTATION_REVISION: str(Revision(settings=settings))}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_metadata,
        "immutable": True,
        "data": {CONFIG_FILE: encode_settings(config).decode()},
    }
