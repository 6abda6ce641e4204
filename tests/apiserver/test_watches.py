"""What the real API server streams to the operator, and that it is enough without polling.

The resync is an hour away in these stories, so what the operator learns of pods it learns from the watch.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loghub_operator.clients.kube import POD, STATEFUL_SET
from loghub_operator.controller import handlers
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import GROUP, Stage, stage
from tests.loghub_operator.support.player import Player

pytestmark = [pytest.mark.cluster, pytest.mark.apiserver]

RESYNC_S = 3600.0
NOT_OURS = "database"
LABELS = {"app.kubernetes.io/instance": GROUP, "app.kubernetes.io/name": NOT_OURS}
POD_SPEC = {"containers": [{"name": "c", "image": "i"}]}


class Kubelet(Player):
    """Its first worker can be made to fail as a pod does whose container ended so."""

    state: Document | None = None

    async def _report_pod(self, pod: Document, *, broken: bool, ready: bool) -> None:
        metadata = pod["metadata"]
        if self.state is None or metadata["name"] != f"{GROUP}-0":
            await super()._report_pod(pod, broken=broken, ready=ready)
            return
        container = {"name": "worker", "ready": False, "started": False, "restartCount": 1}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{**container, "state": self.state, "image": "i", "imageID": "i"}],
        }
        named = {"name": metadata["name"], "namespace": metadata["namespace"]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "status": status}
        await self._kube.apply(document, subresource="status")


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The names of all objects of which Kopf got an event, by kind: our handlers select none of them."""
    names: dict[str, set[str]] = {"StatefulSet": set(), "Pod": set()}

    def recorded(handler: Any) -> Any:
        async def record(**event: Any) -> None:
            names[event["body"]["kind"]].add(event["body"]["metadata"]["name"])
            await handler(**event)

        return record

    for name in ("on_statefulset_event", "on_pod_event"):
        monkeypatch.setattr(handlers, name, recorded(getattr(handlers, name)))
    settings = Stage.settings.fget
    assert settings is not None
    hourly = property(lambda on: replace(settings(on), resync_s=RESYNC_S))
    monkeypatch.setattr(Stage, "settings", hourly)
    return names


def test_only_labelled_objects_are_watched_and_pods_are_not_polled(
    server: Apiserver, tmp_path: Path, streamed: dict[str, set[str]]
) -> None:
    async def story(on: Stage) -> None:
        assert isinstance(on.player, Kubelet)
        metadata = {"name": NOT_OURS, "namespace": on.namespace, "labels": LABELS}
        template = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
        spec = {"selector": {"matchLabels": LABELS}, "serviceName": NOT_OURS, "template": template}
        theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        await on.kube.apply(theirs)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": f"{NOT_OURS}-0"}}
        await on.kube.apply({**pod, "spec": POD_SPEC})
        await on.apply({"replicas": 2, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "2/2")
        await on.kube.patch(STATEFUL_SET, on.namespace, NOT_OURS, {"spec": {"replicas": 3}})
        on.player.state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        await on.until_reason("WorkersAvailable", "ImagePullBackOff")
        on.player.state = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
        await on.until_reason("WorkersAvailable", "OOMKilled")
        on.player.state = None
        await on.until_phase("Running", "2/2")
        await on.kube.delete(POD, on.namespace, f"{NOT_OURS}-0")
        await on.remove()
        await on.until_deleted()
        await on.kube.delete(STATEFUL_SET, on.namespace, NOT_OURS)

    stage(server, tmp_path, story, player=Kubelet)
    assert streamed == {"StatefulSet": {GROUP}, "Pod": {f"{GROUP}-0", f"{GROUP}-1"}}
