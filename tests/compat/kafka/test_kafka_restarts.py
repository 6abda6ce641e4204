"""The service is killed at each point of a rebalance of real clients, and started again
(docs/kafka-groups.md 4): the group shares the partitions again, and what was committed is not read again.

`tests.properties.kafka.test_fail_over` has the same points with the coordinator alone.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.compat.kafka.client_programs import GROUP, GUARD_S, LIBRARIES, ClientProgram, KafkaPlace
from tests.compat.kafka.programs.held_service import EVERY_JOIN, EVERY_SYNC, LEADERS_JOIN
from tests.support import wait_until

pytestmark = pytest.mark.long
PARTITIONS = 6
# Longer than a member is stopped while the service starts. Each library has this assignor.
PREPARING, COMPLETING = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
)


class Story:
    """One group with a member of each library."""

    def __init__(self, place: KafkaPlace, hold: Path) -> None:
        self.place = place
        self._hold = hold
        place.create(shards=PARTITIONS)
        self.members = [place.consumer(library, assignor="roundrobin") for library in LIBRARIES]
        self.producer = place.producer("confluent")
        self._chunks = count()

    def read_and_commit(self) -> None:
        chunk = next(self._chunks)
        values = [f"value {chunk}.{number}" for number in range(100)]
        self.place.wait_shared(*self.members, total=PARTITIONS)
        self.producer.produce(values)
        self.place.wait_for(set(values), *self.members)
        for one in self.members:
            one.send("commit")
        for one in self.members:
            one.answer("commit")

    def join(self) -> None:
        self.members.append(self.place.consumer("confluent", assignor="roundrobin"))

    def leave(self) -> None:
        self.members.pop().leave()

    def wait_state(self, state: ConsumerGroupState, *, members: int) -> None:
        """Until what is durable says so. librdkafka 2.16 does not find a coordinator again that was away, so
        each wait has a client of its own."""
        admin = AdminClient(self.place.librdkafka)

        def is_so() -> bool:
            found = admin.describe_consumer_groups([GROUP])[GROUP].result(GUARD_S)
            return bool(found.state == state and len(found.members) == members)

        wait_until(is_so, f"{state} with {members} members", guard_s=GUARD_S, every_s=0.1)

    @contextmanager
    def stopped(self, *clients: ClientProgram) -> Iterator[None]:
        for one in clients:
            one.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for one in clients:
                one.process.send_signal(signal.SIGCONT)

    @contextmanager
    def held(self, answers: str) -> Iterator[None]:
        self._hold.write_text(answers)
        try:
            yield
        finally:
            self._hold.unlink()


@contextmanager
def nobody_has_rejoined(story: Story) -> Iterator[None]:
    """Nor has a member been answered that the group rebalances."""
    members = list(story.members)
    with story.stopped(*members):
        story.join()
        story.wait_state(PREPARING, members=len(story.members))
        yield


@contextmanager
def some_have_rejoined(story: Story) -> Iterator[None]:
    waiting, *others = story.members
    with story.stopped(waiting):
        story.leave()
        revoking = [one for one in others if one.library in ("java", "franz-go")]  # they say so at once
        wait_until(lambda: not any(one.partitions for one in revoking), "revocations", guard_s=GUARD_S)
        story.wait_state(PREPARING, members=len(story.members))
        yield


@contextmanager
def nobody_knows_the_new_generation(story: Story) -> Iterator[None]:
    with story.held(EVERY_JOIN):
        story.join()
        story.wait_state(COMPLETING, members=len(story.members))
        yield


@contextmanager
def the_leader_does_not_know_the_new_generation(story: Story) -> Iterator[None]:
    """The others do, and wait for their assignments."""
    with story.held(LEADERS_JOIN):
        story.leave()
        story.wait_state(COMPLETING, members=len(story.members))
        yield


@contextmanager
def nobody_knows_the_new_assignment(story: Story) -> Iterator[None]:
    with story.held(EVERY_SYNC):
        story.join()
        story.wait_state(ConsumerGroupState.STABLE, members=len(story.members))
        yield


@contextmanager
def no_rebalance(_: Story) -> Iterator[None]:
    """Java and franz-go begin one themselves, since their only broker was away."""
    yield


POINTS: tuple[Callable[[Story], AbstractContextManager[None]], ...] = (
    nobody_has_rejoined,
    some_have_rejoined,
    nobody_knows_the_new_generation,
    the_leader_does_not_know_the_new_generation,
    nobody_knows_the_new_assignment,
    no_rebalance,
)
HELD = POINTS[2:5]  # a real broker answers at once


def test_the_service_is_killed_at_each_point_of_a_rebalance(held_place: KafkaPlace, hold: Path) -> None:
    place, story = held_place, Story(held_place, hold)
    for point in POINTS:
        if place.is_real and point in HELD:
            continue
        story.read_and_commit()
        with point(story):
            place.kill()
        place.start_again()
    place.wait_shared(*story.members, total=PARTITIONS)
    place.check_read(story.producer, partitions=range(PARTITIONS))
