"""The workers of a group by their pods: how each is, and what is wrong with it. Pure."""

import re
from collections.abc import Iterator, Sequence

from loghub_cli.group_view import Document, ShownWorker, age, name_of, status_of, worker_row
from loghub_cli.output import Record

CONTAINER = "worker"
_LABELS = "app.kubernetes.io/name=loghub-worker,app.kubernetes.io/instance"


def selector(document: Document) -> str:
    """The labels of the workers' pods, as the status has them, or as the operator would write them."""
    return str(status_of(document).get("selector") or f"{_LABELS}={name_of(document)}")


def worker_of(pod: Document, shards: Sequence[int]) -> Record:
    """A row as `loghub status` shows for a worker on this machine."""
    row = dict(worker_row(pod["metadata"]["name"], _shown(pod, shards)))
    del row["rows"], row["engine"]  # which only the worker itself says
    return {**row, "restarts": _container(pod).get("restartCount", 0)}


def _shown(pod: Document, shards: Sequence[int]) -> ShownWorker:
    reason, message = next(_complaints(pod), ("", ""))
    return ShownWorker(_phase(pod), shards=sorted(shards), reason=reason, message=message)


def _phase(pod: Document) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    if is_ready(pod):
        return "ready"
    return "starting" if "running" in (_container(pod).get("state") or {}) else "waiting"


def is_ready(pod: Document) -> bool:
    """By its condition."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _container(pod: Document) -> Document:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in statuses if one["name"] == CONTAINER), {})


def _complaints(pod: Document) -> Iterator[tuple[str, str]]:
    """Reason and message, the present ones first. A worker leaves ``Reason: message`` when it ends."""
    container, status = _container(pod), pod.get("status") or {}
    states = [container.get("state") or {}]
    if not is_ready(pod):
        states.append(container.get("lastState") or {})
    for state in states:
        for kind in ("waiting", "terminated"):
            said = state.get(kind)
            if said and said.get("reason") != "ContainerCreating" and said.get("exitCode") != 0:
                yield _said(said)
    if status.get("reason"):
        yield status["reason"], status.get("message", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            yield condition.get("reason", "Unschedulable"), condition.get("message", "")


def _said(state: Document) -> tuple[str, str]:
    reason, message = str(state.get("reason", "")), str(state.get("message", "")).strip()
    own, colon, rest = message.partition(": ")
    if colon and own.isalnum():
        return own, rest
    if "exitCode" in state:
        message = message or f"exit status {state['exitCode']}"
    return reason, message


def trouble(pod: Document, *, now_unix_s: float) -> Record | None:
    """A row for a pod that is not ready or has been started again; None for any other one."""
    container = _container(pod)
    said = " ".join(next(_last_words(pod), "").split())
    if is_ready(pod) and not container.get("restartCount"):
        return None
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return {
        "worker": pod["metadata"]["name"],
        "phase": _phase(pod),
        "restarts": container.get("restartCount", 0),
        "lastEnd": age(ended.get("finishedAt"), now_unix_s=now_unix_s),
        "says": said or None,
    }


def _last_words(pod: Document) -> Iterator[str]:
    yield from (": ".join(part for part in words if part) for words in _complaints(pod))
    ended = (_container(pod).get("lastState") or {}).get("terminated")
    if ended:
        yield ": ".join(part for part in _said(ended) if part)


def is_about(event: Document, name: str) -> bool:
    """Whether an Event is about the group, its StatefulSet, or one of its workers."""
    about = str((event.get("involvedObject") or {}).get("name", ""))
    return about == name or re.fullmatch(rf"{re.escape(name)}-\d+", about) is not None
