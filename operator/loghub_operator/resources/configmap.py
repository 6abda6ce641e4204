"""The ConfigMap with the workers' settings, which the pods mount as a file.

Its name contains the hash of the settings, and it is immutable, so that a pod of an older revision that
restarts reads the settings that it ran with.
"""

from loghub.worker_contract import WorkerConfig
from loghub_operator.api.labels import ANNOTATION_CONFIG_HASH
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.resources.metadata import Document, is_ours, metadata
from loghub_operator.resources.worker_config import config_hash, encode

CONFIG_FILE = "worker.json"


def config_map_name(resource: LogHubConsumerGroup, hash_of_config: str) -> str:
    """One ConfigMap per revision of the settings."""
    return f"{resource.metadata.name}-{hash_of_config}"


def is_settings(resource: LogHubConsumerGroup, found: Document) -> bool:
    """Whether the operator created it: a user's ConfigMap may have the labels of the workers."""
    marks = found["metadata"].get("annotations") or {}
    return ANNOTATION_CONFIG_HASH in marks and is_ours(resource, found)


def config_map(resource: LogHubConsumerGroup, config: WorkerConfig) -> Document:
    """The settings as one file."""
    digest = config_hash(config)
    about = metadata(resource, config_map_name(resource, digest))
    about["annotations"] = {ANNOTATION_CONFIG_HASH: digest}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "immutable": True,
        "data": {CONFIG_FILE: encode(config).decode()},
    }
