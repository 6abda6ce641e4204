"""The ConfigMap with the workers' settings, which the pods mount as a file.

Its name contains the hash of the settings, and it is immutable, so that a pod of an older revision that
restarts reads the settings that it ran with.
"""

from loghub.worker_contract import WorkerConfig, encode_settings
from loghub_operator.api.labels import ANNOTATION_REVISION
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.revision import Revision
from loghub_operator.resources.metadata import Document, is_ours, metadata
from loghub_operator.resources.worker_config import config_hash

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
