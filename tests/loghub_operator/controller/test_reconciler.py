"""The cluster's loop carries out the actions of `plan` in order, and writes its status.

The same series are fed to the loop of `loghub up` (tests/loghub_cli/up).
"""

import asyncio
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from loghub.wire.errors import Code, LogHubError
from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.status import NUMBERS_EVERY_S
from loghub_operator.clients.kube import KubeError
from loghub_operator.controller import workqueue
from loghub_operator.controller.reconciler import FORBIDDEN_AFTER, Intervals, Reconciler
from loghub_operator.controller.workqueue import Key
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_operator.metrics.store import MetricsReporter
from loghub_operator.model.actions import (
    GROUP_ORPHANED,
    Action,
    ApplyWorkers,
    CreateGroup,
    EmitEvent,
    Plan,
    RemoveFinalizer,
    ReshardRefused,
    SplitShard,
)
from loghub_operator.model.memory import NO_DRIFT_HISTORY, NOTHING, FieldPath
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.planner import plan
from loghub_operator.plan.status.builder import with_failure, worth_writing
from loghub_operator.plan.subject import Subject
from loghub_operator.settings import STATUS_INTERVAL_S
from tests.loghub_operator.support.golden import Step, all_steps, of_each_step, recorded, reported

KEY = Key("default", "access")
GUARD_S = 120.0


class Stage:
    """One step as apiserver, observer, applier and clock; the object is deleted after one reconcile."""

    def __init__(
        self, step: Step, *, refuse: type[Action] | None = None, error: Exception | None = None
    ) -> None:
        self.step = step
        self.refuse = refuse
        self.error = error or KubeError(403, "Forbidden", "not allowed here")
        self.stored = step.resource.to_dict()
        self.gets = 0
        self.done: list[Action] = []
        self.written: list[Status] = []

    def monotonic_s(self) -> float:
        return self.step.now

    def unix_s(self) -> float:
        return self.step.now

    async def get(self, *_: object) -> dict[str, Any] | None:
        self.gets += 1
        return self.stored if self.gets == 1 else None

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        return self.step.observed

    async def drift(self, *_: object) -> tuple[FieldPath, ...]:
        return self.step.drift

    async def carry_out(self, _: LogHubConsumerGroup, action: Action, *, group_record: object) -> None:
        if self.refuse is not None and isinstance(action, self.refuse):
            raise self.error
        self.done.append(action)

    async def write_status(self, _: LogHubConsumerGroup, status: Status) -> None:
        self.written.append(status)

    async def release(self, _: LogHubConsumerGroup) -> None:
        self.done.append(RemoveFinalizer())

    async def play(self, listener: MetricsReporter | None = None) -> None:
        """Two reconciles: the step, then the object is deleted and the task ends. Events of children are not
        collected, which `tests.loghub_operator.controller.test_workqueue` tests and would only take time."""
        with patch.multiple(workqueue, CHILDREN_EVERY_S=0.0, COLLECT_S=0.0):
            await self._play(listener)

    async def _play(self, listener: MetricsReporter | None) -> None:
        parts: Any = self
        reconciler = Reconciler(
            kube=parts,
            observer=parts,
            applier=parts,
            clock=parts,
            intervals=Intervals(resync_s=0.01, numbers_every_s=STATUS_INTERVAL_S),
            listener=listener,
        )
        reconciler.enqueue(KEY)
        async with asyncio.timeout(GUARD_S):
            while self.gets < 2:
                await asyncio.sleep(0.01)
                reconciler.enqueue_known(KEY)
        await reconciler.close()


@of_each_step
def test_the_loop_carries_out_the_recorded_actions(step: Step) -> None:
    stage = Stage(step)
    asyncio.run(stage.play())
    assert [recorded(action) for action in stage.done] == list(step.actions)
    before = step.resource.status
    if reported(before) == step.status:
        assert stage.written == []
    elif stage.written:
        (status,) = stage.written
        assert reported(status) == step.status
    else:
        assert not worth_writing(before, Status.model_validate_json(_json(step.status)), since_last_s=1e9)


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document)


def _first(action: type) -> Step:
    return next(step for step in all_steps() if any(one["action"] == action.__name__ for one in step.actions))


def test_a_rejected_action_ends_the_reconcile_and_is_reported() -> None:
    stage = Stage(_first(CreateGroup), refuse=CreateGroup)
    asyncio.run(stage.play())
    assert "CreateGroup" not in [type(action).__name__ for action in stage.done]
    assert "ApplyWorkers" not in [type(action).__name__ for action in stage.done]
    (ready,) = [one for one in stage.written[-1].conditions if one.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "ReconcileError")
    assert "not allowed here" in ready.message


def test_a_rejection_by_the_log_service_has_the_same_message_in_each_reconcile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = []
    for request_id in ("5E1F0A", "77B0C2"):
        refusal = LogHubError.of(Code.UNAUTHORIZED, "no right to do this", request_id)
        stage = Stage(_first(CreateGroup), refuse=CreateGroup, error=refusal)
        asyncio.run(stage.play())
        assert request_id in capsys.readouterr().out, "in the log"
        written.append(stage.written[-1])
    first, second = written
    assert first == second
    (ready,) = [one for one in first.conditions if one.type == "Ready"]
    assert ready.message == "Unauthorized (HTTP 401): no right to do this"


def test_a_repeated_rejection_writes_the_status_once() -> None:
    """Of workers that all run: without the refusal the group would be ready, with it it is not."""
    step = next(step for step in all_steps() if step.story == "drift")
    first = Stage(step, refuse=ApplyWorkers)
    asyncio.run(first.play())
    (first_status,) = first.written
    again = Stage(replace(step, now=step.now + 60), refuse=ApplyWorkers)
    again.stored["status"] = reported(first_status)
    asyncio.run(again.play())
    assert again.written == []


def test_a_rejection_that_lasts_is_reported_as_stalled() -> None:
    step = next(step for step in all_steps() if step.story == "drift")
    deadline_s = step.resource.spec.worker.progress_deadline_seconds
    reported_before = step.resource.status.to_dict()
    for after_s, stalled in ((0, "False"), (deadline_s, "False"), (deadline_s + 1, "True")):
        stage = Stage(replace(step, now=step.now + after_s), refuse=ApplyWorkers)
        stage.stored["status"] = reported_before
        asyncio.run(stage.play())
        if stage.written:
            reported_before = reported(stage.written[-1])
        conditions = {one["type"]: one for one in reported_before["conditions"]}
        assert conditions["Stalled"]["status"] == stalled, after_s
    assert conditions["Stalled"]["reason"] == "ProgressDeadlineExceeded"
    assert "not allowed here" in conditions["Stalled"]["message"]


def test_a_rejected_event_does_not_stop_the_reconcile() -> None:
    step = _first(EmitEvent)
    stage = Stage(step, refuse=EmitEvent)
    asyncio.run(stage.play())
    wanted = [one["action"] for one in step.actions if one["action"] != "EmitEvent"]
    assert [type(action).__name__ for action in stage.done] == wanted
    assert reported(stage.written[-1]) == step.status


def _of_a_newer_release(kind: type[Action], **metadata: str) -> Stage:
    """With a field that this release ignores."""
    stage = Stage(_first(kind))
    stage.stored["spec"]["fromTheFuture"] = 1
    stage.stored["status"] |= {"fromTheFuture": 1}
    stage.stored["metadata"].update(metadata)
    return stage


def _invalid(kind: type[Action], *, spec: dict[str, Any] | None = None, **metadata: str) -> Stage:
    """With a sink that this release does not know, so that it has none."""
    stage = _of_a_newer_release(kind, **metadata)
    stage.stored["spec"]["pipeline"]["sink"] = {"pulsar": {"topic": "x"}}
    stage.stored["spec"].update(spec or {})
    return stage


def test_fields_of_a_newer_release_change_nothing() -> None:
    step = _first(CreateGroup)
    stage = _of_a_newer_release(CreateGroup)
    asyncio.run(stage.play())
    assert [recorded(action) for action in stage.done] == list(step.actions)
    assert reported(stage.written[-1]) == step.status


def test_an_object_that_cannot_be_parsed_is_reported_once() -> None:
    stage = _invalid(CreateGroup)
    asyncio.run(stage.play())
    (event,) = stage.done
    assert isinstance(event, EmitEvent)
    (status,) = stage.written
    (ready,) = [one for one in status.conditions if one.type == "Ready"]
    assert (ready.status, ready.reason, status.phase) == ("False", "InvalidSpec", "Degraded")
    assert "spec.pipeline.sink: exactly one sink must be set" in ready.message
    assert {one.type: one.status for one in status.conditions} == {
        **dict.fromkeys(ConditionType, "Unknown"),
        ConditionType.READY: "False",
        ConditionType.STALLED: "True",
        ConditionType.DEGRADED: "True",
    }
    again = _invalid(CreateGroup)
    again.stored["status"] = reported(status)
    asyncio.run(again.play())
    assert (again.done, again.written) == ([], [])


def test_a_deleted_object_that_cannot_be_parsed_follows_its_deletion_policy() -> None:
    deleting = next(step for step in all_steps() if step.story == "delete-with-group")
    assert deleting.resource.metadata.deletion_timestamp is not None
    wanted: list[str] = []
    for step in (one for one in all_steps() if one.story == "delete-with-group"):
        stage = Stage(step)
        stage.stored["spec"]["pipeline"]["sink"] = {"pulsar": {"topic": "x"}}
        asyncio.run(stage.play())
        assert [recorded(action) for action in stage.done] == list(step.actions)
        wanted += [action["action"] for action in step.actions]
    assert {"DrainWorker", "DeleteGroup", "RemoveFinalizer"} <= set(wanted)


@pytest.mark.parametrize("spec", [{"deletionPolicy": "Archive"}, {"project": 7}], ids=str)
def test_a_deleted_object_is_released_if_it_does_not_say_what_to_delete(spec: dict[str, Any]) -> None:
    stage = _invalid(CreateGroup, spec=spec, deletionTimestamp="2026-09-21T14:13:20Z")
    asyncio.run(stage.play())
    event, released = stage.done
    assert isinstance(event, EmitEvent)
    assert (event.type, event.reason) == ("Warning", "ConsumerGroupOrphaned")
    assert next(iter(spec)) in event.message
    assert isinstance(released, RemoveFinalizer)


def test_a_group_that_is_left_behind_is_counted_although_its_namespace_accepts_no_event() -> None:
    step = next(
        step for step in all_steps() if any(one.get("reason") == GROUP_ORPHANED for one in step.actions)
    )
    stage, counted = Stage(step, refuse=EmitEvent), OperatorMetrics()

    class Counting(MetricsReporter):
        def group_left_behind(self) -> None:
            counted.count_group_left_behind()

    asyncio.run(stage.play(Counting()))
    assert counted.registry.get_sample_value("loghub_operator_groups_left_behind_total") == 1


def test_a_changing_message_alone_is_written_at_a_bounded_rate() -> None:
    status = Status.model_validate_json(_json(_first(CreateGroup).status))
    first = with_failure(status, "refused, request 1", 0.0, before=status, deadline_s=600)
    second = with_failure(status, "refused, request 2", 0.0, before=first, deadline_s=600)
    assert not worth_writing(first, second, since_last_s=NUMBERS_EVERY_S - 0.1)
    assert worth_writing(first, second, since_last_s=NUMBERS_EVERY_S)
    assert worth_writing(status, first, since_last_s=0.0)


@pytest.mark.parametrize("refuse", [None, ApplyWorkers], ids=["carried out", "refused"])
def test_only_a_correction_that_was_carried_out_is_remembered(
    refuse: type[Action] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = next(step for step in all_steps() if step.story == "drift-contested")
    stage, given = Stage(step, refuse=refuse), []

    def remembering(subject: Subject, now: float) -> Plan:
        given.append(subject.observed.memory.drift)
        return plan(subject, now)

    async def get(*_: object) -> dict[str, Any] | None:
        stage.gets = len(given)
        return None if len(given) == 2 else stage.stored

    monkeypatch.setattr("loghub_operator.controller.reconciler.plan", remembering)
    monkeypatch.setattr(stage, "get", get)
    asyncio.run(stage.play())
    first, second = given
    assert first == NO_DRIFT_HISTORY
    assert [last.times for last in second.corrections.values()] == ([1] if refuse is None else [])


def test_what_one_reconcile_remembers_reaches_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    step = next(step for step in all_steps() if step.story == "auto-follows-the-load")
    stage, given = Stage(step), []

    def remembering(subject: Subject, now: float) -> Plan:
        given.append(subject.observed.memory.scaling)
        return plan(subject, now)

    async def get(*_: object) -> dict[str, Any] | None:
        stage.gets += len(given) == 2
        return None if len(given) == 2 else stage.stored

    monkeypatch.setattr("loghub_operator.controller.reconciler.plan", remembering)
    monkeypatch.setattr(stage, "get", get)
    stage.gets = 1
    asyncio.run(stage.play())
    first, second = given
    assert first == NOTHING
    assert len(second.samples) == 1


def test_a_forbidden_observation_is_reported_once_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A right was taken away, and is given again. One refusal alone may be an apiserver that just began."""
    step, attempts = next(step for step in all_steps() if step.story == "scale-down-drains"), 0
    stage = Stage(step)
    monkeypatch.setattr("loghub_operator.controller.reconciler.SOON_S", 0.001)

    async def get(*_: object) -> dict[str, Any] | None:
        stage.gets = 2 if stage.done else 1
        return None if stage.done else stage.stored

    async def observe(_: LogHubConsumerGroup) -> ObservedState:
        nonlocal attempts
        attempts += 1
        if attempts <= FORBIDDEN_AFTER + 3:
            assert bool(stage.written) == (attempts > FORBIDDEN_AFTER + 1)
            raise KubeError(403, "Forbidden", "pods is forbidden")
        return stage.step.observed

    async def write_status(_: LogHubConsumerGroup, status: Status) -> None:
        stage.written.append(status)
        stage.stored = {**stage.stored, "status": status.to_dict()}

    monkeypatch.setattr(stage, "get", get)
    monkeypatch.setattr(stage, "observe", observe)
    monkeypatch.setattr(stage, "write_status", write_status)
    asyncio.run(stage.play())
    written, after = stage.written
    assert written.shards == step.resource.status.shards
    result = {one.type: (one.status, one.reason) for one in written.conditions}
    assert result.pop(ConditionType.READY) == ("False", "Forbidden")
    assert result.pop(ConditionType.STALLED) == ("True", "Forbidden")
    assert result.pop(ConditionType.DEGRADED) == ("True", "Forbidden")
    assert set(result.values()) == {("Unknown", "Forbidden")}
    assert "pods is forbidden" in written.conditions[0].message
    assert "Forbidden" not in {one.reason for one in after.conditions}


def test_a_rejected_split_is_remembered_and_does_not_fail_the_reconcile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, split = next(step for step in all_steps() if step.story == "auto-follows-the-load"), SplitShard(0)
    stage, given = Stage(step, refuse=SplitShard, error=ReshardRefused(split, "no more")), []
    written = EmitEvent(type="Normal", reason="ShardSplit", message="")

    def splitting(subject: Subject, now: float) -> Plan:
        given.append(subject.observed.memory)
        planned = plan(subject, now)
        return replace(planned, actions=(*planned.actions, split, written))

    async def get(*_: object) -> dict[str, Any] | None:
        stage.gets += len(given) == 2
        return None if len(given) == 2 else stage.stored

    monkeypatch.setattr("loghub_operator.controller.reconciler.plan", splitting)
    monkeypatch.setattr(stage, "get", get)
    stage.gets = 1
    asyncio.run(stage.play())
    assert [(one.of, one.message) for one in given[1].scaling.rejections] == [("split", "no more")]
    assert written not in stage.done
    assert reported(stage.written[0]) == step.status
