"""A worker that should not leave after all is restarted: its pod, and no other of that name."""

import asyncio
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub.contract.worker import DRAIN_ANNOTATION, DRAIN_NOT_REQUESTED, DRAIN_REQUESTED
from loghub_operator.clients.kube import Document
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.actions import RestartWorker
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.wiring import observer_and_applier


class Pods:
    """Two pods, of which the first one is asked to drain, or was replaced since."""

    def __init__(self, annotations: dict[str, str] | None) -> None:
        self.annotations = annotations
        self.deleted: list[tuple[str, str]] = []

    async def list(self, *_: object) -> list[Document]:
        asked = {DRAIN_ANNOTATION: DRAIN_REQUESTED}
        return [
            {"metadata": {"name": "access-0", "uid": "0", "annotations": self.annotations}},
            {"metadata": {"name": "access-1", "uid": "1", "annotations": asked}},
        ]

    async def delete(self, _: object, __: str, name: str, *, uid: str = "") -> bool:
        self.deleted.append((name, uid))
        return True


@pytest.mark.parametrize(
    ("annotations", "deleted"),
    [
        ({DRAIN_ANNOTATION: DRAIN_REQUESTED}, [("access-0", "0")]),
        ({DRAIN_ANNOTATION: DRAIN_NOT_REQUESTED}, []),
        (None, []),
    ],
)
def test_only_the_pod_that_was_asked_to_drain_is_deleted(
    annotations: dict[str, str] | None, deleted: list[tuple[str, str]]
) -> None:
    pods = Pods(annotations)
    kube: Any = pods
    pool = LogServicePool(lambda *_: pytest.fail("no log service is asked"))
    _, applier = observer_and_applier(kube, pool, settings=Settings(), clock=SystemClock())
    asyncio.run(applier.carry_out(resource(), RestartWorker("access-0")))
    pool.close()
    assert pods.deleted == deleted
