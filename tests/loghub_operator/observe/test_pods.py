"""A pod becomes the worker's phase, reason and message."""

from datetime import datetime
from typing import Any

import pytest

from loghub_operator.api.status import Condition
from loghub_operator.model.observed import WorkerPhase
from loghub_operator.model.revision import Revision
from loghub_operator.observe.pods import worker_from_pod

Document = dict[str, Any]
NOW = datetime.fromisoformat("2026-01-01T00:00:10Z").timestamp()


def pod(status: Document | None = None, *, name: str = "access-1", **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "status": status or {}}


def with_container(ready: bool = False, **container: Any) -> Document:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"conditions": conditions, "containerStatuses": [{"ready": ready, **container}]}


def ended(message: str = "", reason: str = "Error", code: int = 1) -> Document:
    return {"terminated": {"message": message, "reason": reason, "exitCode": code}}


CASES: dict[str, tuple[Document, WorkerPhase, str, str]] = {
    "nothing yet": ({}, WorkerPhase.PENDING, "", ""),
    "ready": (with_container(True, state={"running": {}}), WorkerPhase.RUNNING, "", ""),
    "started": (with_container(state={"running": {}}), WorkerPhase.STARTING, "", ""),
    "no node": (
        {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
            ]
        },
        WorkerPhase.PENDING,
        "Unschedulable",
        "0/1 nodes",
    ),
    "no image": (
        with_container(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling x"}}),
        WorkerPhase.FAILED,
        "ImagePullBackOff",
        "Back-off pulling x",
    ),
    "wrong sql": (
        with_container(state=ended("InvalidPipeline: [PARSE_SYNTAX_ERROR] near 'SELEC': line 1")),
        WorkerPhase.FAILED,
        "InvalidPipeline",
        "[PARSE_SYNTAX_ERROR] near 'SELEC': line 1",
    ),
    "wrong sql, in back-off": (
        with_container(
            state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
            lastState=ended("InvalidPipeline: no such column"),
        ),
        WorkerPhase.FAILED,
        "InvalidPipeline",
        "no such column",
    ),
    "wrong sql, restarted and not ready yet": (
        with_container(state={"running": {}}, lastState=ended("InvalidPipeline: no such column")),
        WorkerPhase.FAILED,
        "InvalidPipeline",
        "no such column",
    ),
    "killed and restarted": (
        with_container(state={"running": {}}, lastState=ended("", "Error", 137)),
        WorkerPhase.STARTING,
        "",
        "",
    ),
    "crash loop without a message": (
        with_container(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended("", "Error", 3)),
        WorkerPhase.FAILED,
        "",
        "Error, exit status 3",
    ),
    "out of memory": (
        with_container(state={"running": {}}, lastState=ended("", "OOMKilled", 137)),
        WorkerPhase.FAILED,
        "OOMKilled",
        "OOMKilled, exit status 137",
    ),
    "evicted by its node": (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        WorkerPhase.FAILED,
        "Evicted",
        "The node was low on resource: memory.",
    ),
    "an init container of an overlay fails": (
        {
            "initContainerStatuses": [
                {
                    "name": "fetch",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": ended("no key"),
                }
            ],
            "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}],
        },
        WorkerPhase.FAILED,
        "",
        "container fetch: no key",
    ),
    "an init container of an overlay succeeded, with a message": (
        {
            "initContainerStatuses": [{"name": "fetch", "state": ended("3 files", "Completed", 0)}],
            "containerStatuses": [{"name": "worker", "state": {"running": {}}}],
        },
        WorkerPhase.STARTING,
        "",
        "",
    ),
    "a sidecar of an overlay has no image, the worker runs": (
        {
            "containerStatuses": [
                {"name": "shipper", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}},
                {"name": "worker", "ready": True, "state": {"running": {}}},
            ],
        },
        WorkerPhase.FAILED,
        "ErrImagePull",
        "container shipper: not found",
    ),
    "its node is not reachable": (
        {
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "worker", "ready": True, "state": {"running": {}}}],
        },
        WorkerPhase.STARTING,
        "NodeNotReady",
        "its containers were ready, and the pod is not; check node ",
    ),
    "recovered": (
        with_container(True, state={"running": {}}, lastState=ended("InvalidPipeline: x")),
        WorkerPhase.RUNNING,
        "",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pod_gives_phase_reason_and_message(name: str) -> None:
    status, phase, reason, message = CASES[name]
    worker = worker_from_pod(pod(status), NOW)
    assert worker is not None
    assert (worker.phase, worker.reason, worker.message) == (phase, reason, message)
    assert worker.ready == (phase is WorkerPhase.RUNNING)


@pytest.mark.parametrize(
    ("unready_at", "phase"),
    [
        ("2026-01-01T09:00:00Z", WorkerPhase.FAILED),  # since it died
        ("2026-01-01T09:00:03Z", WorkerPhase.FAILED),  # reported late
        ("2026-01-01T10:00:00Z", WorkerPhase.STARTING),  # it came up since: the log service is away, say
    ],
)
def test_a_termination_message_is_outdated_once_the_container_was_ready(
    unready_at: str, phase: WorkerPhase
) -> None:
    running = {"running": {"startedAt": "2026-01-01T09:00:00Z"}}
    status = with_container(state=running, lastState=ended("", "OOMKilled", 137))
    status["conditions"][0]["lastTransitionTime"] = unready_at
    worker = worker_from_pod(pod(status), NOW)
    assert worker is not None
    assert worker.phase is phase


def test_a_pod_being_deleted_is_stopping_and_not_ready() -> None:
    status = with_container(True, state={"running": {}})
    worker = worker_from_pod(pod(status, deletionTimestamp="2026-01-01T00:00:00Z"), NOW)
    assert worker is not None
    assert (worker.phase, worker.ready) == (WorkerPhase.STOPPING, False)


def test_an_evicted_pod_and_a_pod_stuck_in_terminating_are_reported() -> None:
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    leaving = pod({"conditions": [disrupted]}, deletionTimestamp="2026-01-01T00:00:00Z")
    leaving["spec"] = {"nodeName": "n1"}
    worker, later = worker_from_pod(leaving, NOW), worker_from_pod(leaving, NOW + 600)
    assert worker is not None
    assert later is not None
    assert (worker.reason, worker.message) == ("EvictionByEvictionAPI", "Eviction API: evicting")
    overdue = "it should have terminated by 2026-01-01T00:00:00Z; check node n1"
    assert later.message == f"Eviction API: evicting; {overdue}"


def test_a_drain_request_and_its_time_are_annotations() -> None:
    marks = {
        "loghub.dev/drain": "true",
        "loghub.dev/drain-requested-at": "2026-01-01T00:00:10Z",
        "loghub.dev/revision": "s.t",
    }
    worker = worker_from_pod(pod(annotations=marks), NOW)
    assert worker is not None
    assert (worker.drain_requested, worker.drain_requested_at_unix_s, worker.revision) == (
        True,
        NOW,
        Revision(settings="s", pod_template="t"),
    )


@pytest.mark.parametrize("value", ["false", "True", "1", "leave", ""])
def test_any_other_value_of_the_drain_annotation_requests_none(value: str) -> None:
    worker = worker_from_pod(pod(annotations={"loghub.dev/drain": value}), NOW)
    assert worker is not None
    assert not worker.drain_requested


@pytest.mark.parametrize(
    "time", ["nonsense", "", "1767225610", "2026-01-01", "2026-01-01 00:00:10Z", "2026-02-30T00:00:10Z"]
)
def test_a_time_that_is_not_rfc_3339_is_unknown(time: str) -> None:
    marks = {"loghub.dev/drain": "true", "loghub.dev/drain-requested-at": time}
    worker = worker_from_pod(pod(annotations=marks), NOW)
    assert worker is not None
    assert (worker.drain_requested, worker.drain_requested_at_unix_s) == (True, None)


DRAIN: Document = {"annotations": {"loghub.dev/drain": "true"}}
UP: Document = {"name": "worker", "state": {"running": {}}, "started": True}


@pytest.mark.parametrize(
    ("marks", "container", "phase"),
    [
        (DRAIN, {**UP, "ready": False}, WorkerPhase.LEFT),
        (DRAIN, {**UP, "ready": True}, WorkerPhase.RUNNING),  # it drains
        ({}, {**UP, "ready": False}, WorkerPhase.STARTING),  # it was not asked to drain
        (DRAIN, {**UP, "started": False, "ready": False}, WorkerPhase.STARTING),
        (DRAIN, {**UP, "ready": False, "lastState": ended("InvalidSink: no")}, WorkerPhase.FAILED),
    ],
)
def test_a_draining_worker_that_is_started_and_not_ready_has_left(
    marks: Document, container: Document, phase: WorkerPhase
) -> None:
    worker = worker_from_pod(pod(with_container(**container), **marks), NOW)
    assert worker is not None
    assert (worker.phase, worker.ready) == (phase, phase is WorkerPhase.RUNNING)


def test_only_the_worker_container_shows_that_the_worker_left() -> None:
    """A lost node makes the pod unready, and so does a container that an overlay added."""
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{**UP, "name": "sidecar", "ready": False}, {**UP, "ready": True}],
    }
    worker = worker_from_pod(pod(status, **DRAIN), NOW)
    assert worker is not None
    assert worker.phase is WorkerPhase.STARTING


def test_a_reason_too_long_for_a_condition_is_truncated() -> None:
    """A pod may be ended by any client, for example an admission webhook, with any reason."""
    long = "Because" * 20
    evicted = worker_from_pod(pod({"phase": "Failed", "reason": long}), 0.0)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": long}
    pending = worker_from_pod(pod({"conditions": [unscheduled]}), 0.0)
    for worker in (evicted, pending):
        assert worker is not None
        assert long.startswith(worker.reason)
        Condition(
            type="Ready", status="False", reason=worker.reason, last_transition_time="2026-01-01T00:00:00Z"
        )


def test_a_pod_without_an_ordinal_is_no_worker() -> None:
    assert worker_from_pod(pod(name="access-x"), NOW) is None
    for other in ("access-01", "access-" + "9" * 10, "access-\u00b2"):
        assert worker_from_pod(pod(name=other), NOW) is None
    worker = worker_from_pod(pod(name="my-access-12"), NOW)
    assert worker is not None
    assert worker.ordinal == 12
