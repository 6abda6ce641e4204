"""One failed look, or one failed try, changes nothing but what it is about; three do."""

from dataclasses import replace

import pytest

from loghub_operator.api.status import Status
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.observed import ServiceErrorReason, Unavailable
from loghub_operator.plan import planner
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.patience import PATIENCE
from loghub_operator.plan.subject import subject_of
from tests.loghub_operator.support.golden import FOLDER, Step, steps
from tests.loghub_operator.support.rounds import plan

BUSY = Unavailable(reason=ServiceErrorReason.THROTTLED, message="ServerBusy")


def healthy() -> Step:
    """A group that runs, with the status that says so."""
    found = steps(FOLDER / "unreachable-while-running.yaml")
    return next(step for step in found if isinstance(step.observed.service, Unavailable))


def said(status: Status) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in status.conditions}


@pytest.mark.parametrize("reason", list(ServiceErrorReason))
def test_a_single_failed_look_changes_the_lag_only(reason: ServiceErrorReason) -> None:
    step, memory = healthy(), NO_MEMORY
    group, before = step.resource, step.resource.status
    for look in range(1, PATIENCE + 1):
        service = replace(BUSY, reason=reason)
        planned = plan(group, replace(step.observed, service=service, memory=memory), step.now + look)
        memory, group = planned.memory, group.model_copy(update={"status": planned.status})
        changed = said(planned.status).items() - said(before).items()
        if look < PATIENCE:
            assert planned.actions == ()
            assert {kind for kind, _ in changed} == {"LagAvailable"}
            assert planned.status.model_copy(update={"conditions": before.conditions}) == before
        else:
            assert ("GroupSynced", ("False", reason.value)) in changed
            assert planned.status.phase == "Degraded"


def test_an_answer_in_between_begins_the_count_again() -> None:
    running = next(iter(steps(FOLDER / "drift.yaml")))
    remembered = replace(running.observed, memory=Memory(failed_looks=PATIENCE - 1))
    assert plan(running.resource, remembered, running.now).memory.failed_looks == 0


def test_a_failed_look_at_a_changed_spec_counts_at_once() -> None:
    step = healthy()
    metadata = step.resource.metadata.model_copy(update={"generation": 7})
    group = step.resource.model_copy(update={"metadata": metadata})
    observed = replace(step.observed, service=BUSY, memory=NO_MEMORY)
    assert said(plan(group, observed, step.now).status)["GroupSynced"] == ("False", "Throttled")


def test_a_single_failed_look_stops_no_worker_of_a_deletion() -> None:
    """They would lose their shards without a word, and what they had not saved would be delivered again."""
    step = next(iter(steps(FOLDER / "delete-with-group.yaml")))
    memory, actions = NO_MEMORY, []
    for _ in range(PATIENCE):
        planned = plan_deletion(
            subject_of(step.resource, replace(step.observed, service=BUSY, memory=memory)), step.now
        )
        memory = planned.memory
        actions.append([type(one).__name__ for one in planned.actions])
    assert actions == [[], [], ["RemoveWorkers"]]


@pytest.mark.parametrize(("passes", "reported_after"), [(True, PATIENCE), (False, 1)])
def test_a_conflict_is_no_failure_until_it_lasts(passes: bool, reported_after: int) -> None:
    step, memory = healthy(), NO_MEMORY
    available = next(iter(steps(FOLDER / "unreachable-while-running.yaml"))).observed.service
    for number in range(1, PATIENCE + 1):
        observed = replace(step.observed, service=available)
        subject = subject_of(step.resource, observed, memory)
        planned = planner.plan(subject, step.now)
        outcome = planner.finish(subject, planned, RuntimeError("409 Conflict"), step.now, passes=passes)
        memory = outcome.memory
        reported = said(outcome.status)["Ready"][1]
        assert (reported == "ReconcileError") == (number >= reported_after)
        assert outcome.error is not None, "and it is tried again"
