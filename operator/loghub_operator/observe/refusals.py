"""Finds out why pods are missing or do not start, in the API server's own words.

A quota, a limit range, Pod Security or a webhook refuses a pod before it exists, and a missing Secret or a
volume of a lost node keeps one from starting: neither is in the status of any object, only in a Warning event
of the StatefulSet or the pod. The events are requested only while there is something to explain.
"""

from collections.abc import Sequence
from dataclasses import replace

from loghub.worker_contract import LONGEST_REASON
from loghub_operator.clients.kube import FORBIDDEN, Document, Kube, KubeError
from loghub_operator.model.observed import WorkerObserved, WorkerPhase

LONGEST_NOTE = 1000  # characters of an event in a condition


async def refusal_of(kube: Kube, stateful_set: Document, workers: Sequence[WorkerObserved]) -> str:
    """Why the StatefulSet has fewer pods than it asks for; "" if that is not so, or nothing says why."""
    wanted = int(stateful_set["spec"].get("replicas", 0))
    if sum(one.ordinal < wanted for one in workers) >= wanted:
        return ""
    newest = await _newest(kube, stateful_set)
    return "" if newest is None else newest[1]


async def explained(
    kube: Kube, workers: Sequence[WorkerObserved], pods: Sequence[Document]
) -> tuple[WorkerObserved, ...]:
    """The workers, and of the first one that does not start without having said why, what keeps it."""
    result = list(workers)
    silent = (number for number, one in enumerate(workers) if one.phase is WorkerPhase.PENDING)
    number = next((number for number in silent if not workers[number].message), None)
    if number is None:
        return tuple(workers)
    pod = next(one for one in pods if one["metadata"]["name"] == workers[number].name)
    newest = await _newest(kube, pod)
    if newest is not None:
        reason, note = newest
        result[number] = replace(workers[number], reason=reason[:LONGEST_REASON], message=note)
    return tuple(result)


async def _newest(kube: Kube, of: Document) -> tuple[str, str] | None:
    """Reason and text of the newest Warning about the object. An operator that is newer than its chart has no
    right to ask, and goes on without."""
    metadata = of["metadata"]
    try:
        events = await kube.warnings(metadata.get("namespace", ""), metadata.get("uid", ""))
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return None
    if not events:
        return None
    newest = max(events, key=_last_seen)
    return str(newest.get("reason") or ""), str(newest.get("note") or "")[:LONGEST_NOTE]


def _last_seen(event: Document) -> str:
    """All of them are RFC 3339 in UTC, so their order is that of the texts."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return max(str(one) for one in times if one) if any(times) else ""
