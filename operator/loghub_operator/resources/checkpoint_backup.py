"""The ConfigMap with the checkpoints from before a reset.

``data`` maps shard IDs to cursors, "" for none, so that it can be used for another reset as it is; an
annotation has the target cursors. The ConfigMap is immutable and owned by its object, so it is
garbage-collected with it. `loghub_operator.plan.reposition` decides when it is written.
"""

import json

from loghub_operator.api.labels import (
    ANNOTATION_RESET_REQUESTED_AT,
    ANNOTATION_TARGET_CHECKPOINTS,
    CHECKPOINTS,
    LABEL_NAME,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.reposition import MoveRecord
from loghub_operator.resources.metadata import Document, metadata


def checkpoint_backup(resource: LogHubConsumerGroup, name: str, record: MoveRecord) -> Document:
    """Its name label differs from that of the workers, because the removal of old worker settings selects by
    that label.
    """
    about = metadata(resource, name)
    about["labels"][LABEL_NAME] = CHECKPOINTS
    goals = {str(shard): cursor for shard, cursor in sorted(record.goals.items())}
    about["annotations"] = {
        ANNOTATION_RESET_REQUESTED_AT: record.ordered_at,
        ANNOTATION_TARGET_CHECKPOINTS: json.dumps(goals),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "immutable": True,
        "data": {str(shard): cursor for shard, cursor in sorted(record.before.items())},
    }


def record_in(found: Document) -> MoveRecord | None:
    """The record in a ConfigMap; None if the operator did not write it, or it was edited into something
    invalid.
    """
    marks = found["metadata"].get("annotations") or {}
    try:
        goals = {
            int(key): str(value) for key, value in json.loads(marks[ANNOTATION_TARGET_CHECKPOINTS]).items()
        }
        before = {int(key): str(value) for key, value in (found.get("data") or {}).items()}
        return MoveRecord(ordered_at=marks[ANNOTATION_RESET_REQUESTED_AT], before=before, goals=goals)
    except (KeyError, ValueError, AttributeError, TypeError):
        return None
