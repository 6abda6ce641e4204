"""The dependencies of a StatefulSet are compared once per interval and on drift, not just after a write."""

import asyncio
import copy
from dataclasses import replace
from typing import Any

from loghub_operator.clients.kube import Kind
from loghub_operator.model.observed import ObservedStatefulSet, Placement
from loghub_operator.model.revision import UNKNOWN, Revision, WorkerSpec
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.support.examples import Document, resource

CONFIG = worker_config(
    resource(), Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=False)
)

EVERY_S = 90.0
SET: Document = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "access", "namespace": "default"},
    "spec": {"serviceName": "access"},
}
SERVICE: Document = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "access", "namespace": "default"},
    "spec": {"clusterIP": "None"},
}


class Cluster:
    """One StatefulSet and one Service, which another client has changed; a clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stored = copy.deepcopy(SERVICE)
        self.stored["spec"]["clusterIP"] = "10.0.0.1"
        kube: Any = self
        self.drifting = DriftDetector(kube=kube, clock=kube, every_s=EVERY_S)

    def monotonic_s(self) -> float:
        return self.now

    async def get(self, _: Kind, __: str, ___: str) -> Document:
        return self.stored

    def drift(self, existing: Document = SET, wanted: Document = SET) -> tuple[str, ...]:
        desired = WorkerSpec(
            revision=UNKNOWN, config=CONFIG, stateful_set=wanted, dependencies=(copy.deepcopy(SERVICE),)
        )
        stored = ObservedStatefulSet(replicas=1, revision=UNKNOWN, document=existing)
        return tuple(map(str, asyncio.run(self.drifting.drift(desired, stored))))


DRIFTED = ("Service access spec.clusterIP",)


def test_dependencies_are_compared_first_at_once_and_then_once_per_interval() -> None:
    cluster = Cluster()
    assert cluster.drift() == DRIFTED
    cluster.now += EVERY_S - 1
    assert cluster.drift() == ()
    cluster.now += 1
    assert cluster.drift() == DRIFTED


def test_a_change_of_ours_that_is_not_applied_yet_is_no_drift() -> None:
    """The StatefulSet has another revision then; and a deletion applies nothing, so it has no desired one."""
    cluster = Cluster()
    other = ObservedStatefulSet(replicas=1, revision=Revision(settings="other"), document={**SET, "spec": {}})
    desired = WorkerSpec(revision=UNKNOWN, config=CONFIG, stateful_set=SET, dependencies=(SERVICE,))
    assert asyncio.run(cluster.drifting.drift(desired, other)) == ()
    assert asyncio.run(cluster.drifting.drift(None, replace(other, revision=UNKNOWN))) == ()
    assert asyncio.run(cluster.drifting.drift(desired, None)) == ()
    assert asyncio.run(cluster.drifting.drift(desired, replace(other, revision=UNKNOWN))) != ()


def test_dependencies_that_were_just_written_are_not_compared() -> None:
    cluster = Cluster()
    cluster.drifting.wrote(SET, SET)
    assert cluster.drift() == ()
    cluster.now += EVERY_S
    assert cluster.drift() == DRIFTED


def test_a_write_of_a_dependency_alone_does_not_delay_the_comparison() -> None:
    cluster = Cluster()
    cluster.drifting.wrote(SERVICE, SERVICE)
    assert cluster.drift() == DRIFTED


def test_the_generation_in_an_equal_revision_is_no_drift() -> None:
    cluster = Cluster()
    cluster.drifting.wrote(SET, SET)
    wanted, existing = copy.deepcopy(SET), copy.deepcopy(SET)
    wanted["metadata"]["annotations"] = {"loghub.dev/revision": "a.b.c.2", "other": "1"}
    existing["metadata"]["annotations"] = {"loghub.dev/revision": "a.b.c.1", "other": "2"}
    assert cluster.drift(existing, wanted) == ("StatefulSet access metadata.annotations.other", *DRIFTED)


def test_a_part_of_a_revision_that_another_release_added_is_no_drift() -> None:
    """Correcting it would restart every worker."""
    cluster = Cluster()
    cluster.drifting.wrote(SET, SET)
    wanted, existing = copy.deepcopy(SET), copy.deepcopy(SET)
    for document, added in ((wanted, ""), (existing, ";canary=2")):
        template = {"metadata": {"annotations": {"loghub.dev/revision": f"a.b{added}"}}}
        document["metadata"]["annotations"] = {"loghub.dev/revision": f"a.b.c.1{added}"}
        document["spec"]["template"] = template
    assert cluster.drift(existing, wanted) == ()
    existing["spec"]["template"]["metadata"]["annotations"]["loghub.dev/revision"] = "x.b"
    path = "spec.template.metadata.annotations.loghub.dev/revision"
    assert cluster.drift(existing, wanted) == (f"StatefulSet access {path}", *DRIFTED)


def test_drift_of_the_stateful_set_compares_the_dependencies_too() -> None:
    cluster = Cluster()
    cluster.drifting.wrote(SET, SET)
    changed = {**SET, "spec": {"serviceName": "other"}}
    assert cluster.drift(changed) == ("StatefulSet access spec.serviceName", *DRIFTED)
