"""Reads what the workers of one group report about their shards, from their pods.

A pod that does not answer is not an error: what it would have reported stays unknown.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from loghub.domain.state_inference import WorkerReport
from loghub.wire import hosts
from loghub.worker_contract import WorkerStatus
from loghub_operator.clients.worker_status import read_statuses
from loghub_operator.logservice.worker_report import report_of
from loghub_operator.resources.services import METRICS_PORT
from loghub_operator.resources.statefulset import CONTAINER

Document = dict[str, Any]
PORT_NAME = "metrics"


async def statuses_of(pods: Sequence[Document], expected: Collection[str]) -> dict[str, WorkerStatus | None]:
    """The status of each expected consumer whose pod runs, by name. Raises nothing."""
    addresses = {name: address_of(pod) for pod in pods if (name := pod["metadata"]["name"]) in expected}
    return await read_statuses({name: address for name, address in addresses.items() if address})


def reports_of(
    statuses: Mapping[str, WorkerStatus | None], *, expected: Collection[str], timeout_s: float
) -> dict[str, WorkerReport | None]:
    """The report of every expected consumer, by name; ``timeout_s`` is the group's."""
    return {
        # The worker itself refuses to return an old status, so no clock of another node is compared.
        name: report_of(statuses.get(name), consumer=name, age_s=0.0, timeout_s=timeout_s)
        for name in expected
    }


def address_of(pod: Document) -> str | None:
    """``host:port`` at which the pod's worker serves its status; None while the pod does not run."""
    status = pod.get("status", {})
    if status.get("phase") != "Running":
        return None
    try:
        host = ipaddress.ip_address(status.get("podIP", ""))  # a host name would be resolved
    except ValueError:
        return None
    return f"{hosts.bracketed(str(host))}:{_port(pod)}"


def _port(pod: Document) -> int:
    containers: list[Document] = pod.get("spec", {}).get("containers") or []
    worker = next((one for one in containers if one.get("name") == CONTAINER), {})
    ports: list[Document] = worker.get("ports") or []
    return next((int(one["containerPort"]) for one in ports if one.get("name") == PORT_NAME), METRICS_PORT)
