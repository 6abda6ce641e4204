"""Metadata that all objects of one consumer group share: labels, and the owner reference for garbage
collection.
"""

from loghub_operator.api.labels import LABEL_MANAGED_BY, LABEL_PART_OF, MANAGER, PART_OF, worker_selector
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup
from loghub_operator.model.revision import Document

__all__ = ["Document", "is_ours", "labels", "metadata", "workers_name"]


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
