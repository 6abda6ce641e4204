"""Workers stop also where the API server, or the operator's settings, refuse what they would run with."""

import asyncio
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub_operator.clients.kube import Document, Kind, KubeError
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.actions import ActionRefused, ApplyWorkers
from loghub_operator.model.observed import Placement
from loghub_operator.resources import with_replicas, worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings
from tests.loghub_operator.apply.test_fields_left_to_others import Cluster
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.wiring import observer_and_applier

IN_PODS = Placement(
    endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=False, has_pods=True
)


class Refusing(Cluster):
    """Refuses one kind, and has a StatefulSet of two replicas, of a former spec."""

    def __init__(self, refused: str, existing: Document) -> None:
        super().__init__(lambda _: None)
        self.refused = refused
        self.stored["StatefulSet", "access"] = existing

    async def apply(self, document: Document) -> Document:
        if document["kind"] == self.refused:
            raise KubeError(422, "Invalid", f"{self.refused} access is invalid")
        return await super().apply(document)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document:
        if "spec" not in patch:
            return await super().patch(kind, namespace, name, patch)
        self.stored[kind.kind, name]["spec"] |= patch["spec"]
        return self.stored[kind.kind, name]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize(("replicas", "left"), [(0, 0), (1, 2)])
@pytest.mark.parametrize("refused", ["ConfigMap", "ServiceAccount", "StatefulSet", "executors as pods"])
def test_workers_stop_although_their_new_settings_are_refused(
    refused: str, replicas: int, left: int, is_ours: bool
) -> None:
    """As after an edit of podTemplate that is invalid, a quota, or a setting that was taken back. Fewer
    workers than before keep the settings that they have, and a set of another client stays as it is."""
    pods = refused == "executors as pods"
    group = resource(
        {"spark": {"master": "k8s://https://kubernetes.default.svc"}} if pods else {}, uid="uid-1"
    )
    spec = worker_spec(group, worker_config(group, IN_PODS), image="loghub-worker:dev")
    existing = with_replicas(spec.stateful_set, 2)
    if not is_ours:
        existing = {**existing, "metadata": {"name": "access", "namespace": "default"}}
    cluster: Any = Refusing(refused, existing)
    pool = LogServicePool(lambda *_: pytest.fail("no log service is asked"))
    _, applier = observer_and_applier(cluster, pool, settings=Settings(), clock=SystemClock())
    with pytest.raises((KubeError, ActionRefused)):
        asyncio.run(applier.carry_out(group, ApplyWorkers(replicas=replicas, spec=spec)))
    pool.close()
    assert cluster.worker_set["spec"]["replicas"] == (left if is_ours else 2)
