"""The two kinds of Service: the governing Service of the workers, and the host name of a project.

A StatefulSet needs a governing Service; a client of the embedded service needs ``<project>.<namespace>.svc``.
A project's Service is in the namespace of the embedded service and is shared by all CRs and all other clients
of that project: it has a label instead of an owner, and the operator never deletes it
(docs/decisions/ownership.md).
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
from loghub_operator.resources.metadata import Document, metadata, workers_name

METRICS_PORT = 9404
PROJECT_PORT = 80  # the vendor's Java SDK connects to no other port


def governing_service(resource: LogHubConsumerGroup) -> Document:
    """Headless; Prometheus also discovers the workers through it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, workers_name(resource)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": worker_selector(resource.metadata.name),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    }


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


def leads_to_the_service(service: Document) -> bool:
    """Whether this Service selects the embedded service's pods, regardless of who created it."""
    return bool(service["spec"].get("selector") == {LABEL_NAME: SERVICE})
