"""The two kinds of Service: the workers' own names, and a project's name.

What for: a StatefulSet wants a governing Service; a client of the embedded service wants
``<project>.<namespace>.svc``. What it must not know: who asks. Read next:
`loghub_operator.settings`.

A project's Service stands in the embedded service's namespace and is one object for all CRs
and all other clients of that project: it has a label instead of an owner and nobody
deletes it (docs/decisions/ownership.md).
"""

from loghub_operator.api.labels import (
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_PART_OF,
    LABEL_PROJECT,
    MANAGER,
    PART_OF,
    SERVICE,
    worker_selector,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.resources.metadata import Document, metadata

METRICS_PORT = 9404
PROJECT_PORT = 80  # the vendor's Java SDK speaks to no other


def governing_service(resource: LogHubConsumerGroup) -> Document:
    """Headless; also where a Prometheus finds the workers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, governing_name(resource)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": worker_selector(resource.metadata.name),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    }


def governing_name(resource: LogHubConsumerGroup) -> str:
    return f"{resource.metadata.name}-workers"


def project_service(project: str, namespace: str) -> Document:
    """``<project>.<namespace>.svc``, port 80, to the embedded service's pods."""
    labels = {LABEL_PROJECT: project, LABEL_PART_OF: PART_OF, LABEL_MANAGED_BY: MANAGER}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": project, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {LABEL_NAME: SERVICE},
            "ports": [{"name": "http", "port": PROJECT_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def leads_to_the_service(found: Document) -> bool:
    """Whoever made it: does this Service select the embedded service's pods?"""
    return bool(found["spec"].get("selector") == {LABEL_NAME: SERVICE})
