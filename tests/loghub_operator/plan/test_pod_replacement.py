"""A worker that is being replaced: its old pod is deleted and its new one does not exist yet.

It sends heartbeats under the same name again in a moment, so a worker that should leave is waited for, and is
asked to drain then.
"""

from dataclasses import replace

import pytest

from loghub_operator.model.actions import ApplyWorkers, DrainWorker, Plan, RemoveWorkers
from loghub_operator.model.memory import Memory
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.subject import drain_bound_s, subject_of
from tests.loghub_operator.support.golden import EPOCH, FOLDER, Step, steps
from tests.loghub_operator.support.rounds import plan

TO_GO = ["delete-with-group", "suspend-and-resume", "scale-down-drains"]


def _step(story: str) -> Step:
    """The first step in which workers are asked to drain."""
    result = steps(FOLDER / f"{story}.yaml")
    return next(step for step in result if any(one["action"] == "DrainWorker" for one in step.actions))


def _without(step: Step, *names: str, counted: bool) -> Plan:
    """What is planned while these workers are not there."""
    observed = step.observed
    workers = tuple(one for one in observed.workers if one.name not in names)
    service = observed.service
    if not counted:
        consumers = tuple(one for one in service.consumers or () if one not in names)
        shards = tuple(replace(one, holder="") if one.holder in names else one for one in service.shards)
        service = replace(service, consumers=consumers, shards=shards)
    return plan(step.resource, replace(observed, workers=workers, service=service), step.now)


def _stops(planned: Plan) -> bool:
    return any(isinstance(action, ApplyWorkers | RemoveWorkers) for action in planned.actions)


def _all_named(step: Step) -> list[str]:
    return [one.name for one in step.observed.workers]


@pytest.mark.parametrize("story", TO_GO)
def test_a_worker_being_replaced_is_waited_for(story: str) -> None:
    step = _step(story)
    assert not _stops(_without(step, *_all_named(step), counted=True))


@pytest.mark.parametrize("story", TO_GO)
def test_a_worker_that_the_log_service_removed_is_stopped(story: str) -> None:
    step = _step(story)
    assert _stops(_without(step, *_all_named(step), counted=False))


@pytest.mark.parametrize("story", ["delete-with-group", "suspend-and-resume"])
def test_the_other_workers_are_asked_to_drain_meanwhile(story: str) -> None:
    planned = _without(_step(story), "access-1", counted=True)
    assert [one for one in planned.actions if isinstance(one, DrainWorker)] == [DrainWorker("access-0")]


def test_a_deletion_waits_for_a_worker_being_replaced_within_the_bound() -> None:
    step = _step("delete-with-group")
    missing = replace(step.observed, workers=(), memory=Memory(deletion_seen_unix_s=EPOCH))
    over = EPOCH + 2 * drain_bound_s(step.resource) + 1
    assert plan_deletion(subject_of(step.resource, missing), over - 2).actions == ()
    assert plan_deletion(subject_of(step.resource, missing), over).actions == (RemoveWorkers(),)


@pytest.mark.parametrize(("existing", "counted"), [(0, False), (1, False), (2, False), (0, True), (2, True)])
def test_workers_that_were_never_made_are_given_up_in_one_step(existing: int, *, counted: bool) -> None:
    """For example beyond a quota, after another client scaled the StatefulSet: one each step would take
    forever, and as many pods would be made meanwhile. A worker that is being replaced is none of them."""
    step = _step("scale-down-drains")
    assert step.observed.worker_set is not None
    scaled = replace(step.observed.worker_set, replicas=2**31 - 1)
    asked = replace(step, observed=replace(step.observed, worker_set=scaled))
    missing = _all_named(step)[existing:]
    actions = _without(asked, *missing, counted=counted).actions
    (applied,) = [one for one in actions if isinstance(one, ApplyWorkers)]
    left = len(_all_named(step)) if counted else existing
    assert applied.replicas == max(left, step.resource.spec.replicas)
