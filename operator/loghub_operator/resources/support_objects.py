"""The ServiceAccount and the PodDisruptionBudget of the workers.

The ServiceAccount has no permissions, and the pods have no token of it, unless workers make executors as pods
(`loghub_operator.resources.executors`). The PodDisruptionBudget limits how many workers may be disrupted at
once.
"""

from loghub_operator.api.labels import worker_selector
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.resources.metadata import Document, metadata, workers_name


def service_account(resource: LogHubConsumerGroup) -> Document:
    """The workers' own, so that permissions granted to it apply to nothing else; it has none by default."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(resource, workers_name(resource)),
        "automountServiceAccountToken": False,
    }


def disruption_budget(resource: LogHubConsumerGroup) -> Document:
    """One worker at a time, as in a rolling restart; a worker that is not ready may always be evicted."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(resource, workers_name(resource)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": worker_selector(resource.metadata.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
