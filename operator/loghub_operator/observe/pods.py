"""Derives the state of a worker, `WorkerObserved`, from its pod, and requests its own status over HTTP.

A pod that does not answer is not an error: what it would have reported stays unknown. A worker runs the
user's code, so its answer (`loghub.contract.worker`, ``/status``) is not trusted: time and size are bounded,
no redirect is followed, no proxy of the environment is used, and an answer that is not a `WorkerStatus`
counts as none.

An HTTP library would interpret the answer while it arrives, and parse megabytes of headers, interim responses
or tiny chunks in the event loop before a limit of the body applies; a hundred such workers would stop the
loop for seconds. So the bytes are read up to a limit, to the end of the connection, and only then looked at.
"""

import asyncio
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from loghub.contract.worker import (
    DRAIN_ANNOTATION,
    DRAIN_REQUESTED,
    MAX_REASON,
    STATUS_PATH,
    WorkerStatus,
    parse_termination_message,
)
from loghub.domain.state_inference import WorkerReport
from loghub.wire import names
from loghub_operator.api import fields
from loghub_operator.api.labels import ANNOTATION_DRAIN_REQUESTED_AT, ANNOTATION_REVISION
from loghub_operator.logservice.group_state import report_of
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import Revision
from loghub_operator.resources.services import METRICS_PORT
from loghub_operator.resources.statefulset import CONTAINER

TIMEOUT_S = 2.0  # for all workers of a group together: a pod that hangs delays its group no longer
# A connection within a cluster takes milliseconds. Where a network policy drops the requests of many groups,
# their reconciles wait for this, and the resyncs still keep up.
CONNECT_S = 0.5
MAX_BYTES = 256 * 1024  # of an answer with its headers; a shard takes about 200
MAX_AT_ONCE = 100  # pods of one group: each has an open connection and a buffer
_OK = (b"HTTP/1.0 200 ", b"HTTP/1.1 200 ")


async def read_statuses(
    addresses: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
) -> dict[str, WorkerStatus | None]:
    """The status of each worker by its ``host:port``, the host being an IP address, in brackets if it is of
    version 6; None for each that returns none within ``timeout_s``. Raises nothing."""
    places = asyncio.Semaphore(MAX_AT_ONCE)
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    statuses = await asyncio.gather(*(_read(one, places, deadline_s) for one in addresses.values()))
    return dict(zip(addresses, statuses, strict=True))


async def _read(address: str, places: asyncio.Semaphore, deadline_s: float) -> WorkerStatus | None:
    try:
        async with asyncio.timeout_at(deadline_s), places:
            answer = await _answer(address)
        head, _, body = answer.partition(b"\r\n\r\n")
        # ValueError: a text in the JSON is not UTF-8.
        return msgspec.json.decode(body, type=WorkerStatus) if head.startswith(_OK) else None
    except (TimeoutError, OSError, msgspec.MsgspecError, RecursionError, ValueError):
        return None


async def _answer(address: str) -> bytes:
    """The answer as it was sent; empty if it is larger than `MAX_BYTES`."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(_request(address))
        await reader.readexactly(MAX_BYTES + 1)
    except asyncio.IncompleteReadError as all_of_it:
        return all_of_it.partial
    finally:
        writer.transport.abort()
    return b""


def _request(address: str) -> bytes:
    lines = (
        f"GET {STATUS_PATH} HTTP/1.1",
        f"Host: {address}",
        "Accept: application/json",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


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
    return f"{names.bracketed(str(host))}:{_port(pod)}"


def _port(pod: Document) -> int:
    containers: list[Document] = pod.get("spec", {}).get("containers") or []
    worker = next((one for one in containers if one.get("name") == CONTAINER), {})
    ports: list[Document] = worker.get("ports") or []
    return next((int(one["containerPort"]) for one in ports if one.get("name") == PORT_NAME), METRICS_PORT)


# The kubelet's reasons that do not go away by waiting.
CANNOT_START = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_ORDINAL = re.compile("0|[1-9][0-9]{0,8}")  # more than that is no number of workers
RESTARTED_S = 10.0  # time within which a pod becomes unready after its container has died
OVERDUE_S = 60.0  # time after the grace period by which a pod on a reachable node has terminated


class PodReason(StrEnum):
    """A worker's pod, besides Kubernetes' own reasons such as ImagePullBackOff, OOMKilled, Evicted and
    Unschedulable.

    POD_FAILED: the pod failed without a reason; it is recreated. STUCK_TERMINATING: the pod has been stuck in
    Terminating for over a minute past its grace period, usually because its node is unreachable. Force-delete
    pods of lost nodes. NODE_NOT_READY: the containers are ready but the pod is not, usually because its node
    is unreachable.
    """

    POD_FAILED = "PodFailed"
    STUCK_TERMINATING = "StuckTerminating"
    NODE_NOT_READY = "NodeNotReady"


def worker_from_pod(pod: Document, now: float) -> WorkerObserved | None:
    """None for a pod whose name has no ordinal, which no StatefulSet created. ``now`` is in Unix seconds."""
    metadata = pod["metadata"]
    ordinal = metadata["name"].rpartition("-")[2]
    if not _ORDINAL.fullmatch(ordinal):
        return None
    annotations = metadata.get("annotations") or {}
    ready = is_ready(pod)
    drain_requested = annotations.get(DRAIN_ANNOTATION) == DRAIN_REQUESTED
    phase, reason, message = _phase(pod, ready=ready, now=now)
    if drain_requested and phase is WorkerPhase.STARTING and _holds_no_shard(pod):
        phase, reason, message = WorkerPhase.LEFT, "", ""
    return WorkerObserved(
        name=metadata["name"],
        ordinal=int(ordinal),
        phase=phase,
        ready=ready and phase is WorkerPhase.RUNNING,
        revision=Revision.parse(annotations.get(ANNOTATION_REVISION, "")),
        drain_requested=drain_requested,
        drain_requested_at_unix_s=_unix_s(annotations.get(ANNOTATION_DRAIN_REQUESTED_AT)),
        reason=reason[:MAX_REASON],
        message=message,
    )


def _unix_s(time: str | None) -> float | None:
    """None for an invalid time: users can edit the annotation."""
    try:
        return None if time is None else float(fields.unix_s(time))
    except ValueError:
        return None


def _condition(pod: Document, kind: str) -> Document:
    conditions: list[Document] = pod.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), {})


def is_ready(pod: Document) -> bool:
    """Whether the kubelet reports the pod as ready."""
    return bool(_condition(pod, "Ready").get("status") == "True")


def _holds_no_shard(pod: Document) -> bool:
    """Whether the worker reports that it holds no shard: it has started and is not ready
    (`loghub.contract.worker`). Uses the status of the worker's own container, because an unreachable node
    also makes the pod unready."""
    statuses: list[Document] = pod["status"].get("containerStatuses") or []
    worker = next((one for one in statuses if one.get("name", CONTAINER) == CONTAINER), {})
    return bool(worker.get("started")) and not worker.get("ready")


def _containers(pod: Document) -> list[Document]:
    """In order of importance: the worker, the init containers, the containers that an overlay added."""
    status = pod.get("status", {})
    containers: list[Document] = list(status.get("containerStatuses") or ())
    init: list[Document] = list(status.get("initContainerStatuses") or ())
    workers = [one for one in containers if one.get("name", CONTAINER) == CONTAINER]
    return [*workers, *init, *(one for one in containers if one not in workers)]


def _phase(pod: Document, *, ready: bool, now: float) -> tuple[WorkerPhase, str, str]:
    if pod["metadata"].get("deletionTimestamp"):
        return WorkerPhase.STOPPING, *_ending(pod, now)
    status = pod.get("status", {})
    if status.get("phase") == "Failed":  # for example evicted; the StatefulSet recreates the pod
        reason = str(status.get("reason") or PodReason.POD_FAILED)
        return WorkerPhase.FAILED, reason, str(status.get("message") or reason)
    if ready:
        return WorkerPhase.RUNNING, "", ""
    failed = _first_failure(pod)
    if failed is not None:
        return WorkerPhase.FAILED, *failed
    containers = status.get("containerStatuses") or ()
    if any("running" in one.get("state", {}) for one in containers):
        return WorkerPhase.STARTING, *_unready(pod)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return WorkerPhase.PENDING, str(scheduled.get("reason", "")), str(scheduled.get("message", ""))
    return WorkerPhase.PENDING, "", ""


def _ending(pod: Document, now: float) -> tuple[str, str]:
    """The reason and message of a disruption, and whether termination is overdue, as on a lost node."""
    disruption = _condition(pod, "DisruptionTarget")
    reason, message = str(disruption.get("reason", "")), str(disruption.get("message", ""))
    due = pod["metadata"]["deletionTimestamp"]  # already includes the grace period
    if now - datetime.fromisoformat(due).timestamp() > OVERDUE_S:
        overdue = f"it should have terminated by {due}; check node {pod.get('spec', {}).get('nodeName', '')}"
        return reason or PodReason.STUCK_TERMINATING, f"{message}; {overdue}" if message else overdue
    return (reason, message) if disruption.get("status") == "True" else ("", "")


def _unready(pod: Document) -> tuple[str, str]:
    """Every container is reported ready but the pod is not, so its node no longer reports."""
    if not all(one.get("ready") for one in pod["status"]["containerStatuses"]):
        return "", ""
    node = pod.get("spec", {}).get("nodeName", "")
    return (
        PodReason.NODE_NOT_READY,
        f"its containers were ready, and the pod is not; check node {node}",
    )


def _first_failure(pod: Document) -> tuple[str, str] | None:
    for container in _containers(pod):
        failed = _failure(container, was_ready=_was_ready(pod, container))
        if failed is not None:
            name = str(container.get("name") or CONTAINER)
            reason, message = failed
            return reason, message if name == CONTAINER else f"container {name}: {message}"
    return None


def _was_ready(pod: Document, container: Document) -> bool:
    """Whether the container was ready since its last start: the pod became unready well after that start."""
    begun = container.get("state", {}).get("running", {}).get("startedAt")
    unready = _condition(pod, "Ready").get("lastTransitionTime")
    if not begun or not unready:
        return False
    return (datetime.fromisoformat(unready) - datetime.fromisoformat(begun)).total_seconds() > RESTARTED_S


def _failure(container: Document, *, was_ready: bool) -> tuple[str, str] | None:
    """The container's termination message, else the kubelet's reason; None while the container may still
    start, or if it has since become ready."""
    state, before = container.get("state", {}), container.get("lastState", {})
    ended = state.get("terminated") or (None if was_ready else before.get("terminated"))
    waiting: Document = state.get("waiting") or {}
    stuck = waiting.get("reason") in CANNOT_START
    if ended and (stuck or _ended_badly(ended)):
        return _termination_message(ended)
    if stuck:
        return str(waiting["reason"]), str(waiting.get("message") or waiting["reason"])
    return None


def _ended_badly(ended: Document) -> bool:
    """Whether the container failed and reported why. A container that succeeds, such as an init container,
    may leave a message too."""
    reported = ended.get("message") or ended.get("reason") == "OOMKilled"
    return bool(reported) and ended.get("exitCode") != 0


def _termination_message(ended: Document) -> tuple[str, str]:
    """The worker writes ``Reason: message`` (loghub.contract.worker)."""
    text = str(ended.get("message") or "").strip()
    parsed = parse_termination_message(text)
    if parsed is not None:
        return parsed
    kubelet = str(ended.get("reason") or "Error")
    code = f"exit status {ended.get('exitCode')}"
    # The kubelet's bare "Error" and "Completed" add nothing to the condition.
    return ("" if kubelet in ("Error", "Completed") else kubelet), text or f"{kubelet}, {code}"
