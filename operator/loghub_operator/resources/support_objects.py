"""What stands beside the workers' StatefulSet: who they are, and how many may be disturbed at once.

What for: a ServiceAccount without rights and without a token in the pods, and a PodDisruptionBudget.
What it must not know: the pods. Read next: `loghub_operator.resources.statefulset`.
"""

from loghub_operator.api.labels import worker_selector
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.resources.metadata import Document, metadata


def workers_name(resource: LogHubConsumerGroup) -> str:
    """Of every object that is about the workers as a whole."""
    return f"{resource.metadata.name}-workers"


def service_account(resource: LogHubConsumerGroup) -> Document:
    """Their own, so that rights given to it are given to nobody else; none are."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(resource, workers_name(resource)),
        "automountServiceAccountToken": False,
    }


def disruption_budget(resource: LogHubConsumerGroup) -> Document:
    """One worker at a time, as in a rolling restart; a worker that does not work holds no node up."""
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
