"""Why pods are missing or do not start: the words of the API server, if there are any."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from loghub_operator.clients.kube import KubeError
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN
from loghub_operator.observe.observer import explained, refusal_of
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan

Document = dict[str, Any]
QUOTA = 'create Pod access-1 failed: pods "access-1" is forbidden: exceeded quota: small, requested: pods=1'
SET: Document = {"metadata": {"namespace": "ns", "name": "access", "uid": "set"}, "spec": {"replicas": 2}}
PODS = [{"metadata": {"namespace": "ns", "name": f"access-{n}", "uid": f"pod-{n}"}} for n in (0, 1)]


class Events:
    """An API server that has these."""

    def __init__(self, by_uid: dict[str, list[Document]], error: KubeError | None = None) -> None:
        self.by_uid, self.error, self.asked = by_uid, error, list[str]()

    async def warnings(self, namespace: str, uid: str) -> list[Document]:
        self.asked.append(uid)
        if self.error is not None:
            raise self.error
        return self.by_uid.get(uid, [])


def event(reason: str, note: str, at: str) -> Document:
    """As the controllers of Kubernetes write it."""
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "reason": reason, "note": note, "deprecatedLastTimestamp": at}


def worker(ordinal: int, phase: WorkerPhase, message: str = "") -> WorkerObserved:
    name = f"access-{ordinal}"
    return WorkerObserved(
        name=name, ordinal=ordinal, phase=phase, ready=phase is WorkerPhase.RUNNING, revision=UNKNOWN,
        drain_requested=False, message=message,
    )  # fmt: skip


def test_missing_pods_have_the_words_of_the_newest_warning() -> None:
    early = event("FailedCreate", "an earlier one", "2026-01-02T00:00:00Z")
    kube: Any = Events({"set": [early, event("FailedCreate", QUOTA, "2026-01-03T00:00:00Z"), early]})
    one = (worker(0, WorkerPhase.RUNNING),)
    assert asyncio.run(refusal_of(kube, SET, one)) == QUOTA
    kube.asked.clear()
    assert asyncio.run(refusal_of(kube, SET, (*one, worker(1, WorkerPhase.PENDING)))) == ""
    assert kube.asked == [], "where nothing is missing nothing is asked"


def test_a_pod_that_waits_in_silence_has_the_words_of_the_kubelet() -> None:
    note = 'MountVolume.SetUp failed for volume "sink": secret "s3" not found'
    kube: Any = Events({"pod-1": [event("FailedMount", note, "2026-01-02T00:00:00Z")]})
    workers = (worker(0, WorkerPhase.RUNNING), worker(1, WorkerPhase.PENDING))
    _, second = asyncio.run(explained(kube, workers, PODS))
    assert (second.reason, second.message) == ("FailedMount", note)
    kube.asked.clear()
    said = (worker(0, WorkerPhase.RUNNING), worker(1, WorkerPhase.PENDING, "0/3 nodes are available"))
    assert asyncio.run(explained(kube, said, PODS)) == said
    assert kube.asked == []


@pytest.mark.parametrize(("status", "raises"), [(403, False), (500, True)])
def test_without_the_right_to_ask_nothing_is_said(status: int, raises: bool) -> None:
    """After an upgrade of the operator alone."""
    kube: Any = Events({}, KubeError(status, "X", "events is forbidden"))
    if raises:
        with pytest.raises(KubeError):
            asyncio.run(refusal_of(kube, SET, ()))
    else:
        assert asyncio.run(refusal_of(kube, SET, ())) == ""


def test_refused_pods_are_degraded_at_once() -> None:
    step = next(one for one in steps(FOLDER / "drift.yaml") if one.observed.worker_set)
    assert step.observed.worker_set is not None
    refused = replace(step.observed.worker_set, refusal=QUOTA)
    observed = replace(step.observed, worker_set=refused, workers=())
    planned = plan(step.resource, observed, step.now)
    conditions = {one.type: one for one in planned.status.conditions}
    for kind in ("WorkersAvailable", "Degraded"):
        assert conditions[kind].reason == "PodsRefused"
        assert "exceeded quota" in conditions[kind].message
