"""The ConfigMap with the checkpoints of before a reposition.

What for: ``data`` goes from shard number to cursor, "" for none, so it can be given to another
reposition as it is; where the checkpoints were moved to stands in an annotation. It never changes, it
belongs to its object and goes with it. What it must not know: when it is written. Read next:
`loghub_operator.plan.reposition`.
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
    """Its name label is not the workers': their settings are removed by it."""
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
    """What it says; None where it is none of ours, or was garbled by hand."""
    marks = found["metadata"].get("annotations") or {}
    try:
        goals = {
            int(key): str(value) for key, value in json.loads(marks[ANNOTATION_TARGET_CHECKPOINTS]).items()
        }
        before = {int(key): str(value) for key, value in (found.get("data") or {}).items()}
        return MoveRecord(ordered_at=marks[ANNOTATION_RESET_REQUESTED_AT], before=before, goals=goals)
    except (KeyError, ValueError, AttributeError, TypeError):
        return None
