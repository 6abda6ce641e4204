"""Changes of our objects by other clients, over a real apiserver: they are corrected and reported, and later
each time if another client repeats them. Pods are simulated (`tests.loghub_operator.support.harness`).
"""

import asyncio
import time
from pathlib import Path

import pytest

from loghub.contract.worker import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub_operator.api.labels import worker_selector
from loghub_operator.clients.kube import DISRUPTION_BUDGET, POD, SERVICE, STATEFUL_SET
from loghub_operator.plan.drift import AT_ONCE, FIRST_PAUSE_S
from loghub_operator.resources.statefulset import GRACE_S
from tests.apiserver.test_operations import event_notes, until_idle
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, Stage, stage

pytestmark = pytest.mark.cluster


def test_manual_edits_are_corrected_and_reported(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")

        async def until_reported(field: str) -> None:
            async def holds() -> bool:
                return field in " ".join(await event_notes(on, "DriftCorrected"))

            await on.until(f"reported: {field}", holds)

        change = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
        await on.kube.patch(STATEFUL_SET, on.namespace, GROUP, change)
        await until_reported("StatefulSet access spec.template.spec.terminationGracePeriodSeconds")
        await on.kube.patch(SERVICE, on.namespace, "access-workers", {"spec": {"selector": {"app": "x"}}})
        await until_reported("Service access-workers spec.selector")
        await on.kube.delete(DISRUPTION_BUDGET, on.namespace, "access-workers")
        await until_reported("PodDisruptionBudget access-workers (missing)")
        pods = await on.get(STATEFUL_SET)
        service = await on.get(SERVICE, "access-workers")
        assert pods is not None
        assert service is not None
        assert pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == GRACE_S
        assert service["spec"]["selector"] == worker_selector(GROUP)
        assert await on.get(DISRUPTION_BUDGET, "access-workers")
        await until_idle(on)
        before = await on.versions()
        await on.until_rounds(6)
        assert await on.versions() == before

    stage(server, tmp_path, story)


def test_a_number_that_another_client_keeps_changing_is_corrected_later_each_time(
    server: Apiserver, tmp_path: Path
) -> None:
    """As an HPA on the StatefulSet would, where it belongs on the group's /scale."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")

        async def undo() -> None:
            while True:
                result = await on.get(STATEFUL_SET)
                if result is not None and result["spec"]["replicas"] != 2:
                    await on.kube.patch(STATEFUL_SET, on.namespace, GROUP, {"spec": {"replicas": 2}})
                await asyncio.sleep(0.2)

        began_s = time.monotonic()
        undoing = asyncio.create_task(undo())
        try:
            condition = await on.until_reason("Degraded", "ConflictingController")
            assert "StatefulSet access" in condition["message"]
            await on.until_rounds(10)
            notes = await event_notes(on, "DriftCorrected")
            assert all("StatefulSet access spec.replicas" in note for note in notes)
            corrections = len(notes)
            assert AT_ONCE <= corrections <= AT_ONCE + 1 + (time.monotonic() - began_s) / FIRST_PAUSE_S
        finally:
            undoing.cancel()
        # Another number is no fight: it is carried out at once, and stays.
        await on.apply({"replicas": 3})
        await on.until_phase("Running", "3/3")

    stage(server, tmp_path, story)


def test_a_worker_that_a_person_asked_to_drain_comes_back(server: Apiserver, tmp_path: Path) -> None:
    """It should run, so its pod is replaced. Another pod that has its name by then is left alone."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        pod = await on.get(POD, "access-0")
        assert pod is not None
        asked = {"metadata": {"annotations": {DRAIN_ANNOTATION: DRAIN_REQUESTED}}}
        await on.kube.patch(POD, on.namespace, "access-0", asked)

        async def replaced() -> bool:
            now = await on.get(POD, "access-0")
            return now is not None and now["metadata"]["uid"] != pod["metadata"]["uid"]

        await on.until("another pod", replaced)
        await on.until_phase("Running", "1/1")

    stage(server, tmp_path, story)
