"""What one object raises is its condition and its event, and its deletion ends all the same."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.clients.kube import KubeError
from loghub_operator.model.actions import (
    GROUP_ORPHANED,
    Action,
    CreateGroup,
    EmitEvent,
    Plan,
    RemoveFinalizer,
)
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.deletion import CLOCK_AHEAD_S, DELETE_BOUND_S, bound_s
from tests.loghub_operator.controller.test_reconciler import Stage, _first
from tests.loghub_operator.support.golden import Step, all_steps, reported


class Faulty(Stage):
    """Raises what nobody expects, wherever it is asked to."""

    def __init__(self, step: Step, at: str, error: Exception, **metadata: Any) -> None:
        super().__init__(step)
        self.at, self.fault = at, error
        self.stored["metadata"].update(metadata)

    def run(self) -> None:
        with capture_logs():  # not rendered for a terminal, with everything that each frame knows
            asyncio.run(self.play())

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        if self.at == "observe":
            raise self.fault
        return await super().observe(resource)

    async def carry_out(self, resource: LogHubConsumerGroup, action: Action, *, group_record: object) -> None:
        if self.at == "apply" and not isinstance(action, EmitEvent):
            raise self.fault
        await super().carry_out(resource, action, group_record=group_record)


FAULTS = (RecursionError("maximum recursion depth exceeded"), AttributeError("'str' has no 'get'"))


@pytest.mark.parametrize("at", ["observe", "build", "plan", "apply"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_fault_is_a_condition_and_an_event_of_its_object(
    at: str, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object, **__: object) -> Plan:
        raise fault

    replaced = {
        "plan": "loghub_operator.controller.reconciler.plan",
        "build": "loghub_operator.plan.subject.worker_config",
    }
    if at in replaced:
        monkeypatch.setattr(replaced[at], faulty)
    stage = Faulty(_first(CreateGroup), at, fault)
    stage.run()
    (status,) = stage.written
    (ready,) = [one for one in status.conditions if one.type == "Ready"]
    assert (ready.status, ready.reason, status.phase) == ("False", "InternalError", "Degraded")
    assert type(fault).__name__ in ready.message
    (event,) = stage.done
    assert isinstance(event, EmitEvent)
    assert (event.type, event.reason) == ("Warning", "InternalError")
    again = Faulty(_first(CreateGroup), at, fault)
    again.stored["status"] = reported(status)
    again.run()
    assert (again.done, again.written) == ([], []), "it is said once"


REFUSED = (*FAULTS, KubeError(403, "Forbidden", "pods is forbidden"))


@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("at", ["observe", "apply"])
def test_the_bound_of_a_deletion_holds_whatever_is_raised(at: str, fault: Exception) -> None:
    """By the clock of the operator that saw it; if it restarts again and again, by the API server's."""
    step = next(step for step in all_steps() if step.story == "delete-with-group")
    requested_s = step.resource.metadata.deleted_at_unix_s()
    assert requested_s is not None
    for after_s, ended in ((DELETE_BOUND_S, False), (CLOCK_AHEAD_S + bound_s(step.resource) + 1, True)):
        stage = Faulty(replace(step, now=requested_s + after_s), at, fault)
        stage.run()
        assert (RemoveFinalizer() in stage.done) is ended
        orphaned = [one for one in stage.done if isinstance(one, EmitEvent) and one.reason == GROUP_ORPHANED]
        assert len(orphaned) == ended
