"""Two operators that watch one namespace: the one that came second keeps off, and says of whom."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.clients.kube import EVENT, LEASE, Document
from loghub_operator.controller import app as program
from loghub_operator.controller.exporters import Exporters
from loghub_operator.controller.reconciler import Intervals, Reconciler
from loghub_operator.controller.workqueue import Key
from loghub_operator.leader import namespace_claims
from loghub_operator.leader.namespace_claims import ManagedElsewhere
from loghub_operator.metrics.store import UnknownValueError
from loghub_operator.model.actions import Action, EmitEvent
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import ObservedState
from loghub_operator.settings import STATUS_INTERVAL_S, Settings
from tests.loghub_operator.metrics.test_collector import samples
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.harness import Stage, stage

KEY = Key("default", "access")
OTHER = "team-a/loghub-operator"
GUARD_S = 120.0


class Shared:
    """An object that the other operator manages until it is gone, as each part that a reconcile asks."""

    def __init__(self) -> None:
        self.step = next(steps(FOLDER / "group-settings.yaml"))
        self.stored: Document = self.step.resource.to_dict()
        self.other = OTHER
        self.done: list[str] = []
        self.events: list[EmitEvent] = []

    def monotonic_s(self) -> float:
        return self.step.now

    def unix_s(self) -> float:
        return self.step.now

    async def get(self, *_: object) -> Document:
        if self.other:
            raise ManagedElsewhere(self.other, self.stored)
        return self.stored

    async def drift(self, *_: object) -> tuple[FieldPath, ...]:
        return ()

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        self.done.append("observe")
        return self.step.observed

    async def carry_out(self, _: LogHubConsumerGroup, action: Action, *, group_record: object) -> None:
        if isinstance(action, EmitEvent):
            self.events.append(action)
        else:
            self.done.append(type(action).__name__)

    async def write_status(self, _: LogHubConsumerGroup, status: Status) -> str:
        self.done.append("status")
        return ""


def test_it_does_nothing_but_name_the_other_one_until_that_is_gone() -> None:
    shared = Shared()
    parts: Any = shared
    exporters = Exporters(Settings(), parts)
    reconciler = Reconciler(
        kube=parts,
        observer=parts,
        applier=parts,
        clock=parts,
        intervals=Intervals(resync_s=30.0, numbers_every_s=STATUS_INTERVAL_S),
        listener=exporters,
    )

    async def elsewhere() -> list[tuple[dict[str, str], float]]:
        body = (await exporters.metrics()).body
        assert isinstance(body, bytes)
        return samples(body.decode()).get("loghub_operator_kept_off_groups", [])

    async def story() -> None:
        for _ in range(3):
            again = await reconciler._guarded_reconcile(KEY)
            assert again.after_s is not None
        assert shared.done == []
        (event,) = shared.events
        assert (event.type, event.reason) == ("Warning", "ManagedByAnotherOperator")
        assert event.message.startswith(f"operator {OTHER} manages the objects of this namespace")
        assert await elsewhere() == [({"operator": OTHER}, 1.0)]
        with pytest.raises(UnknownValueError, match=f"operator {OTHER} manages default/access"):
            exporters.store.read("default", "access")
        shared.other = ""
        await reconciler._guarded_reconcile(KEY)
        assert shared.done[0] == "observe"
        assert await elsewhere() == []
        shared.other = "team-b/loghub-operator"
        await reconciler._guarded_reconcile(KEY)
        assert "team-b/loghub-operator" in shared.events[-1].message, "a change is another event"

    asyncio.run(story())


@pytest.mark.cluster
def test_two_releases_over_one_namespace(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rights of the manifests. A person hands the namespace over, and the first one keeps off."""
    monkeypatch.setattr(namespace_claims, "CHECK_S", 0.0)
    monkeypatch.setattr("loghub_operator.controller.reconciler.MAX_BACKOFF_S", 0.5)

    async def story(on: Stage) -> None:
        def release(name: str) -> tuple[asyncio.Event, asyncio.Task[None]]:
            stop, settings = asyncio.Event(), dataclasses.replace(on.settings, pod_name=name)
            return stop, asyncio.create_task(program.run(settings, stop, connect=on.connect))

        async def holder() -> str:
            lease = await on.kube.get(LEASE, on.namespace, namespace_claims.CLAIM)
            return "" if lease is None else str(lease["spec"]["holderIdentity"])

        stop_first, first = release("loghub-first")
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        assert await holder() == "loghub-first"
        stop_second, second = release("loghub-second")

        async def named(*operators: str) -> None:
            async def holds() -> bool:
                events = await on.kube.list(EVENT, on.namespace, {})
                notes = {one["note"] for one in events if one["reason"] == "ManagedByAnotherOperator"}
                return {note.partition(" manages")[0] for note in notes} == {
                    f"operator {x}" for x in operators
                }

            await on.until(f"events that name {operators}", holds)

        await named("loghub-first")
        await on.kube.patch(
            LEASE, on.namespace, namespace_claims.CLAIM, {"spec": {"holderIdentity": "loghub-second"}}
        )
        await named("loghub-first", "loghub-second")
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        assert await holder() == "loghub-second"
        for stop, running in ((stop_second, second), (stop_first, first)):
            stop.set()
            await asyncio.wait_for(running, GUARD_S)

    stage(server, tmp_path, story, operator=False)
