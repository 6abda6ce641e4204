"""An object that is deleted while the checkpoints of a reset are being committed."""

import dataclasses
from contextlib import suppress
from typing import Any

import pytest

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.conditions import rfc3339
from loghub_operator.model.actions import Action, DeleteGroup, EmitEvent, RemoveFinalizer
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import ObservedState, Peer, ServiceErrorReason, Unavailable
from loghub_operator.plan.deletion import DELETE_BOUND_S
from tests.loghub_operator.plan.checkpoint_reset_world import SHARDS, KilledError, World

AWAY = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="it does not answer")


class HalfReset(World):
    """The operator was killed with one checkpoint committed. Then the object was deleted."""

    def __init__(self, policy: str) -> None:
        super().__init__({"nonce": "1", "to": "Begin"})
        self.spec["deletionPolicy"] = policy
        self.deleted_at: float | None = None
        self.done: list[Action] = []
        self.is_away = False
        self.force(self.cursors("end"))
        with suppress(KilledError):
            while True:
                self.round()
        self.memory, self.deleted_at = NO_MEMORY, self.now

    def effect(self) -> None:
        if self.deleted_at is None and self.reset() == 1:
            raise KilledError

    def reset(self) -> int:
        begin = self.cursors("begin")
        return sum(begin[shard] == at for shard, at in self.checkpoints().items())

    def resource(self) -> LogHubConsumerGroup:
        group = super().resource()
        if self.deleted_at is None:
            return group
        at = {"deletion_timestamp": rfc3339(self.deleted_at)}
        return group.model_copy(update={"metadata": group.metadata.model_copy(update=at)})

    def observe(self, group: LogHubConsumerGroup) -> ObservedState:
        seen = super().observe(group)
        if self.deleted_at is None:
            return seen
        changes: dict[str, Any] = {"service": AWAY, "reset": None} if self.is_away else {}
        return dataclasses.replace(seen, worker_set=None, has_finalizer=True, **changes)

    def carry_out(self, group: LogHubConsumerGroup, action: Action) -> None:
        if self.deleted_at is not None:
            self.done.append(action)
        super().carry_out(group, action)

    def until_released(self) -> None:
        assert self.deleted_at is not None
        while not any(isinstance(one, RemoveFinalizer) for one in self.done):
            assert self.now <= self.deleted_at + DELETE_BOUND_S + 20.0
            self.round()

    def events(self) -> list[str]:
        return [one.reason for one in self.done if isinstance(one, EmitEvent)]


@pytest.mark.parametrize("outage_s", [0.0, 30.0])
def test_a_deletion_finishes_a_reset_that_has_changed_a_checkpoint(outage_s: float) -> None:
    """The backup goes with the object, so nobody could finish it or take it back."""
    world = HalfReset("Retain")
    world.is_away = outage_s > 0
    assert world.deleted_at is not None
    while world.now < world.deleted_at + outage_s:
        world.round()
    world.is_away = False
    world.until_released()
    assert (world.reset(), world.events()) == (SHARDS, ["CheckpointResetSucceeded"])
    assert world.status["checkpointReset"]["phase"] == "Succeeded"
    assert world.now - world.deleted_at < outage_s + 10.0


def test_an_event_says_that_a_reset_could_not_be_finished() -> None:
    world = HalfReset("Retain")
    world.is_away = True
    world.until_released()
    assert (world.reset(), world.events()) == (1, ["CheckpointResetFailed"])
    assert "`loghub group reset`" in world.status["checkpointReset"]["message"]


def test_a_group_that_is_deleted_too_is_not_reset_before() -> None:
    world = HalfReset("Delete")
    world.until_released()
    assert (world.reset(), world.events()) == (1, [])
    assert any(isinstance(one, DeleteGroup) for one in world.done)


def test_a_reset_is_not_finished_in_a_group_that_another_object_owns() -> None:
    world = HalfReset("Retain")
    world.status["ownership"].pop("accessSince")  # the key was refused for too long
    world.peers = (Peer(created="", namespace="b", name="b", access_since="2026-01-01T00:00:00Z"),)
    world.until_released()
    assert (world.reset(), world.events()) == (1, ["CheckpointResetFailed"])
