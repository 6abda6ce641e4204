"""Who reports that a worker left: the log service, or the worker itself if the log service cannot."""

from dataclasses import replace

import pytest

from loghub_operator.model.actions import ApplyWorkers, DrainWorker, EmitEvent, Plan, RemoveWorkers
from loghub_operator.model.observed import ObservedState, WorkerObserved, WorkerPhase
from loghub_operator.plan.subject import drain_bound_s
from tests.loghub_operator.support.golden import FOLDER, Step, steps
from tests.loghub_operator.support.rounds import plan

# Its drain, as others see it; and where it works on nothing, whether it said so or cannot any more.
WORKS = [WorkerPhase.RUNNING, WorkerPhase.STARTING]
WORKS_NOT = [WorkerPhase.LEFT, WorkerPhase.PENDING, WorkerPhase.FAILED]
STORIES = ["scale-down-drains", "suspend-and-resume", "delete-with-group"]


def _step(story: str) -> Step:
    result = steps(FOLDER / f"{story}.yaml")
    return next(step for step in result if any(one["action"] == "DrainWorker" for one in step.actions))


def _planned(
    step: Step, phase: WorkerPhase, *, reports: bool, after_s: float = 10.0, by_hand: bool = False
) -> Plan:
    """So long after all workers were asked to drain; the highest is in this phase, the others left.
    ``by_hand``: a person set its annotation, without the time."""
    draining = [_draining(one, step.now) for one in step.observed.workers]
    highest = replace(draining[-1], phase=phase, ready=phase is WorkerPhase.RUNNING)
    if by_hand:
        highest = replace(highest, drain_requested_at_unix_s=None)
    workers = (*(replace(one, phase=WorkerPhase.LEFT) for one in draining[:-1]), highest)
    service = step.observed.service
    if not reports:
        service = replace(service, consumers=None)
    observed: ObservedState = replace(step.observed, workers=workers, service=service)
    return plan(step.resource, observed, step.now + after_s)


def _draining(worker: WorkerObserved, now: float) -> WorkerObserved:
    return replace(worker, drain_requested=True, drain_requested_at_unix_s=now)


def _stops(planned: Plan) -> bool:
    return any(isinstance(action, ApplyWorkers | RemoveWorkers) for action in planned.actions)


def _gives_up(planned: Plan) -> bool:
    return any(isinstance(one, EmitEvent) and one.reason == "DrainTimedOut" for one in planned.actions)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("phase", WORKS_NOT)
def test_the_workers_report_is_enough_if_the_endpoint_cannot_report_consumers(
    story: str, phase: WorkerPhase
) -> None:
    planned = _planned(_step(story), phase, reports=False)
    assert (_stops(planned), _gives_up(planned)) == (True, False)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("phase", WORKS)
def test_a_worker_that_does_not_report_leaving_is_waited_for_up_to_the_bound(
    story: str, phase: WorkerPhase
) -> None:
    step = _step(story)
    assert not _stops(_planned(step, phase, reports=False))
    late = _planned(step, phase, reports=False, after_s=drain_bound_s(step.resource) + 1)
    deletes = step.resource.metadata.deletion_timestamp is not None
    assert (_stops(late), _gives_up(late)) == (True, not deletes)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("phase", [*WORKS, *WORKS_NOT])
def test_the_endpoints_report_takes_precedence_over_the_workers(story: str, phase: WorkerPhase) -> None:
    """It restarts, for example, and its name still holds shards that it would release at once."""
    step = _step(story)
    names = {one.name for one in step.observed.workers}
    assert names <= set(step.observed.service.consumers or ())
    assert not _stops(_planned(step, phase, reports=True))


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize(("after_s", "again"), [(-3600.0, True), (-5.0, False), (10.0, False)])
def test_a_worker_is_asked_again_if_the_clock_was_ahead(story: str, after_s: float, again: bool) -> None:
    """Otherwise the bound of the drain would begin only when that time is reached."""
    planned = _planned(_step(story), WorkerPhase.RUNNING, reports=False, after_s=after_s)
    assert any(isinstance(one, DrainWorker) for one in planned.actions) == again


@pytest.mark.parametrize("story", STORIES)
def test_a_worker_that_a_person_asked_is_asked_again(story: str) -> None:
    """On a lost node it would be waited for without an end: nobody knows since when."""
    planned = _planned(_step(story), WorkerPhase.RUNNING, reports=False, by_hand=True)
    assert any(isinstance(one, DrainWorker) for one in planned.actions)
