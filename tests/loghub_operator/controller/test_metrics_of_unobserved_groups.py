"""What cannot be parsed or observed is in the metrics too, so that an alert can report it.

Autoscalers read of an operator that has just started only what it has reconciled since.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.autoscaling.external_metrics import value_list
from loghub_operator.clients.kube import KubeError
from loghub_operator.controller.app import Operator, OperatorConnections
from loghub_operator.controller.exporters import Exporters
from loghub_operator.controller.reconciler import FORBIDDEN_AFTER, Intervals, Reconciler
from loghub_operator.controller.workqueue import Key
from loghub_operator.leader.lease import LeaseTimings
from loghub_operator.metrics.store import UnknownGroupError, UnknownValueError
from loghub_operator.model.actions import Action
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import ObservedState
from loghub_operator.settings import STATUS_INTERVAL_S, Settings
from tests.loghub_operator.metrics.test_collector import samples
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.golden import FOLDER, Step, steps
from tests.loghub_operator.support.group_metrics import HandClock, readings

KEY = Key("default", "access")
NAMES = {"namespace": "default", "consumer_group": "access"}
Observe = Callable[[], ObservedState]


class Stage:
    """One object, which the operator reconciles so many times; then it exposes its metrics."""

    def __init__(self, step: Step, observe: Observe, **metadata: str) -> None:
        self.step = step
        self.stored: Document = step.resource.to_dict()
        self.stored["metadata"].update(metadata)
        self.exporters = Exporters(Settings(), self)
        self._observe = observe
        self.gets = 0

    def monotonic_s(self) -> float:
        return self.step.now

    def unix_s(self) -> float:
        return self.step.now

    async def get(self, *_: object) -> Document:
        self.gets += 1
        return self.stored

    async def drift(self, *_: object) -> tuple[FieldPath, ...]:
        return ()

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        return self._observe()

    async def carry_out(self, _: LogHubConsumerGroup, action: Action, *, group_record: object) -> None:
        """Succeeds."""

    async def write_status(self, _: LogHubConsumerGroup, status: Status) -> str:
        self.stored["status"] = status.to_dict()
        return ""

    async def play(self, times: int) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The series after so many reconciles."""
        parts: Any = self
        reconciler = Reconciler(
            kube=parts,
            observer=parts,
            applier=parts,
            clock=parts,
            intervals=Intervals(resync_s=0.01, numbers_every_s=STATUS_INTERVAL_S),
            listener=self.exporters,
        )
        reconciler.enqueue(KEY)
        async with asyncio.timeout(180):
            while self.gets < times + 1:
                await asyncio.sleep(0.01)
                reconciler.enqueue_known(KEY)
        await reconciler.close()
        body = (await self.exporters.metrics()).body
        assert isinstance(body, bytes)
        return samples(body.decode())


def running() -> Step:
    return next(steps(FOLDER / "group-settings.yaml"))


def conditions(series: dict[str, list[tuple[dict[str, str], float]]]) -> dict[str, float]:
    found = series.get("loghub_operator_group_condition", [])
    return {labels["type"]: value for labels, value in found if NAMES.items() <= labels.items()}


def values(series: dict[str, list[tuple[dict[str, str], float]]]) -> set[str]:
    """The names of the group's series with a reading."""
    known = {"loghub_operator_group_condition", "loghub_operator_group_observed_timestamp_seconds"}
    return {name for name, found in series.items() if any("namespace" in one for one, _ in found)} - known


@pytest.mark.long
def test_a_group_that_cannot_be_parsed_has_its_conditions() -> None:
    stage = Stage(running(), lambda: running().observed)
    stage.stored["spec"]["pipeline"]["sink"] = {"kafka": {"topic": "x"}}
    series = asyncio.run(stage.play(1))
    assert series["loghub_operator_groups"] == [({}, 1.0)]
    assert conditions(series) == {"Ready": 0.0, "Stalled": 1.0, "Degraded": 1.0}
    assert values(series) == set()


def test_a_group_that_may_not_be_observed_has_its_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loghub_operator.controller.reconciler.SOON_S", 0.001)

    def observe() -> ObservedState:
        raise KubeError(403, "Forbidden", "pods is forbidden")

    series = asyncio.run(Stage(running(), observe).play(FORBIDDEN_AFTER + 2))
    assert series["loghub_operator_groups"] == [({}, 1.0)]
    assert conditions(series) == {"Ready": 0.0, "Stalled": 1.0, "Degraded": 1.0}
    assert values(series) == set()


def test_a_group_that_was_never_observed_has_the_time_of_the_first_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The alert LogHubGroupNotObserved compares it with the present time."""
    monkeypatch.setattr("loghub_operator.controller.reconciler.SOON_S", 0.001)

    def observe() -> ObservedState:
        raise KubeError(500, "InternalError", "etcd has no leader")

    step = running()
    series = asyncio.run(Stage(step, observe).play(2))
    assert series["loghub_operator_groups"] == [({}, 1.0)]
    assert series["loghub_operator_group_observed_timestamp_seconds"] == [(NAMES, step.now)]
    assert (conditions(series), values(series)) == ({}, set())


@pytest.mark.long
def test_values_come_back_with_an_observation() -> None:
    step = running()
    stage = Stage(step, lambda: step.observed)
    sink = stage.stored["spec"]["pipeline"]["sink"]
    stage.stored["spec"]["pipeline"]["sink"] = {"kafka": {"topic": "x"}}
    asyncio.run(stage.play(1))
    stage.stored["spec"]["pipeline"]["sink"] = sink
    series = asyncio.run(stage.play(stage.gets))
    assert "loghub_operator_group_replicas_ready" in values(series)


@pytest.mark.long
def test_a_deleted_object_that_cannot_be_parsed_leaves_no_series() -> None:
    stage = Stage(running(), lambda: running().observed, deletionTimestamp="2026-09-21T14:13:20Z")
    stage.stored["spec"]["deletionPolicy"] = "Archive"
    series = asyncio.run(stage.play(1))
    assert series["loghub_operator_groups"] == [({}, 0.0)]
    assert conditions(series) == {}


class Listed:
    """An API server that lists two groups, and one that is being deleted."""

    async def list(self, *_: object) -> list[dict[str, Any]]:
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["loghub.dev/consumer-group"]}
        return [
            document(name="a", namespace="shop"),
            document(name="b", namespace="shop"),
            document(name="c", namespace="shop", **leaving),
        ]


def test_a_sum_over_groups_waits_for_each_of_them() -> None:
    kube: Any = Listed()
    clock, unused = HandClock(), Any
    exporters = Exporters(Settings(), clock)
    connections = OperatorConnections(kube=kube, login=unused, connect=unused)
    operator = Operator(
        Settings(), connections=connections, clock=clock, timings=LeaseTimings(), exporters=exporters
    )

    def read(selector: str = "") -> list[str]:
        found = value_list(exporters.store, namespace="shop", metric="loghub_lag_seconds", selector=selector)
        return [one["metricLabels"]["consumerGroup"] for one in found["items"]]

    with pytest.raises(UnknownValueError, match="has not listed the groups yet"):
        read()
    asyncio.run(operator._list_groups())
    exporters.observed(readings("a"), ())
    with pytest.raises(UnknownValueError, match="shop/b has not been reconciled yet"):
        read()
    assert read("consumerGroup=a") == ["a"], "one that does not wait for others"
    with pytest.raises(UnknownGroupError):
        read("consumerGroup=c")
    exporters.observed(readings("b"), ())
    assert read() == ["a", "b"]
