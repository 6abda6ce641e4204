"""What an admission webhook makes of our objects is no drift, neither before nor after a restart."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub_operator.clients.kube import STATEFUL_SET, Document, Kind
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.actions import ApplyWorkers
from loghub_operator.model.observed import ObservedStatefulSet, Placement
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.resources import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.wiring import observer_and_applier

GROUP = resource(uid="uid-1")
PLACEMENT = Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=False)
SPEC = worker_spec(GROUP, worker_config(GROUP, PLACEMENT), image="loghub-worker:dev")
Webhook = Callable[[Document], None]


class Cluster:
    """Stores what is applied, as a webhook changes it; annotations of others survive an apply."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self.stored: dict[tuple[str, str], Document] = {}
        self.patches = 0

    async def get(self, kind: Kind, _: str, name: str) -> Document | None:
        return copy.deepcopy(self.stored.get((kind.kind, name)))

    async def list(self, *_: object) -> list[Document]:
        return []

    async def apply(self, document: Document) -> Document:
        key = document["kind"], document["metadata"]["name"]
        before = self.stored.get(key, {"metadata": {}})["metadata"].get("annotations") or {}
        stored = copy.deepcopy(document)
        stored["metadata"]["annotations"] = before | (stored["metadata"].get("annotations") or {})
        self.webhook(stored)
        self.stored[key] = stored
        return copy.deepcopy(stored)

    async def patch(self, kind: Kind, _: str, name: str, patch: Document) -> Document:
        self.patches += 1
        stored = self.stored[kind.kind, name]
        for key, value in patch["metadata"]["annotations"].items():
            stored["metadata"]["annotations"].pop(key, None)
            if value is not None:
                stored["metadata"]["annotations"][key] = value
        return copy.deepcopy(stored)

    @property
    def worker_set(self) -> Document:
        return self.stored[STATEFUL_SET.kind, "access"]

    def carry_out(self) -> None:
        pool, api = LogServicePool(lambda *_: pytest.fail("no log service is asked")), self
        kube: Any = api
        _, applier = observer_and_applier(kube, pool, settings=Settings(), clock=SystemClock())
        asyncio.run(applier.carry_out(GROUP, ApplyWorkers(replicas=1, spec=SPEC)))
        pool.close()

    def drift_after_a_restart(self) -> tuple[str, ...]:
        kube: Any = self
        detector = DriftDetector(kube=kube, clock=SystemClock(), every_s=3600.0)
        stored = ObservedStatefulSet(
            replicas=1, revision=SPEC.revision, document=copy.deepcopy(self.worker_set)
        )
        return tuple(map(str, asyncio.run(detector.drift(SPEC, stored))))


def container_of(document: Document) -> Document:
    container: Document = document["spec"]["template"]["spec"]["containers"][0]
    return container


def mirror(document: Document) -> None:
    """Rewrites images and quantities, and the governing Service."""
    if document["kind"] == "StatefulSet":
        container = container_of(document)
        container["image"] = "mirror.example.com/" + container["image"]
        container["resources"] = {"requests": {"memory": "3Gi"}}
    if document["kind"] == "Service":
        document["spec"]["publishNotReadyAddresses"] = False


def nothing(_: Document) -> None:
    pass


def test_what_a_webhook_changed_is_no_drift_after_a_restart() -> None:
    cluster = Cluster(mirror)
    cluster.carry_out()
    assert container_of(cluster.worker_set)["image"] == "mirror.example.com/loghub-worker:dev"
    assert cluster.drift_after_a_restart() == ()
    cluster.carry_out()
    assert cluster.patches == 2  # of the StatefulSet and of the Service, once
    assert cluster.drift_after_a_restart() == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda document: container_of(document).update(image="evil"), "containers[worker].image"),
        (lambda document: document["spec"].update(serviceName="other"), "spec.serviceName"),
    ],
    ids=["of a field that the webhook changed", "of another field"],
)
def test_what_another_client_changed_meanwhile_is_drift(change: Webhook, field: str) -> None:
    cluster = Cluster(mirror)
    cluster.carry_out()
    change(cluster.worker_set)
    assert any(one.endswith(field) for one in cluster.drift_after_a_restart())


def test_without_a_webhook_nothing_is_recorded() -> None:
    cluster = Cluster(nothing)
    cluster.carry_out()
    assert (cluster.patches, cluster.drift_after_a_restart()) == (0, ())


def test_a_record_goes_once_the_webhook_leaves_the_fields_alone() -> None:
    cluster = Cluster(mirror)
    cluster.carry_out()
    recorded = set(cluster.worker_set["metadata"]["annotations"])
    cluster.webhook = nothing
    cluster.carry_out()
    (removed,) = recorded - set(cluster.worker_set["metadata"]["annotations"])
    assert removed == "loghub.dev/left-to-others"
    mirror(cluster.worker_set)  # as another client might, which is no webhook
    assert any(one.endswith("containers[worker].image") for one in cluster.drift_after_a_restart())
