"""An order to move checkpoints is carried out once, whatever ends the operator and wherever.

The log service is the one in memory and the record a dict; the plan, its actions and what they ask of
the log service are real. `World.killed_at` ends a round at that effect, before or after it.
"""

from dataclasses import replace
from typing import Any

import pytest

from loghub.client.port import GroupInfo
from loghub.clock import SystemClock
from loghub.wire import loggroup
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.logservice.checkpoints import commit_checkpoints, resolve_targets
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.model.actions import (
    Action,
    ActionRefused,
    ApplyWorkers,
    BackUpCheckpoints,
    CommitCheckpoints,
)
from loghub_operator.model.checkpoint_reset import (
    CheckpointBackup,
    ResetObserved,
    backup_name,
    needs_observation,
)
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.observed import (
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceErrorReason,
    Unavailable,
)
from loghub_operator.model.revision import UNKNOWN
from loghub_operator.plan.planner import plan
from loghub_operator.plan.round import finish, plan_round
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.logservice.test_group_state import WithoutExtensions
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.golden import desired_spec
from tests.loghub_operator.support.observing import service_observed

SITE = Placement(endpoint="http://127.0.0.1:1", sink_root="/sink", needs_project_address=False)
LOGSTORE = "access"
GROUP = loggroup.encode(loggroup.LogGroup(logs=(loggroup.Log(time=1, contents=(("a", "b"),)),)))
SHARDS = 3


class KilledError(Exception):
    """The operator's end."""


class World:
    """One suspended group, so that no worker has to be played."""

    def __init__(self, order: Document, *, extensions: bool = True, killed_at: int = -1) -> None:
        self.server = MemoryServer()
        self.hub = self.server.client("demo")
        self.hub.create_project()
        self.hub.create_logstore(LOGSTORE, shards=SHARDS)
        self.hub.create_group(LOGSTORE, GroupInfo(name=LOGSTORE, timeout_s=30, order=False))
        self.clock = SystemClock()
        self.asked: Any = self.hub if extensions else WithoutExtensions(self.hub)
        self.write()
        self.spec: Document = {"suspend": True, "resetCheckpoints": order}
        self.status: Document = {"observedGeneration": 1}
        self.kept: dict[str, CheckpointBackup] = {}
        self.sources: dict[str, dict[str, str]] = {}
        self.effects = 0
        self.killed_at = killed_at
        self.now = 1000.0
        self.memory = NO_MEMORY

    def write(self) -> None:
        for shard in self.hub.list_shards(LOGSTORE):
            self.hub.put_logs(LOGSTORE, GROUP, hash_key=shard.begin_key)

    def resource(self) -> LogHubConsumerGroup:
        return resource(self.spec, self.status, uid="uid-1")

    def observe(self, group: LogHubConsumerGroup) -> ObservedState:
        desired = desired_spec(group, SITE)
        service = available(service_observed(self.asked, group, clock=self.clock))
        return ObservedState(
            at_unix_s=self.now,
            placement=SITE,
            worker_spec=desired,
            service=service,
            worker_set=ObservedStatefulSet(replicas=0, revision=desired.revision),
            reset=self.look(group, service.shards) if needs_observation(group) else None,
            group_origin="Created",
            memory=self.memory,
        )

    def look(self, group: LogHubConsumerGroup, shards: Any) -> ResetObserved:
        assert group.spec.reset_checkpoints is not None
        source = self.sources.get(group.spec.reset_checkpoints.config_map_name or "")
        backup = self.kept.get(backup_name(group))
        return resolve_targets(self.asked, group, shards, backup=backup, source=source, clock=self.clock)

    def round(self) -> None:
        group = self.resource()
        planned = plan(group, self.observe(group), self.now)
        for action in planned.actions:
            self.carry_out(group, action)
        self.effect()
        self.status = planned.status.to_dict()
        self.effect()
        self.now += 1

    def effect(self) -> None:
        """Between any two effects the operator may end."""
        self.effects += 1
        if self.effects == self.killed_at:
            raise KilledError

    def carry_out(self, group: LogHubConsumerGroup, action: Action) -> None:
        assert not isinstance(action, ApplyWorkers)
        match action:
            case BackUpCheckpoints(name=name, backup=backup):
                self.effect()
                self.kept.setdefault(name, backup)
                self.effect()
            case CommitCheckpoints(cursors):
                for cursor in cursors:  # the call is one for each shard
                    self.effect()
                    commit_checkpoints(self.hub, GroupKey.of(group), CommitCheckpoints((cursor,)), self.clock)
                self.effect()

    def until_over(self) -> Document:
        for _ in range(20):
            try:
                self.round()
            except KilledError:
                self.write()  # the end of a shard is another one by now
                self.now += 1
            told: Document = self.status.get("checkpointReset", {})
            if (
                told.get("phase") in ("Succeeded", "Failed")
                and told["nonce"] == self.spec["resetCheckpoints"]["nonce"]
            ):
                return told
        raise AssertionError(f"not over: {self.status}")

    def checkpoints(self) -> dict[int, str]:
        return {one.shard: one.cursor for one in self.hub.get_checkpoints(LOGSTORE, LOGSTORE)}

    def cursors(self, position: str) -> dict[int, str]:
        return {n: self.hub.get_cursor(LOGSTORE, n, position) for n in range(SHARDS)}  # type: ignore[arg-type]

    def force(self, cursors: dict[int, str]) -> None:
        for shard, cursor in cursors.items():
            self.hub.update_checkpoint(
                LOGSTORE, LOGSTORE, shard=shard, cursor=cursor, consumer="", force=True
            )


@pytest.mark.parametrize("killed_at", range(1, 15))
def test_killed_between_any_two_steps_to_the_same_end(killed_at: int) -> None:
    world = World({"to": "End", "nonce": "n"}, killed_at=killed_at)
    world.force({0: world.cursors("begin")[0]})
    before = world.checkpoints()
    told = world.until_over()
    assert told["phase"] == "Succeeded"
    record = world.kept["access-checkpoints-n"]
    assert record.before == before
    assert world.checkpoints() == record.targets
    effects = world.effects
    world.round()
    assert world.effects == effects + 2  # a look and nothing else


def test_every_step_was_killed() -> None:
    world = World({"to": "End", "nonce": "n"})
    world.until_over()
    assert world.effects <= 14


@pytest.mark.parametrize("extensions", [True, False])
@pytest.mark.parametrize("to", ["Begin", "End", "Timestamp"])
def test_where_it_leads(to: str, extensions: bool) -> None:
    time = {"timestamp": "2001-01-01T00:00:00Z"} if to == "Timestamp" else {}
    world = World({"to": to, "nonce": "n", **time}, extensions=extensions)
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end" if to == "End" else "begin")


@pytest.mark.parametrize("initial", ["begin", "end"])
def test_undo_restores_and_no_checkpoint_becomes_the_start_position(initial: str) -> None:
    world = World({"to": "End", "nonce": "n"})
    first = world.cursors("begin")[0]
    world.force({0: first})
    undo = world.until_over()["backupConfigMap"]
    world.sources[undo] = {str(shard): cursor for shard, cursor in world.kept[undo].before.items()}
    world.write()
    order = {"to": "ConfigMap", "configMapName": undo, "nonce": "back"}
    world.spec |= {"startPosition": {"from": initial.capitalize()}, "resetCheckpoints": order}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == {**world.cursors(initial), 0: first}


@pytest.mark.parametrize(
    ("order", "source", "words"),
    [
        ({"to": "End", "shards": [0, 8, 9]}, None, "the logstore has no shard 8, 9"),
        ({}, None, "ConfigMap cm does not exist"),
        ({}, {}, "ConfigMap cm contains no checkpoints"),
        ({}, {"first": "MQ=="}, "ConfigMap cm does not map shard IDs to cursors"),
        ({}, {"01": "MQ=="}, "ConfigMap cm does not map shard IDs to cursors"),
        ({}, {"0": "no cursor"}, "ConfigMap cm does not map shard IDs to cursors"),
        ({}, {"0": "OTk5OTk5OTk5OTk5OTk5OTk5OQ=="}, "ConfigMap cm does not map shard IDs to cursors"),
        ({}, {"0": "ODk5OTk5OTk5OTk5OTk5OTk5OQ=="}, "the cursor of shard 0 is beyond the end of the shard"),
        ({}, {"0": "MQ==", "7": "MQ=="}, "contains shard 7, which the logstore does not have"),
        ({"shards": [0, 1]}, {"0": "MQ=="}, "does not contain shard 1"),
    ],
)
def test_what_makes_no_sense_moves_nothing(
    order: Document, source: dict[str, str] | None, words: str
) -> None:
    told_order = {"to": "ConfigMap", "configMapName": "cm", "nonce": "n", **order}
    if told_order["to"] != "ConfigMap":
        del told_order["configMapName"]
    world = World(told_order)
    if source is not None:
        world.sources["cm"] = source
    told = world.until_over()
    assert told["phase"] == "Failed"
    assert words in told["message"]
    assert set(world.checkpoints().values()) == {""}
    assert world.kept == {}


@pytest.mark.parametrize("source", [{"secret-name": "secret"}, {"0": "secret"}, {"0": "", "1": "c2VjcmV0"}])
def test_nothing_is_told_of_what_is_in_a_config_map_that_is_not_ours(source: dict[str, str]) -> None:
    world = World({"to": "ConfigMap", "configMapName": "cm", "nonce": "n"})
    world.sources["cm"] = source
    told = world.until_over()["message"]
    assert [word for word in ("secret", "c2VjcmV0") if word in told] == []


@pytest.mark.parametrize(
    "outage", [None, Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="away")]
)
def test_stood_there_when_the_object_was_made_to_done(outage: Unavailable | None) -> None:
    world = World({"to": "End", "nonce": "old"})
    world.status = {}
    group = world.resource()
    seen = world.observe(group)
    planned = plan(group, replace(seen, service=outage or seen.service), world.now)
    assert not any(isinstance(one, CommitCheckpoints | BackUpCheckpoints) for one in planned.actions)
    world.status = planned.status.to_dict()
    told = world.until_over()
    assert (told["phase"], told["nonce"]) == ("Succeeded", "old")
    assert "not executed" in told["message"]
    assert "startPosition" in told["message"]
    assert set(world.checkpoints().values()) == {""}
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "new"}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end")


def test_only_the_named_shards_are_moved_and_a_gone_one_may_be_left_out() -> None:
    world = World({"to": "ConfigMap", "configMapName": "cm", "nonce": "n", "shards": [1]})
    begin = world.cursors("begin")
    world.sources["cm"] = {"0": begin[0], "1": begin[1], "7": begin[0]}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == {0: "", 1: begin[1], 2: ""}


def test_a_nonce_that_was_used_before_is_refused() -> None:
    world = World({"to": "End", "nonce": "a"})
    world.until_over()
    record = world.kept["access-checkpoints-a"]
    world.now += 60
    world.spec["resetCheckpoints"] = {"to": "Begin", "nonce": "b"}
    world.until_over()
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "a"}
    told = world.until_over()
    assert (told["phase"], "was used before" in told["message"]) == ("Failed", True)
    assert world.kept["access-checkpoints-a"] is record
    assert world.checkpoints() == world.cursors("begin")


def test_a_record_that_goes_missing_is_an_end_with_words() -> None:
    world = World({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    world.kept.clear()
    end = world.until_over()
    assert "was deleted" in end["message"]
    assert "backupConfigMap" not in end  # a name in the status would promise an undo


class RejectedObjects(World):
    """The workers' objects are not as they should be, and the API server rejects them."""

    def observe(self, group: LogHubConsumerGroup) -> ObservedState:
        return replace(super().observe(group), worker_set=ObservedStatefulSet(replicas=0, revision=UNKNOWN))

    def carry_out(self, group: LogHubConsumerGroup, action: Action) -> None:
        if isinstance(action, ApplyWorkers):
            raise ActionRefused("spec.template is invalid")
        super().carry_out(group, action)

    def round(self) -> None:
        group, error = self.resource(), None
        planned = plan_round(group, self.observe(group), self.memory, self.now)
        try:
            for action in planned.plan.actions:
                self.carry_out(group, action)
        except ActionRefused as raised:
            error = raised
        outcome = finish(planned, error, self.now)
        self.memory, self.status = outcome.memory, outcome.status.to_dict()
        self.now += 1


def test_a_suspended_group_is_reset_even_if_its_workers_objects_are_rejected() -> None:
    world = RejectedObjects({"to": "End", "nonce": "n"})
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end")


@pytest.mark.parametrize("refused", [True, False])
def test_refused_for_too_long_is_an_end_with_words_and_an_outage_is_not(refused: bool) -> None:
    world = World({"to": "End", "nonce": "n"})
    world.round()
    world.round()
    (backup,) = world.kept.values()
    beyond = dict.fromkeys(backup.targets, "OTAwMDAwMDAwMDAwMDAwMDAwMA==")
    group = world.resource()
    moving = replace(world.observe(group), reset=ResetObserved(backup=replace(backup, targets=beyond)))
    first = plan(group, moving, world.now).status
    memory = Memory(last_error="not allowed" if refused else "")
    later = plan(
        group.model_copy(update={"status": first}), replace(moving, memory=memory), world.now + 301
    ).status
    assert later.checkpoint_reset is not None
    if not refused:
        assert later.checkpoint_reset.phase == "Committing"
        return
    assert later.checkpoint_reset.phase == "Failed"
    assert "rejects the checkpoints of shards 0, 1, 2" in later.checkpoint_reset.message


@pytest.mark.parametrize(("after_s", "phase"), [(1.0, "StoppingWorkers"), (1000.0, "Failed")])
def test_checkpoints_that_cannot_be_kept_end_the_order_in_time(after_s: float, phase: str) -> None:
    """A quota of ConfigMaps, say: the workers would stay away for ever."""
    world = World({"to": "End", "nonce": "n"})
    world.round()
    group = world.resource()
    observed = replace(world.observe(group), memory=Memory(last_error="exceeded quota"))
    planned = plan(group, observed, world.now + after_s)
    moving = planned.status.checkpoint_reset
    assert moving is not None
    assert moving.phase == phase
    tried = any(isinstance(one, BackUpCheckpoints) for one in planned.actions)
    assert (tried, "exceeded quota" in moving.message) == (phase == "StoppingWorkers", phase == "Failed")


@pytest.mark.parametrize(("after_s", "phase"), [(1.0, "Committing"), (1000.0, "Failed")])
def test_a_record_that_was_garbled_ends_the_order_in_time(after_s: float, phase: str) -> None:
    world = World({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    group = world.resource()
    garbled = replace(world.observe(group), reset=ResetObserved(error="ConfigMap x is not of this object"))
    moving = plan(group, garbled, world.now + after_s).status.checkpoint_reset
    assert moving is not None
    assert (moving.phase, moving.backup_config_map) == (phase, "access-checkpoints-n")
    assert "ConfigMap x is not of this object" in moving.message


@pytest.mark.parametrize(
    ("phase", "end"), [("StoppingWorkers", "Failed"), ("Committing", "Failed"), ("Resuming", "Succeeded")]
)
def test_taken_away_to_its_end(phase: str, end: str) -> None:
    """Once the workers are on their way back all is moved."""
    world = World({"to": "End", "nonce": "n"})
    at = {
        "nonce": "n",
        "phase": phase,
        "backupConfigMap": "u",
        "message": "moved",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    world.status |= {"checkpointReset": at}
    del world.spec["resetCheckpoints"]
    group = world.resource()
    planned = plan(group, world.observe(group), world.now)
    moving = planned.status.checkpoint_reset
    assert moving is not None
    assert (moving.phase, moving.nonce, moving.backup_config_map) == (end, "n", "u")
    assert ("was removed" in moving.message) == (end == "Failed")
