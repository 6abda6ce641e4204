"""What somebody else changes of ours, over a real apiserver: set back and told; ever later where it is
undone each time. Pods are played (`tests.loghub_operator.support.harness`).
"""

import asyncio
import time
from pathlib import Path

import pytest

from loghub_operator.api.labels import worker_selector
from loghub_operator.clients.kube import DISRUPTION_BUDGET, SERVICE, STATEFUL_SET
from loghub_operator.plan.drift_backoff import AT_ONCE, FIRST_PAUSE_S
from loghub_operator.resources.statefulset import GRACE_S
from tests.apiserver.test_operations import told, until_at_rest
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, Stage, stage

pytestmark = pytest.mark.cluster


def test_manual_edits_are_corrected_and_reported(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")

        async def until_told(field: str) -> None:
            async def holds() -> bool:
                return field in " ".join(await told(on, "DriftCorrected"))

            await on.until(f"told: {field}", holds)

        change = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
        await on.kube.patch(STATEFUL_SET, on.namespace, GROUP, change)
        await until_told("StatefulSet access spec.template.spec.terminationGracePeriodSeconds")
        await on.kube.patch(SERVICE, on.namespace, "access-workers", {"spec": {"selector": {"app": "x"}}})
        await until_told("Service access-workers spec.selector")
        await on.kube.delete(DISRUPTION_BUDGET, on.namespace, "access-workers")
        await until_told("PodDisruptionBudget access-workers (missing)")
        pods = await on.get(STATEFUL_SET)
        service = await on.get(SERVICE, "access-workers")
        assert pods is not None
        assert service is not None
        assert pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == GRACE_S
        assert service["spec"]["selector"] == worker_selector(GROUP)
        assert await on.get(DISRUPTION_BUDGET, "access-workers")
        await until_at_rest(on)
        before = await on.versions()
        await on.until_rounds(6)
        assert await on.versions() == before

    stage(server, tmp_path, story)


def test_a_number_set_by_hand_is_corrected(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        here = ("-n", on.namespace)
        await asyncio.to_thread(server.must, "scale", "statefulset", GROUP, "--replicas=4", *here)

        async def mended() -> bool:
            return "StatefulSet access spec.replicas" in " ".join(await told(on, "DriftCorrected"))

        await on.until("the number mended", mended)
        await on.until_phase("Running", "2/2")

    stage(server, tmp_path, story)


def test_a_number_that_another_client_keeps_changing_is_corrected_later_each_time(
    server: Apiserver, tmp_path: Path
) -> None:
    """As an HPA on the StatefulSet would, where it belongs on the group's /scale."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        here = ("-n", on.namespace)

        async def undo() -> None:
            while True:
                found = await on.get(STATEFUL_SET)
                if found is not None and found["spec"]["replicas"] != 2:
                    await asyncio.to_thread(server.must, "scale", "statefulset", GROUP, "--replicas=2", *here)
                await asyncio.sleep(0.05)

        began_s = time.monotonic()
        undoing = asyncio.create_task(undo())
        try:
            condition = await on.until_reason("Degraded", "ConflictingController")
            assert "StatefulSet access" in condition["message"]
            await on.until_rounds(30)
            mends = len(await told(on, "DriftCorrected"))
            assert AT_ONCE <= mends <= AT_ONCE + 1 + (time.monotonic() - began_s) / FIRST_PAUSE_S
        finally:
            undoing.cancel()
        # Another number is no fight: it is carried out at once, and stays.
        await on.apply({"replicas": 3})
        await on.until_phase("Running", "3/3")

    stage(server, tmp_path, story)
