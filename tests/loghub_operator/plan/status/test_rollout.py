"""Ready, the phase and ``updatedReplicas`` follow the rollout of new settings, and a rollout without progress
is reported as stalled, with the worker that it waits for."""

from dataclasses import replace

import pytest

from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.status import Condition
from loghub_operator.model.observed import ObservedState, ObservedStatefulSet, WorkerObserved, WorkerPhase
from loghub_operator.model.revision import Revision
from loghub_operator.plan.status.builder import worth_writing
from loghub_operator.plan.subject import desired_workers
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.golden import EPOCH, TEMPLATE, observed_at
from tests.loghub_operator.support.rounds import plan

DEADLINE_S = 60
GROUP: Document = {
    "placement": {"endpoint": "http://loghub.svc", "sink_root": "/sink", "needs_project_address": False},
    "service": {
        "group": {"timeout_s": 30, "order": False},
        "shards": [{"shard": n, "state": "already_alloc", "holder": "access-0"} for n in range(4)],
        "consumers": [],
    },
    "has_finalizer": True,
    "group_origin": "Created",
}
OLD = Revision(settings="old", pod_template=TEMPLATE)
BROKEN = "InvalidPipeline"


class World:
    """A group of three whose SQL was changed in generation 2; the status of one reconcile is in the next."""

    def __init__(self, *, replicas: int = 3, suspend: bool = False) -> None:
        spec = {"replicas": replicas, "suspend": suspend, "worker": {"progressDeadlineSeconds": DEADLINE_S}}
        self.resource: LogHubConsumerGroup = resource(spec, uid="uid-1", generation=2)
        self.now = EPOCH
        self._given = observed_at(self.resource, GROUP, self.now)
        self.new = desired_workers(self.resource, self._given).revision
        self.worker_set: ObservedStatefulSet | None = ObservedStatefulSet(replicas=3, revision=self.new)
        self.workers: dict[int, WorkerObserved] = {}
        for ordinal in range(3):
            self.has(ordinal, OLD)

    def has(self, ordinal: int, revision: Revision, phase: WorkerPhase = WorkerPhase.RUNNING) -> None:
        """The worker of this ordinal, in the place of an earlier one."""
        self.workers[ordinal] = WorkerObserved(
            name=f"access-{ordinal}",
            ordinal=ordinal,
            phase=phase,
            ready=phase is WorkerPhase.RUNNING,
            revision=revision,
            drain_requested=False,
            reason=BROKEN if phase is WorkerPhase.FAILED else "",
            message="near 'SELEC'" if phase is WorkerPhase.FAILED else "",
        )

    def observed(self) -> ObservedState:
        workers = tuple(self.workers[ordinal] for ordinal in sorted(self.workers))
        return replace(self._given, at_unix_s=self.now, worker_set=self.worker_set, workers=workers)

    def status(self, *, after_s: float = 0.0) -> Status:
        """Of a reconcile so much later."""
        self.now += after_s
        status = plan(self.resource, self.observed(), self.now).status
        self.resource = self.resource.model_copy(update={"status": status})
        return status


def condition(status: Status, kind: ConditionType) -> Condition:
    (result,) = [one for one in status.conditions if one.type == kind]
    return result


def said(status: Status, kind: ConditionType) -> tuple[str, str]:
    result = condition(status, kind)
    return result.status, result.reason


def test_the_reconcile_that_orders_the_rollout_is_not_ready() -> None:
    world = World()
    world.worker_set = ObservedStatefulSet(replicas=3, revision=OLD)
    status = world.status()
    assert said(status, ConditionType.READY) == ("False", "RollingUpdate")
    assert said(status, ConditionType.WORKERS_AVAILABLE) == ("True", "AllWorkersReady")
    assert (status.phase, status.updated_replicas, status.ready_replicas) == ("Updating", 0, 3)
    assert condition(status, ConditionType.READY).observed_generation == 2


@pytest.mark.parametrize(("updated", "phase"), [(1, "Updating"), (2, "Updating"), (3, "Running")])
def test_ready_waits_for_every_worker(updated: int, phase: str) -> None:
    world = World()
    for ordinal in range(2, 2 - updated, -1):
        world.has(ordinal, world.new)
    status = world.status()
    assert (status.phase, status.updated_replicas) == (phase, updated)
    ready = condition(status, ConditionType.READY)
    assert (ready.status == "True") == (updated == 3)
    if updated < 3:
        waits_for = f"access-{2 - updated}"
        assert ready.message.startswith(f"{updated} of 3 workers run the settings of generation 2")
        assert waits_for in ready.message


def test_workers_of_settings_that_are_not_applied_yet_do_not_count() -> None:
    """The settings were changed and changed back; the StatefulSet still has those in between."""
    world = World()
    for ordinal in range(3):
        world.has(ordinal, world.new)
    world.worker_set = ObservedStatefulSet(replicas=3, revision=OLD)
    status = world.status()
    assert (status.updated_replicas, status.phase) == (0, "Updating")
    assert said(status, ConditionType.READY) == ("False", "RollingUpdate")


def test_ready_waits_until_the_stateful_set_has_observed_its_change() -> None:
    world = World()
    for ordinal in range(3):
        world.has(ordinal, world.new)
    world.worker_set = ObservedStatefulSet(replicas=3, revision=world.new, observed=False)
    assert said(world.status(), ConditionType.READY) == ("False", "RollingUpdate")
    world.worker_set = ObservedStatefulSet(replicas=3, revision=world.new)
    assert said(world.status(), ConditionType.READY) == ("True", "Running")


def test_a_failing_worker_is_the_reason_while_a_rollout_is_under_way() -> None:
    world = World()
    world.has(2, world.new)
    world.has(1, world.new, WorkerPhase.FAILED)
    status = world.status()
    assert said(status, ConditionType.READY) == ("False", BROKEN)
    assert "access-1" in condition(status, ConditionType.READY).message
    assert said(status, ConditionType.STALLED) == ("False", "Progressing")


@pytest.mark.parametrize("phase", [WorkerPhase.FAILED, WorkerPhase.STARTING, WorkerPhase.PENDING])
def test_a_rollout_without_progress_is_stalled_once_the_deadline_has_passed(phase: WorkerPhase) -> None:
    world = World()
    world.has(2, world.new)
    world.has(1, world.new, phase)
    assert said(world.status(), ConditionType.STALLED) == ("False", "Progressing")
    assert said(world.status(after_s=DEADLINE_S), ConditionType.STALLED) == ("False", "Progressing")
    status = world.status(after_s=1)
    assert said(status, ConditionType.STALLED) == ("True", "ProgressDeadlineExceeded")
    message = condition(status, ConditionType.STALLED).message
    assert "access-1" in message
    assert f"{DEADLINE_S} s" in message
    assert condition(status, ConditionType.READY).status == "False"
    assert condition(status, ConditionType.DEGRADED).status == "True"
    assert status.phase == "Degraded"
    assert not worth_writing(status, world.status(after_s=1000), since_last_s=1e9)
    world.has(1, world.new)
    assert said(world.status(after_s=1), ConditionType.STALLED) == ("False", "Progressing")


def test_each_worker_has_the_whole_deadline() -> None:
    world = World()
    world.has(2, world.new, WorkerPhase.STARTING)
    world.status()
    for ordinal in (2, 1, 0):
        assert said(world.status(after_s=DEADLINE_S - 1), ConditionType.STALLED)[0] == "False"
        world.has(ordinal, world.new)
        assert said(world.status(), ConditionType.STALLED)[0] == "False"
    assert said(world.status(after_s=10 * DEADLINE_S), ConditionType.READY) == ("True", "Running")


def test_the_deadline_of_a_group_that_was_ready_begins_when_it_is_not() -> None:
    world = World()
    for ordinal in range(3):
        world.has(ordinal, world.new)
    assert said(world.status(), ConditionType.READY)[0] == "True"
    world.has(0, world.new, WorkerPhase.PENDING)
    assert said(world.status(after_s=10 * DEADLINE_S), ConditionType.STALLED)[0] == "False"
    assert said(world.status(after_s=DEADLINE_S + 1), ConditionType.STALLED)[0] == "True"


def test_another_generation_has_the_whole_deadline() -> None:
    world = World()
    world.has(2, world.new, WorkerPhase.FAILED)
    world.status()
    assert said(world.status(after_s=DEADLINE_S + 1), ConditionType.STALLED)[0] == "True"
    metadata = world.resource.metadata.model_copy(update={"generation": 3})
    world.resource = world.resource.model_copy(update={"metadata": metadata})
    assert said(world.status(), ConditionType.STALLED)[0] == "False"


def test_fewer_workers_are_not_ready_until_the_others_have_left() -> None:
    world = World(replicas=1)
    for ordinal in range(3):
        world.has(ordinal, world.new)
    status = world.status()
    assert said(status, ConditionType.READY) == ("False", "Draining")
    assert status.phase == "Rebalancing"


def test_a_suspended_group_is_ready_once_no_worker_is_left() -> None:
    world = World(suspend=True)
    leaving = world.status()
    assert said(leaving, ConditionType.READY) == ("False", "Suspended")
    assert "access-2" in condition(leaving, ConditionType.READY).message
    world.worker_set = ObservedStatefulSet(replicas=0, revision=OLD)
    assert said(world.status(), ConditionType.READY) == ("False", "Suspended")
    world.workers.clear()
    status = world.status(after_s=10 * DEADLINE_S)
    assert said(status, ConditionType.READY) == ("True", "Suspended")
    assert said(status, ConditionType.SUSPENDED) == ("True", "Suspended")
    assert said(status, ConditionType.STALLED) == ("False", "Progressing")
    assert status.phase == "Suspended"


def test_a_worker_whose_image_ignores_settings_does_not_run_this_generation() -> None:
    world = World()
    for ordinal in range(3):
        world.has(ordinal, world.new)
    world.workers[1] = replace(world.workers[1], ignored_settings=("sink.level", "surprise"))
    status = world.status()
    assert said(status, ConditionType.READY) == ("False", "WorkerOutdated")
    assert said(status, ConditionType.DEGRADED) == ("True", "WorkerOutdated")
    assert said(status, ConditionType.WORKERS_AVAILABLE) == ("True", "AllWorkersReady")
    message = condition(status, ConditionType.READY).message
    assert message.startswith("access-1 ignores settings that its image does not know: sink.level, surprise")
    assert "spec.worker.image" in message
    assert said(world.status(after_s=DEADLINE_S + 1), ConditionType.STALLED)[0] == "True"


def test_a_worker_whose_target_is_away_is_reported_although_it_runs() -> None:
    world = World()
    for ordinal in range(3):
        world.has(ordinal, world.new)
    away = replace(world.workers[1], reason="SinkUnavailable", message="Not a directory: '/sink'")
    world.workers[1] = away
    status = world.status()
    assert said(status, ConditionType.DEGRADED) == ("True", "SinkUnavailable")
    assert condition(status, ConditionType.DEGRADED).message == "access-1: Not a directory: '/sink'"
    assert said(status, ConditionType.WORKERS_AVAILABLE) == ("True", "AllWorkersReady")
    assert status.phase == "Degraded"
    world.workers[1] = replace(away, phase=WorkerPhase.STARTING, ready=False)
    status = world.status()
    for kind in (ConditionType.READY, ConditionType.WORKERS_AVAILABLE):
        assert said(status, kind) == ("False", "SinkUnavailable")
    assert condition(status, ConditionType.WORKERS_AVAILABLE).message == "access-1: Not a directory: '/sink'"
    world.workers[1] = replace(away, reason="", message="")
    assert said(world.status(), ConditionType.DEGRADED) == ("False", "AsExpected")


def test_what_a_worker_that_is_to_be_replaced_ignores_plays_no_part() -> None:
    world = World()
    world.workers[0] = replace(world.workers[0], ignored_settings=("surprise",))
    assert said(world.status(), ConditionType.READY) == ("False", "RollingUpdate")
