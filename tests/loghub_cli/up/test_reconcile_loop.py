"""The local loop carries out the actions of `plan` and reports its status, as the cluster's loop does.

The same recorded series go through both loops with recording back ends; then the local back end itself is fed
every action of them.
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import Credentials, GroupInfo, LogHub
from loghub.clock import SystemClock
from loghub.domain.subscription import SubscriptionType
from loghub.wire.errors import EndpointUnreachable
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_cli.up.backend import CheckpointBackups, LocalBackend
from loghub_cli.up.paths import GroupFolder
from loghub_cli.up.runner import ReconcileLoop
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import LogHubConsumerGroup, Status
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_changes import GroupExists
from loghub_operator.model import actions
from loghub_operator.model import actions as model_plan
from loghub_operator.model.actions import Action, ApplyWorkers, CreateGroup, EmitEvent, UpdateGroup
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import Available, GroupSettings, ObservedState, Placement, Stored
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.model.subscription import SubscriptionKind
from loghub_operator.plan import planner
from loghub_operator.plan.subject import Subject
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.controller.test_reconciler import Stage as ClusterStage
from tests.loghub_operator.support.golden import (
    Step,
    all_steps,
    of_each_step,
    recorded,
    reported,
    steps,
    stories,
)
from tests.loghub_operator.support.rounds import plan


class LocalStage:
    """One step as object, edge and clock of the local loop."""

    def __init__(
        self, step: Step, *, refuse: type[Action] | None = None, error: Exception | None = None
    ) -> None:
        self.step = step
        self.refuse = refuse
        self.error = error or EndpointUnreachable("http://127.0.0.1:1", "no service answers", definite=True)
        self.done: list[Action] = []
        self.written: list[Status] = []

    def unix_s(self) -> float:
        return self.step.now

    def monotonic_s(self) -> float:
        return self.step.now

    def current(self) -> LogHubConsumerGroup:
        return self.step.resource

    def write_status(self, status: Status) -> None:
        self.written.append(status)

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        return self.step.observed

    async def carry_out(self, _: LogHubConsumerGroup, action: Action) -> None:
        if self.refuse is not None and isinstance(action, self.refuse):
            raise self.error
        self.done.append(action)

    def play(self) -> tuple[Status, ReconcileLoop]:
        shown: list[Status] = []
        rounds = ReconcileLoop(
            objects=self, backend=self, clock=self, on_round=lambda _, status: shown.append(status)
        )
        asyncio.run(rounds.round())
        (status,) = shown
        return status, rounds


@of_each_step
def test_the_local_loop_carries_out_the_recorded_actions(step: Step) -> None:
    """Steps with drift are the cluster's alone: no client but the supervisor changes processes."""
    if step.drift:
        return
    stage = LocalStage(step)
    status, rounds = stage.play()
    assert [recorded(action) for action in stage.done] == list(step.actions)
    assert reported(status) == step.status
    assert rounds.released == any(one["action"] == "RemoveFinalizer" for one in step.actions)


@of_each_step
def test_both_loops_carry_out_the_same_actions(step: Step) -> None:
    if step.drift:
        return
    local, cluster = LocalStage(step), ClusterStage(step)
    status, _ = local.play()
    asyncio.run(cluster.play())
    assert local.done == cluster.done
    for written in cluster.written:  # where nothing new is said, the cluster's writes nothing
        assert written == status


def test_what_one_reconcile_remembers_reaches_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, given = LocalStage(_first(ApplyWorkers)), []

    def remembering(subject: Subject, now: float) -> model_plan.Plan:
        given.append(subject.observed.memory)
        return planner.plan(subject, now)

    monkeypatch.setattr("loghub_cli.up.runner.plan", remembering)
    _, rounds = stage.play()
    asyncio.run(rounds.round())
    first, second = given
    assert first == stage.step.observed.memory
    assert second == plan(stage.step.resource, stage.step.observed, stage.step.now).memory != NO_MEMORY


def test_a_rejected_split_is_remembered_and_does_not_fail_the_reconcile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, split, given = _first(ApplyWorkers), actions.SplitShard(0), []
    stage = LocalStage(step, refuse=actions.SplitShard, error=actions.ReshardRefused(split, "no more"))

    def splitting(subject: Subject, now: float) -> model_plan.Plan:
        given.append(subject.observed.memory)
        planned = planner.plan(subject, now)
        return replace(planned, actions=(*planned.actions, split))

    monkeypatch.setattr("loghub_cli.up.runner.plan", splitting)
    status, rounds = stage.play()
    asyncio.run(rounds.round())
    assert [(one.of, one.message) for one in given[1].scaling.rejections] == [("split", "no more")]
    assert reported(status) == step.status


def _first(kind: type[Action]) -> Step:
    return next(step for step in all_steps() if any(one["action"] == kind.__name__ for one in step.actions))


def test_a_failed_action_ends_the_reconcile_and_is_reported() -> None:
    stage = LocalStage(_first(CreateGroup), refuse=CreateGroup)
    status, _ = stage.play()
    assert not [one for one in stage.done if isinstance(one, CreateGroup | ApplyWorkers)]
    (ready,) = [one for one in status.conditions if one.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "ReconcileError")
    assert "no service answers" in ready.message
    assert stage.written == [status]


class Ways:
    """What the local edge calls, written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.records: list[GroupRecord] = []
        self.folder: GroupFolder | None = None
        self.worker_set: None = None

    def tick(self) -> None: ...

    def observed(self) -> tuple[()]:
        return ()

    def views(self) -> tuple[WorkerView, ...]:
        return ()

    def apply(self, spec: WorkerSpec, *, replicas: int, variables: object) -> None:
        self.calls.append(("apply", replicas, spec))

    def ask_leave(self, name: str) -> None:
        self.calls.append(("ask_leave", name))

    def restart(self, name: str) -> None:
        self.calls.append(("restart", name))

    def remove(self) -> None:
        self.calls.append(("remove",))

    group_record = None

    def set_group_record(self, record: GroupRecord) -> None:
        self.records.append(record)


def backend_of(
    ways: Ways,
    server: MemoryServer,
    events: list[EmitEvent],
    backups: Path,
    *,
    wrapped: Callable[[LogHub], Any] = lambda client: client,
) -> LocalBackend:
    result: object = ways
    ways.folder = GroupFolder(backups)

    async def credentials(_: LogHubConsumerGroup) -> Credentials:
        return Credentials(access_key_id="a", access_key_secret="b")

    return LocalBackend(
        record=lambda: result,  # type: ignore[arg-type,return-value]
        supervisor=result,  # type: ignore[arg-type]
        log_service=LogServiceAccess(
            pool=LogServicePool(lambda _endpoint, project, _credentials: wrapped(server.client(project))),
            endpoint=lambda _: "http://127.0.0.1:1",
            credentials=credentials,
            clock=SystemClock(),
        ),
        placement=lambda _: Placement(
            endpoint="http://127.0.0.1:1", sink_root="/sink", needs_project_address=False
        ),
        clock=SystemClock(),
        report=events.append,
    )


@pytest.mark.parametrize("story", stories(), ids=lambda path: path.stem)
def test_every_recorded_action_has_its_local_effect(story: Path, tmp_path: Path) -> None:
    for step in steps(story):
        if step.actions:
            _check_effects(step, tmp_path / str(step))


def _check_effects(step: Step, folder: Path) -> None:
    ways, server, events = Ways(), MemoryServer(subscriptions=True), list[EmitEvent]()
    log_service = server.client(step.resource.spec.project)
    log_service.create_project()
    log_service.create_logstore(step.resource.spec.logstore, shards=2)
    stage = LocalStage(step)
    stage.play()
    folder.mkdir()
    backend = backend_of(ways, server, events, folder)
    for action in stage.done:
        if isinstance(action, actions.UpdateGroup | actions.DeleteGroup | actions.CommitCheckpoints):
            _ensure_group(server, step)
        asyncio.run(backend.carry_out(step.resource, action))
        _check(action, ways, server, events, step)
        if isinstance(action, actions.BackUpCheckpoints):
            assert CheckpointBackups(GroupFolder(folder).checkpoints).read(action.name) == action.backup


def test_a_group_that_another_client_created_first_is_not_the_objects_own(tmp_path: Path) -> None:
    step, ways, server = _first(CreateGroup), Ways(), MemoryServer()
    client = server.client(step.resource.spec.project)
    client.create_project()
    client.create_logstore(step.resource.spec.logstore, shards=2)
    _ensure_group(server, step)
    create = CreateGroup(settings=GroupSettings(timeout_s=30, order=False), last_initial_shard=1)
    with pytest.raises(GroupExists):
        asyncio.run(backend_of(ways, server, [], tmp_path).carry_out(step.resource, create))
    assert [one.origin for one in ways.records] == ["Refused"]


def _stored(server: MemoryServer, step: Step) -> tuple[Stored, ...]:
    """The groups of the logstore, or its subscriptions, if the object consumes one."""
    client, logstore = server.client(step.resource.spec.project), step.resource.spec.logstore
    if step.resource.spec.subscription is None:
        return tuple(
            GroupSettings(timeout_s=one.timeout_s, order=one.order) for one in client.list_groups(logstore)
        )
    found = client.list_subscriptions(logstore)
    return tuple(SubscriptionKind(type=one.type, in_order=one.in_order, key=one.key) for one in found)


def _ensure_group(server: MemoryServer, step: Step) -> None:
    """With other settings than any story has."""
    if _stored(server, step):
        return
    client, logstore = server.client(step.resource.spec.project), step.resource.spec.logstore
    if step.resource.spec.subscription is None:
        client.create_group(logstore, GroupInfo(name=step.resource.group, timeout_s=77, order=False))
    else:
        other = SubscriptionSpec(type=SubscriptionType.KEY_SHARED, key=("other",))
        client.create_subscription(logstore, step.resource.group, other)


def _check(action: Action, ways: Ways, server: MemoryServer, events: list[EmitEvent], step: Step) -> None:
    match action:
        case actions.ApplyWorkers():
            assert ways.calls[-1] == ("apply", action.replicas, action.spec)
        case actions.DrainWorker(consumer):
            assert ways.calls[-1] == ("ask_leave", consumer)
        case actions.RestartWorker(consumer):
            assert ways.calls[-1] == ("restart", consumer)
        case actions.RemoveWorkers():
            assert ways.calls[-1] == ("remove",)
        case actions.RecordGroupOrigin(record):
            assert ways.records[-1] == record
        case actions.CreateGroup() | actions.UpdateGroup():
            assert _stored(server, step) == (action.settings,)
        case actions.DeleteGroup():
            assert _stored(server, step) == ()
        case actions.CommitCheckpoints(cursors):
            stored = server.client(step.resource.spec.project).get_checkpoints(
                step.resource.spec.logstore, step.resource.group
            )
            assert set(cursors) <= {(one.shard, one.cursor) for one in stored}
        case actions.EmitEvent():
            assert events[-1] == action
        case actions.AddFinalizer() | actions.EnsureProjectService() | actions.RemoveFinalizer():
            assert ways.calls == [] or ways.calls[-1][0] != "apply"  # nothing of ours is touched


class FullDisk(LocalStage):
    """The status cannot be written down."""

    def write_status(self, status: Status) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_status_that_cannot_be_written_is_reported_and_reconciling_continues() -> None:
    stage = FullDisk(_first(CreateGroup))
    status, rounds = stage.play()
    assert [recorded(action) for action in stage.done] == list(stage.step.actions)
    (ready,) = [one for one in status.conditions if one.type == "Ready"]
    assert ready.reason == "ReconcileError"
    assert "No space left on device" in ready.message
    assert asyncio.run(rounds.round()) > 0


class Contested(LocalStage):
    """A group that is up to date, but for another client that changes its settings before each round."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        assert isinstance(step.observed.service, Available)
        assert isinstance(step.observed.service.group, GroupSettings)
        foreign = replace(step.observed.service.group, timeout_s=99)
        self.observed = replace(step.observed, service=replace(step.observed.service, group=foreign))
        self.resource = step.resource
        self.now = step.now

    def unix_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def current(self) -> LogHubConsumerGroup:
        return self.resource

    def write_status(self, status: Status) -> None:
        self.resource = self.resource.model_copy(update={"status": status})

    async def observe(self, _: LogHubConsumerGroup) -> ObservedState:
        return replace(self.observed, at_unix_s=self.now)

    async def rounds(self, count: int) -> None:
        loop = ReconcileLoop(objects=self, backend=self, clock=self)
        for _ in range(count):
            await loop.round()
            self.now += 2.0


def test_a_repeated_change_by_another_client_is_corrected_less_and_less_often() -> None:
    settled = next(
        step
        for step in all_steps()
        if not step.actions
        and any(one["status"] == "True" and one["type"] == "Ready" for one in step.status["conditions"])
    )
    stage = Contested(settled)
    asyncio.run(stage.rounds(120))
    corrections = [action for action in stage.done if isinstance(action, UpdateGroup)]
    assert 3 <= len(corrections) <= 8
    reasons = {one.type: one.reason for one in stage.resource.status.conditions}
    assert reasons["Degraded"] == "ConflictingController"
