"""The ConfigMap with the checkpoints from before a reset.

``data`` maps shard IDs to cursors, "" for none, so that it can be used for another reset as it is; an
annotation has the target cursors. The ConfigMap is immutable and owned by its object, so it is
garbage-collected with it. `loghub_operator.plan.checkpoint_reset` decides when it is written, and
`loghub_operator.plan.checkpoint_backups` when later resets remove it.
"""

import json

from loghub_operator.api.labels import (
    ANNOTATION_RESET_REQUESTED_AT,
    ANNOTATION_TARGET_CHECKPOINTS,
    CHECKPOINTS,
    LABEL_INSTANCE,
    LABEL_NAME,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.checkpoint_reset import CheckpointBackup
from loghub_operator.resources.metadata import Document, metadata


def checkpoint_backup(resource: LogHubConsumerGroup, name: str, backup: CheckpointBackup) -> Document:
    """Its name label differs from that of the workers, because the removal of old worker settings selects by
    that label.
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
