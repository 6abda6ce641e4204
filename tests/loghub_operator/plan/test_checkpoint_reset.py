"""A checkpoint reset is executed once, wherever the operator is killed."""

from dataclasses import replace

import pytest

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.conditions import UncheckedReason
from loghub_operator.model.actions import (
    Action,
    ActionRefused,
    ApplyWorkers,
    BackUpCheckpoints,
    CommitCheckpoints,
)
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import (
    ObservedState,
    ObservedStatefulSet,
    Peer,
    ResetObserved,
    ServiceErrorReason,
    Unavailable,
)
from loghub_operator.model.revision import UNKNOWN
from loghub_operator.plan import planner
from loghub_operator.plan.status.builder import unchecked_status
from loghub_operator.plan.subject import subject_of
from tests.loghub_operator.plan.checkpoint_reset_world import LOGSTORE, World
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.rounds import plan


@pytest.mark.parametrize("killed_at", range(1, 17))
def test_a_reset_killed_between_any_two_steps_ends_the_same(killed_at: int) -> None:
    world = World({"to": "End", "nonce": "n"}, killed_at=killed_at)
    world.force({0: world.cursors("begin")[0]})
    before = world.checkpoints()
    reset = world.until_over()
    assert reset["phase"] == "Succeeded"
    record = world.backups["access-checkpoints-n"]
    assert record.before == before
    assert world.checkpoints() == record.targets
    effects = world.effects
    world.round()
    assert world.effects == effects + 2  # an observation and nothing else


def test_a_reset_has_no_more_effects_than_are_killed() -> None:
    world = World({"to": "End", "nonce": "n"})
    world.until_over()
    assert world.effects <= 16


@pytest.mark.parametrize("extensions", [True, False])
@pytest.mark.parametrize("to", ["Begin", "End", "Timestamp"])
def test_each_target_moves_the_checkpoints_there(to: str, extensions: bool) -> None:
    time = {"timestamp": "2001-01-01T00:00:00Z"} if to == "Timestamp" else {}
    world = World({"to": to, "nonce": "n", **time}, extensions=extensions)
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end" if to == "End" else "begin")


def test_a_checkpoint_that_a_consumer_saved_at_the_target_is_moved_there_all_the_same() -> None:
    """By its name a worker knows that it must deliver again what the sink has from there on."""
    world = World({"to": "Begin", "nonce": "n"})
    first = world.cursors("begin")[0]
    world.client.update_checkpoint(LOGSTORE, LOGSTORE, shard=0, cursor=first, consumer="w-0", force=True)
    assert world.until_over()["phase"] == "Succeeded"
    consumers = {one.shard: one.consumer for one in world.client.get_checkpoints(LOGSTORE, LOGSTORE)}
    assert consumers == {0: "", 1: "", 2: ""}


@pytest.mark.parametrize("initial", ["begin", "end"])
def test_undo_restores_and_no_checkpoint_becomes_the_start_position(initial: str) -> None:
    world = World({"to": "End", "nonce": "n"})
    first = world.cursors("begin")[0]
    world.force({0: first})
    undo = world.until_over()["backupConfigMap"]
    world.sources[undo] = {str(shard): cursor for shard, cursor in world.backups[undo].before.items()}
    world.write()
    order = {"to": "ConfigMap", "configMapName": undo, "nonce": "back"}
    world.spec |= {"startPosition": {"from": initial.capitalize()}, "resetCheckpoints": order}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == {**world.cursors(initial), 0: first}


@pytest.mark.parametrize(
    ("order", "source", "text"),
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
def test_an_invalid_reset_moves_nothing(order: Document, source: dict[str, str] | None, text: str) -> None:
    requested = {"to": "ConfigMap", "configMapName": "cm", "nonce": "n", **order}
    if requested["to"] != "ConfigMap":
        del requested["configMapName"]
    world = World(requested)
    if source is not None:
        world.sources["cm"] = source
    reset = world.until_over()
    assert reset["phase"] == "Failed"
    assert text in reset["message"]
    assert set(world.checkpoints().values()) == {""}
    assert world.backups == {}


@pytest.mark.parametrize("source", [{"secret-name": "secret"}, {"0": "secret"}, {"0": "", "1": "c2VjcmV0"}])
def test_the_content_of_a_users_config_map_is_not_quoted(source: dict[str, str]) -> None:
    world = World({"to": "ConfigMap", "configMapName": "cm", "nonce": "n"})
    world.sources["cm"] = source
    reset = world.until_over()["message"]
    assert [secret for secret in ("secret", "c2VjcmV0") if secret in reset] == []


@pytest.mark.parametrize(
    "outage", [None, Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="away")]
)
@pytest.mark.parametrize("unseen", [None, UncheckedReason.FORBIDDEN, UncheckedReason.INVALID_SPEC])
def test_a_reset_in_the_first_manifest_counts_as_done(
    unseen: UncheckedReason | None, outage: Unavailable | None
) -> None:
    """Also if the first thing that was reported is why the object could not be observed yet."""
    world = World({"to": "End", "nonce": "old"})
    world.status = {}
    if unseen is not None:
        for _ in range(2):  # the same again
            before = world.resource().status
            status = unchecked_status(before, unseen, "not now", generation=1, now=world.now)
            world.status = status.to_dict()
    group = world.resource()
    observed = world.observe(group)
    planned = plan(group, replace(observed, service=outage or observed.service), world.now)
    assert not any(isinstance(one, CommitCheckpoints | BackUpCheckpoints) for one in planned.actions)
    world.status = planned.status.to_dict()
    reset = world.until_over()
    assert (reset["phase"], reset["nonce"]) == ("Succeeded", "old")
    assert "not executed" in reset["message"]
    assert "startPosition" in reset["message"]
    assert set(world.checkpoints().values()) == {""}
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "new"}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end")


def test_only_the_listed_shards_are_moved_and_a_deleted_one_may_be_left_out() -> None:
    world = World({"to": "ConfigMap", "configMapName": "cm", "nonce": "n", "shards": [1]})
    begin = world.cursors("begin")
    world.sources["cm"] = {"0": begin[0], "1": begin[1], "7": begin[0]}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == {0: "", 1: begin[1], 2: ""}


def test_a_nonce_that_was_used_before_is_rejected() -> None:
    world = World({"to": "End", "nonce": "a"})
    world.until_over()
    record = world.backups["access-checkpoints-a"]
    world.now += 60
    world.spec["resetCheckpoints"] = {"to": "Begin", "nonce": "b"}
    world.until_over()
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "a"}
    reset = world.until_over()
    assert (reset["phase"], "executed before" in reset["message"]) == ("Failed", True)
    assert world.backups["access-checkpoints-a"] is record
    assert world.checkpoints() == world.cursors("begin")


def test_a_backup_deleted_during_the_commit_fails_the_reset() -> None:
    world = World({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    world.backups.clear()
    end = world.until_over()
    assert "was deleted" in end["message"]
    assert "backupConfigMap" not in end  # a name in the status would promise an undo


class RejectedObjects(World):
    """The workers' objects are not as they should be, and the API server rejects them."""

    def observe(self, group: LogHubConsumerGroup) -> ObservedState:
        rejected = ObservedStatefulSet(replicas=0, revision=UNKNOWN)
        return replace(super().observe(group), worker_set=rejected)

    def carry_out(self, group: LogHubConsumerGroup, action: Action) -> None:
        if isinstance(action, ApplyWorkers):
            raise ActionRefused("spec.template is invalid")
        super().carry_out(group, action)

    def round(self) -> None:
        group, error = self.resource(), None
        subject = subject_of(group, self.observe(group), self.memory)
        planned = planner.plan(subject, self.now)
        try:
            for action in planned.actions:
                self.carry_out(group, action)
        except ActionRefused as raised:
            error = raised
        outcome = planner.finish(subject, planned, error, self.now)
        self.memory, self.status = outcome.memory, outcome.status.to_dict()
        self.now += 1


def test_a_suspended_group_is_reset_even_if_its_workers_objects_are_rejected() -> None:
    world = RejectedObjects({"to": "End", "nonce": "n"})
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("end")


@pytest.mark.parametrize("refused", [True, False])
def test_a_rejection_that_lasts_too_long_fails_the_reset_and_an_outage_does_not(refused: bool) -> None:
    world = World({"to": "End", "nonce": "n"})
    world.round()
    world.round()
    (backup,) = world.backups.values()
    beyond = dict.fromkeys(backup.targets, "OTAwMDAwMDAwMDAwMDAwMDAwMA==")
    group = world.resource()
    moving = replace(world.observe(group), reset=ResetObserved(backup=replace(backup, targets=beyond)))
    first = plan(group, moving, world.now).status
    memory = Memory(last_error="failed", service_error="not allowed" if refused else "")
    later = plan(
        group.model_copy(update={"status": first}), replace(moving, memory=memory), world.now + 301
    ).status
    assert later.checkpoint_reset is not None
    if not refused:
        assert later.checkpoint_reset.phase == "Committing"
        return
    assert later.checkpoint_reset.phase == "Failed"
    assert "rejects the checkpoints of shards 0, 1, 2" in later.checkpoint_reset.message


class Contested(World):
    """Another client moves one checkpoint after each reconcile, as a reset in another cluster does."""

    def round(self) -> None:
        super().round()
        self.force(dict([*self.cursors("begin").items()][:1]))


@pytest.mark.long
def test_a_reset_that_others_undo_again_and_again_fails_after_the_bound() -> None:
    world = Contested({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    began = world.now
    while world.status["checkpointReset"]["phase"] == "Committing":
        world.round()
        assert world.now < began + 400
    assert world.now > began + 300
    reset = world.status["checkpointReset"]
    assert (reset["phase"], reset["backupConfigMap"]) == ("Failed", "access-checkpoints-n")
    assert "others keep moving the checkpoints of shards 0;" in reset["message"]


def test_a_reset_that_an_outage_delayed_commits_its_checkpoints_part_by_part() -> None:
    world = World({"to": "End", "nonce": "n"})
    while world.status.get("checkpointReset", {}).get("phase") != "Committing":
        world.round()
    world.now += 1000
    group = world.resource()
    planned = plan(group, world.observe(group), world.now)
    assert planned.memory.committed == 3
    ends = world.cursors("end")
    world.force({0: ends[0]})  # as many as the deadline allowed
    world.memory = planned.memory
    assert world.until_over()["phase"] == "Succeeded"


@pytest.mark.parametrize(("after_s", "phase"), [(1.0, "StoppingWorkers"), (1000.0, "Failed")])
def test_a_backup_that_cannot_be_written_fails_the_reset_after_the_bound(after_s: float, phase: str) -> None:
    """For example because of a quota of ConfigMaps: the workers would stay stopped forever."""
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
def test_an_invalid_backup_fails_the_reset_after_the_bound(after_s: float, phase: str) -> None:
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
def test_a_withdrawn_reset_ends_according_to_its_phase(phase: str, end: str) -> None:
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


@pytest.mark.parametrize("unseen", [UncheckedReason.FORBIDDEN, UncheckedReason.INVALID_SPEC])
def test_a_group_that_was_observed_before_is_not_new_after_it_could_not_be(unseen: UncheckedReason) -> None:
    world = World({"to": "End", "nonce": "done"})
    assert world.until_over()["phase"] == "Succeeded"
    status = unchecked_status(world.resource().status, unseen, "not now", generation=1, now=world.now)
    world.status = status.to_dict()
    world.spec["resetCheckpoints"] = {"to": "Begin", "nonce": "next"}
    assert world.until_over()["phase"] == "Succeeded"
    assert world.checkpoints() == world.cursors("begin")


def test_no_checkpoint_moves_before_the_status_says_so() -> None:
    """If the request is removed, or a consumer comes, after the operator ended, the status must be right."""
    world = World({"to": "End", "nonce": "n"})
    while not any(world.checkpoints().values()):
        before = world.status.get("checkpointReset", {})
        world.round()
    assert (before["phase"], before["backupConfigMap"]) == ("Committing", "access-checkpoints-n")


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_reset_ends_when_the_endpoint_changes(rounds: int) -> None:
    """Its targets are cursors of the former log service; at another one they are any place."""
    world = World({"to": "End", "nonce": "n"})
    for _ in range(rounds):
        world.round()
    assert not any(world.checkpoints().values())
    world.spec["endpoint"] = "http://other.svc"
    assert world.until_over()["phase"] == "Failed"
    for _ in range(3):
        world.round()
    assert not any(world.checkpoints().values())
    reset = world.status["checkpointReset"]
    assert reset["phase"] == "Failed"
    assert "spec.endpoint changed" in reset["message"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_reset_ends_when_another_object_owns_the_group(rounds: int) -> None:
    """Its workers consume past the targets, and the group may come back after days."""
    world = World({"to": "End", "nonce": "n"})
    for _ in range(rounds):
        world.round()
    world.status["ownership"].pop("accessSince")  # the key was refused for too long
    world.peers = (Peer(created="", namespace="b", name="b", access_since="2026-01-01T00:00:00Z"),)
    world.round()
    assert world.status["checkpointReset"]["phase"] == "Failed"
    world.write()
    world.force(world.cursors("end"))
    theirs = world.checkpoints()
    world.peers = ()
    for _ in range(3):
        world.round()
    assert world.checkpoints() == theirs
    assert "ceased to be this object's" in world.status["checkpointReset"]["message"]


@pytest.mark.parametrize(("ahead_s", "phase"), [(5.0, "StoppingWorkers"), (3600.0, "Failed")])
def test_a_clock_that_was_set_back_keeps_no_workers_stopped(ahead_s: float, phase: str) -> None:
    world = World({"to": "End", "nonce": "n"})
    world.now += ahead_s
    world.round()
    world.now -= ahead_s
    world.client.heartbeat("access", "access", consumer="java-7f", held=())
    group = world.resource()
    reset = plan(group, world.observe(group), world.now).status.checkpoint_reset
    assert reset is not None
    assert reset.phase == phase
