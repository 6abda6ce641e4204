"""A checkpoint reset in whose midst the operator is replaced by another release: it is neither forgotten nor
executed again, and no worker starts on checkpoints of which half have been moved."""

from dataclasses import replace

import pytest

from loghub_operator.api.conditions import ConditionType
from loghub_operator.model.actions import (
    ApplyWorkers,
    BackUpCheckpoints,
    CommitCheckpoints,
    DrainWorker,
    Plan,
)
from loghub_operator.model.observed import ObservedStatefulSet, WorkerObserved, WorkerPhase
from loghub_operator.plan.subject import desired_workers
from tests.loghub_operator.plan.checkpoint_reset_world import World
from tests.loghub_operator.support.rounds import plan

MOVES = (CommitCheckpoints, BackUpCheckpoints)


def committing() -> World:
    """As another release left it: with a field that this one does not know."""
    world = World({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    world.status["checkpointReset"]["verifiedShards"] = [0]
    world.status["fromTheFuture"] = {"a": 1}
    return world


def planned(world: World, *, workers: int = 0) -> Plan:
    group = world.resource()
    observed = world.observe(group)
    revision = desired_workers(group, observed).revision
    running = tuple(
        WorkerObserved(
            name=group.consumer(ordinal),
            ordinal=ordinal,
            phase=WorkerPhase.RUNNING,
            ready=True,
            revision=revision,
            drain_requested=False,
        )
        for ordinal in range(workers)
    )
    worker_set = ObservedStatefulSet(replicas=workers, revision=revision)
    return plan(group, replace(observed, workers=running, worker_set=worker_set), world.now)


def test_a_field_that_this_release_does_not_know_ends_no_reset() -> None:
    world = committing()
    del world.spec["suspend"]
    assert not world.resource().is_new
    assert not any(isinstance(one, ApplyWorkers) for one in planned(world).actions)
    world.spec["suspend"] = True
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end")


@pytest.mark.parametrize("phase", ["Verifying", "Cancelled"])
def test_in_a_phase_that_this_release_does_not_know_stopped_workers_stay_stopped(phase: str) -> None:
    world = committing()
    world.status["checkpointReset"]["phase"] = phase
    world.spec["replicas"] = 2
    del world.spec["suspend"]
    before, result = world.checkpoints(), planned(world)
    assert not any(isinstance(one, (ApplyWorkers, *MOVES)) for one in result.actions)
    assert world.checkpoints() == before
    conditions = {one.type: one for one in result.status.conditions}
    suspended = conditions[ConditionType.SUSPENDED]
    assert (suspended.status, suspended.reason) == ("True", "ResettingCheckpoints")
    assert phase in suspended.message
    assert conditions[ConditionType.READY].status == "False"
    assert result.status.checkpoint_reset is not None
    assert result.status.checkpoint_reset.phase == phase, "for the release that knows it"


def test_in_a_phase_that_this_release_does_not_know_running_workers_continue() -> None:
    world = committing()
    world.status["checkpointReset"]["phase"] = "Observing"
    world.spec["replicas"] = 2
    del world.spec["suspend"]
    result = planned(world, workers=2)
    assert not any(isinstance(one, (ApplyWorkers, DrainWorker, *MOVES)) for one in result.actions)


@pytest.mark.parametrize("way_out", ["another nonce", "withdrawn"])
def test_the_user_can_end_a_reset_that_this_release_does_not_know(way_out: str) -> None:
    world = committing()
    world.status["checkpointReset"]["phase"] = "Verifying"
    if way_out == "withdrawn":
        del world.spec["resetCheckpoints"], world.spec["suspend"]
        assert any(isinstance(one, ApplyWorkers) for one in planned(world).actions)
    else:
        world.spec["resetCheckpoints"] = {"to": "Begin", "nonce": "another"}
        assert world.until_over()["phase"] == "Succeeded"
        assert world.checkpoints() == world.cursors("begin")
