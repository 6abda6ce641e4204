"""What starts a reconcile of a group: each change by another client, and not the status that we wrote
ourselves. And which groups wait for which.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.apply.applier import Applier
from loghub_operator.controller.reconciler import Intervals, Reconciler
from loghub_operator.controller.workqueue import RESYNCS_AT_ONCE, UNANSWERED_AFTER, UNANSWERED_AT_ONCE, Key
from loghub_operator.model.actions import EmitEvent
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import ObservedState, Unavailable
from loghub_operator.settings import STATUS_INTERVAL_S
from tests.loghub_operator.support.examples import Document, merge
from tests.loghub_operator.support.golden import steps, stories

KEY = Key("default", "access")
RESYNC_S = 3600.0
EDITS = 5
GUARD_S = 120.0


def _at_rest() -> Any:
    """A step after which there is nothing to do."""
    result = (step for path in stories() if path.stem == "first-start" for step in steps(path))
    return [step for step in result if not step.actions and step.status["phase"] == "Running"][-1]


class Echo:
    """An apiserver whose watch reports each change; everything else is idle, and no time passes."""

    def __init__(self, *, event_first: bool = False) -> None:
        step = _at_rest()
        self.now, self.observed = step.now, step.observed
        self.stored: Document = {**step.resource.to_dict(), "status": copy.deepcopy(step.status)}
        self.event_first = event_first  # the event comes before the answer
        self.before_write: Callable[[], None] = lambda: None  # what another client does just before our write
        self.rounds = self.writes = 0
        me: Any = self
        applier = Applier(kube=me, log_service=me, wrote=me, events=me, settings=me, clock=me)
        self.reconciler = Reconciler(
            kube=me,
            observer=me,
            applier=applier,
            clock=me,
            intervals=Intervals(resync_s=RESYNC_S, numbers_every_s=STATUS_INTERVAL_S),
        )

    def monotonic_s(self) -> float:
        return float(self.now)

    def unix_s(self) -> float:
        return float(self.now)

    async def get(self, *_: object) -> Document:
        self.rounds += 1
        return copy.deepcopy(self.stored)

    async def drift(self, *_: object) -> tuple[FieldPath, ...]:
        return ()

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        return self.observed

    async def apply(self, document: Document, *, subresource: str) -> Document:
        assert subresource == "status"
        self.before_write()
        self.writes += 1
        self.stored["status"] = document["status"]
        version = self.change({})
        answer = copy.deepcopy(self.stored)
        if self.event_first:
            self.send_event(version)
            await asyncio.sleep(0)
        else:
            asyncio.get_running_loop().call_soon(self.send_event, version)
        return answer

    def change(self, patch: Document) -> str:
        """Another version."""
        merge(self.stored, patch)
        metadata = self.stored["metadata"]
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion", "0")) + 1)
        return str(metadata["resourceVersion"])

    def edit(self) -> str:
        """As a user who changes the spec; the status has to follow."""
        return self.change({"metadata": {"generation": self.stored["metadata"]["generation"] + 1}})

    def send_event(self, version: str) -> None:
        self.reconciler.enqueue(KEY, version=version)

    async def settle(self) -> None:
        """Until every task waits: there is no real waiting in here."""
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.mark.parametrize("event_first", [False, True], ids=["after the answer", "before the answer"])
def test_our_own_status_write_starts_no_reconcile(event_first: bool) -> None:
    on = Echo(event_first=event_first)

    async def play() -> None:
        for _ in range(EDITS):
            on.send_event(on.edit())
            await on.settle()
        await on.reconciler.close()

    asyncio.run(play())
    assert (on.writes, on.rounds) == (EDITS, EDITS)


@pytest.mark.parametrize("event_first", [False, True], ids=["after the answer", "before the answer"])
@pytest.mark.parametrize("event_of", [False, True], ids=["only by our own event", "by its own event"])
def test_a_change_by_another_client_around_our_write_starts_a_reconcile(
    event_of: bool, event_first: bool
) -> None:
    on = Echo(event_first=event_first)

    def annotated() -> None:
        version = on.change({"metadata": {"annotations": {"a": "b"}}})
        on.before_write = lambda: None
        if event_of:
            on.send_event(version)

    async def play() -> None:
        on.before_write = annotated
        on.send_event(on.edit())
        await on.settle()
        await on.reconciler.close()

    asyncio.run(play())
    assert on.writes == 1
    assert on.rounds >= 2


def test_a_change_during_a_reconcile_starts_another_one() -> None:
    """Its StatefulSet, say."""
    on = Echo()
    on.before_write = lambda: on.reconciler.enqueue(KEY)

    async def play() -> None:
        on.send_event(on.edit())
        await on.settle()
        await on.reconciler.close()

    asyncio.run(play())
    assert (on.writes, on.rounds) == (1, 2)


def _unreachable() -> Any:
    """A step in which the log service is unavailable and no action is planned."""
    result = (step for path in stories() if path.stem == "unreachable-while-running" for step in steps(path))
    return next(
        step for step in result if isinstance(step.observed.service, Unavailable) and not step.actions
    )


class Neighbours:
    """Groups in namespaces of their own; in all but one an observation never ends."""

    def __init__(self, *, unanswered: int) -> None:
        well, away = _at_rest(), _unreachable()
        self.steps = {"well": well, **{f"away-{number}": away for number in range(unanswered)}}
        self.observations = dict.fromkeys(self.steps, 0)
        self.never = asyncio.Event()
        me: Any = self
        self.reconciler = Reconciler(
            kube=me,
            observer=me,
            applier=me,
            clock=me,
            intervals=Intervals(resync_s=0.01, numbers_every_s=STATUS_INTERVAL_S),
        )

    def monotonic_s(self) -> float:
        return 0.0

    def unix_s(self) -> float:
        return float(self.steps["well"].now)

    async def get(self, _: object, namespace: str, __: str) -> Document:
        step = self.steps[namespace]
        stored: Document = {**step.resource.to_dict(), "status": copy.deepcopy(step.status)}
        stored["metadata"]["namespace"] = namespace
        return stored

    async def drift(self, *_: object) -> tuple[FieldPath, ...]:
        return ()

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        namespace = resource.metadata.namespace
        self.observations[namespace] += 1
        if namespace != "well" and self.observations[namespace] > UNANSWERED_AFTER:
            await self.never.wait()
        observed: ObservedState = self.steps[namespace].observed
        return observed

    async def carry_out(self, _: object, action: object, **__: object) -> None:
        assert isinstance(action, EmitEvent), "of a log service that does not answer"

    async def write_status(self, *_: object) -> str:
        return ""

    async def until_observed(self, namespace: str, times: int) -> None:
        async with asyncio.timeout(GUARD_S):
            while self.observations[namespace] < times:
                await asyncio.sleep(0.01)


def test_an_unreachable_log_service_does_not_delay_groups_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loghub_operator.controller.workqueue.SOON_S", 0.001)  # a resync is no change

    async def play() -> None:
        on = Neighbours(unanswered=3 * RESYNCS_AT_ONCE)
        for namespace in on.steps:
            on.reconciler.enqueue(Key(namespace, "access"))
        for namespace in on.steps:
            await on.until_observed(namespace, UNANSWERED_AFTER)
        await on.until_observed("well", on.observations["well"] + 20)
        stuck = [
            name
            for name, observations in on.observations.items()
            if name != "well" and observations > UNANSWERED_AFTER
        ]
        assert len(stuck) <= UNANSWERED_AT_ONCE
        await on.reconciler.close()

    asyncio.run(play())
