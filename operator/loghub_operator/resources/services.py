"""The Services of the workers and of projects, and the workers' ServiceAccount and PodDisruptionBudget.

A StatefulSet needs a governing Service; a client of the embedded service needs ``<project>.<namespace>.svc``.
A project's Service is in the namespace of the embedded service and is shared by all CRs and all other clients
of that project: it has a label instead of an owner, and stays as long as the project exists or a CR names it
(docs/decisions/ownership.md).

The ServiceAccount has no permissions, and the pods have no token of it, unless workers make executors as pods
(`loghub_operator.resources.executors`). The PodDisruptionBudget limits how many workers may be disrupted at
once.
"""

import re

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
from loghub_operator.model.revision import Document
from loghub_operator.resources.metadata import metadata, workers_name


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


METRICS_PORT = 9404  # the usual port of Prometheus's exporter for JVMs, and a worker is mostly Spark


def governing_service(resource: LogHubConsumerGroup, *, ip_family_policy: str = "") -> Document:
    """Headless; Prometheus also discovers the workers through it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, workers_name(resource)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": worker_selector(resource.metadata.name),
            **_ip_families(ip_family_policy),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    }


def project_service(project: str, namespace: str, *, port: int = 80, ip_family_policy: str = "") -> Document:
    """``<project>.<namespace>.svc``, with the endpoint's port, to the embedded service's pods.

    The vendor's Java SDK connects to no port but 80 and 443.
    """
    labels = {LABEL_PROJECT: project, LABEL_PART_OF: PART_OF, LABEL_MANAGED_BY: MANAGER}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": project, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {LABEL_NAME: SERVICE},
            **_ip_families(ip_family_policy),
            "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def rule_of_services(project: str) -> str:
    """What the name of a project breaks that a cluster takes for no Service; "" if that is not known."""
    if re.fullmatch("[a-z0-9-]{1,63}", project) is None:
        return "; use a project whose name has at most 63 letters, digits and hyphens, and nothing else"
    if project[0].isdigit():
        return (
            "; use a project whose name begins with a letter, or Kubernetes 1.36 or newer, where the name of"
            " a Service may begin with a digit"
        )
    return ""


def project_of(service: Document) -> str | None:
    """The project whose Service this is, if the operator created it; None for any other Service."""
    labels = service["metadata"].get("labels") or {}
    return labels.get(LABEL_PROJECT) if labels.get(LABEL_MANAGED_BY) == MANAGER else None


def _ip_families(policy: str) -> Document:
    return {"ipFamilyPolicy": policy} if policy else {}


def leads_to_the_service(service: Document, port: int) -> bool:
    """Whether this Service selects the embedded service's pods, regardless of who created it. One of ours
    needs the endpoint's port too, since it is from before the endpoint's last change otherwise."""
    if service["spec"].get("selector") != {LABEL_NAME: SERVICE}:
        return False
    ours = service["metadata"].get("labels", {}).get(LABEL_MANAGED_BY) == MANAGER
    return not ours or port in [served["port"] for served in service["spec"].get("ports", ())]
