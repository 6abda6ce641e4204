"""A restart of the service at each point of a rebalance: the group becomes stable again, no partition has two
owners in one generation, and commits survive.

Two clients share a group. A third joins it, or one dies, and the service is killed meanwhile.
"""

from collections.abc import Callable

import pytest

from loghub_service.kafka.coordinator.group import Group
from loghub_service.kafka.coordinator.states import KafkaGroupState
from tests.properties.kafka.group_system import KafkaGroupModel
from tests.properties.kafka.system import OUT, PARTITION, Setup, System

A, B, C = range(3)


class Story:
    """One life of a group, event by event; each system is checked."""

    def __init__(self, instances: str) -> None:
        self.model = KafkaGroupModel(Setup(names="abc", instances=instances))
        self.system = self.model.settle(self.model.empty(), idle=(C,))
        owner = next(i for i, client in enumerate(self.system.clients) if client.owned & 1)
        self.do(self.model.commit, owner)

    def do(self, change: Callable[[System, int], System], *clients: int) -> None:
        for i in clients:
            self.system = change(self.system, i)
            self.model.check(self.system)

    def c_joins(self) -> None:
        """A dynamic member gets an id first."""
        self.do(self.model.join, C)
        if self.system.clients[C].inbox is not None:
            self.do(self.model.read, C)
            self.do(self.model.join, C)
        assert self.group.state is KafkaGroupState.PREPARING_REBALANCE

    def lose_answers(self, *clients: int) -> None:
        for i in clients:
            assert self.system.clients[i].request
        self.do(self.model.abandon, *clients)

    @property
    def group(self) -> Group:
        return self.model.group[self.system.group]


def before_detection(story: Story) -> None:
    """``b`` is dead, and its session has not ended."""
    story.do(story.model.crash, B)


def half_notified(story: Story) -> None:
    story.c_joins()
    story.do(story.model.heartbeat, A)
    assert story.system.clients[A].phase == OUT


def half_joined(story: Story) -> None:
    half_notified(story)
    story.do(story.model.join, A)


def persisted_and_unanswered(story: Story) -> None:
    """The new generation is durable, and no client has read an answer."""
    half_joined(story)
    story.do(story.model.heartbeat, B)
    story.do(story.model.join, B)
    assert story.group.state is KafkaGroupState.COMPLETING_REBALANCE
    story.lose_answers(A, B, C)


def half_answered(story: Story) -> None:
    """The leader has read its answer, assigned, and read its assignment; nobody else has."""
    half_joined(story)
    story.do(story.model.heartbeat, B)
    story.do(story.model.join, B)
    leader = next(i for i in (A, B, C) if story.system.clients[i].inbox.members)  # type: ignore[union-attr]
    story.do(story.model.read, leader)
    story.do(story.model.sync, leader)
    story.do(story.model.read, leader)
    assert story.group.state is KafkaGroupState.STABLE
    story.lose_answers(*({A, B, C} - {leader}))


POINTS = (before_detection, half_notified, half_joined, persisted_and_unanswered, half_answered)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("instances", ["---", "xyz", "x--"])
@pytest.mark.parametrize("dead", [(), (B,), (A, C)], ids=["all live", "b is dead", "a and c are dead"])
def test_a_group_becomes_stable_after_a_restart(
    point: Callable[[Story], None], instances: str, dead: tuple[int, ...]
) -> None:
    story = Story(instances)
    point(story)
    generation = story.group.generation
    story.system = story.model.restart(story.system)
    assert story.group.generation == generation
    story.do(story.model.crash, *dead)
    story.system = story.model.settle(story.system, idle=dead)
    story.model.check(story.system)
    assert story.group.generation >= generation
    assert len(story.group.members) == 3 - len(dead)
    assert story.group.offsets[PARTITION].offset == 1


def test_every_point_is_another_state_of_the_group() -> None:
    states = []
    for point in POINTS:
        story = Story("---")
        point(story)
        states.append((story.group.state, story.group.generation, len(story.group.members)))
    stable, preparing, completing = (
        KafkaGroupState.STABLE,
        KafkaGroupState.PREPARING_REBALANCE,
        KafkaGroupState.COMPLETING_REBALANCE,
    )
    assert [state for state, _, _ in states] == [stable, preparing, preparing, completing, stable]
    assert states[3][1] == states[4][1] == states[0][1] + 1
