"""A Kafka group driven by hand: the service's duties around the coordinator, without a service.

It keeps a clock, the numbers of requests, their answers, and the facts, so that `Driver.restart` sees exactly
what a restarted service would. Every step is checked.
"""

import struct
from dataclasses import replace

from loghub_service.kafka.coordinator.facts import Fact, restore
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupErrorCode,
    KafkaGroupLimits,
    KafkaTransition,
    MemberProtocol,
    TopicPartition,
)
from loghub_service.kafka.coordinator.requests import (
    Answer,
    DeleteAnswer,
    DeleteKafkaGroup,
    Event,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    Outcome,
    PartitionsAnswer,
    Request,
    SyncAnswer,
    SyncGroup,
    TimePassed,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState
from loghub_service.kafka.coordinator.step import fetch_offsets, step
from tests.loghub_service.kafka.coordinator.invariants import check_state, check_step, survivors, waiting

SESSION_MS = 10_000
REBALANCE_MS = 60_000
P0, P1 = TopicPartition(1, 0), TopicPartition(1, 1)
NONE = GroupErrorCode.NONE


def subscription(*topics: str) -> bytes:
    """A consumer's metadata: version 1, topics, and user data."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


RANGE = (MemberProtocol("range", subscription("ls")),)


def join_event(name: str, *, member_id: str = "", **fields: object) -> JoinGroup:
    event = JoinGroup(
        member_id=member_id,
        new_member_id=name,
        protocol_type="consumer",
        protocols=RANGE,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
    )
    return replace(event, **fields)  # type: ignore[arg-type]


class Driver:
    """One group ``g``. Without an initial delay unless ``limits`` say otherwise."""

    def __init__(self, limits: KafkaGroupLimits | None = None) -> None:
        self.now = 100.0
        self.limits = limits or KafkaGroupLimits(initial_rebalance_delay_ms=0)
        self.group = Group(group_id="g")
        self.answers: dict[int, Answer] = {}
        self.facts: list[Fact] = []
        self.changes: list[KafkaTransition] = []
        self.requests = 0
        self.last = Outcome(group=self.group)

    # Events

    def ask(self, event: Request) -> int:
        self.requests += 1
        self.apply(event, self.requests)
        return self.requests

    def apply(self, event: Event, request: int = 0) -> Outcome:
        old = self.group
        self.last = step(old, event, now=self.now, request=request, limits=self.limits)
        check_step(old, self.last, request=request)
        check_state(self.last.group, self.limits)
        self.group = self.last.group
        for number, answer in self.last.answers:
            assert number not in self.answers
            self.answers[number] = answer
        self.facts += self.last.facts
        self.changes += self.last.transitions
        assert survivors(restore("g", self.facts, now=self.now)) == survivors(self.group)
        return self.last

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick at each deadline."""
        end = self.now + seconds
        for _ in range(100):
            deadline = self.last.next_deadline_s
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.apply(TimePassed())
        else:
            raise AssertionError("a tick leaves its deadline as it was")
        self.now = end

    def restart(self) -> None:
        """The service restarts; what waited is not answered."""
        for number in waiting(self.group):
            self.answers[number] = HeartbeatAnswer(error=GroupErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.group = restore("g", self.facts, now=self.now)
        check_state(self.group, self.limits)
        self.last = Outcome(group=self.group)
        self.apply(TimePassed())

    # Requests and their answers

    def start_join(self, name: str, **fields: object) -> int:
        return self.ask(join_event(name, **fields))  # type: ignore[arg-type]

    def joined(self, request: int) -> JoinAnswer:
        answer = self.answers[request]
        assert isinstance(answer, JoinAnswer)
        return answer

    def join_error(self, name: str, **fields: object) -> GroupErrorCode:
        return self.joined(self.start_join(name, **fields)).error

    def start_sync(self, member_id: str, *, generation: int | None = None, **fields: object) -> int:
        generation = self.group.generation if generation is None else generation
        event = SyncGroup(member_id=member_id, generation=generation)
        return self.ask(replace(event, **fields))  # type: ignore[arg-type]

    def synced(self, request: int) -> SyncAnswer:
        answer = self.answers[request]
        assert isinstance(answer, SyncAnswer)
        return answer

    def assign(self, **assignments: bytes) -> SyncAnswer:
        """The leader sends these assignments by member id."""
        assert self.group.leader is not None
        return self.synced(self.start_sync(self.group.leader, assignments=tuple(assignments.items())))

    def heartbeat(self, member_id: str, *, generation: int | None = None, **fields: object) -> GroupErrorCode:
        generation = self.group.generation if generation is None else generation
        event = MemberHeartbeat(member_id=member_id, generation=generation)
        answer = self.answers[self.ask(replace(event, **fields))]  # type: ignore[arg-type]
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error

    def leave(self, *members: tuple[str, str | None]) -> tuple[GroupErrorCode, ...]:
        answer = self.answers[self.ask(LeaveGroup(members=members))]
        assert isinstance(answer, LeaveAnswer)
        return answer.members

    def commit(self, offset: int, member_id: str = "", **fields: object) -> GroupErrorCode:
        """Commit an offset of partition 0; as a member with the present generation if an id is given."""
        generation = self.group.generation if member_id else -1
        event = OffsetCommit(
            offsets=((P0, offset, "note"),), unix_ms=1, member_id=member_id, generation=generation
        )
        ((_, error),) = self._partitions(replace(event, **fields))  # type: ignore[arg-type]
        return error

    def delete_offset(self, topic: str, partition: TopicPartition = P0) -> GroupErrorCode:
        ((_, error),) = self._partitions(OffsetDelete(partitions=((topic, partition),)))
        return error

    def _partitions(self, event: Request) -> tuple[tuple[TopicPartition, GroupErrorCode], ...]:
        answer = self.answers[self.ask(event)]
        assert isinstance(answer, PartitionsAnswer)
        return answer.partitions

    def delete(self) -> GroupErrorCode:
        answer = self.answers[self.ask(DeleteKafkaGroup())]
        assert isinstance(answer, DeleteAnswer)
        return answer.error

    @property
    def committed(self) -> int | None:
        """The offset of partition 0."""
        ((_, found),) = fetch_offsets(self.group, (P0,)).offsets
        return None if found is None else found.offset

    @property
    def state(self) -> KafkaGroupState:
        return self.group.state

    # Stories

    def stable(self, *names: str, **fields: object) -> None:
        """These members join and get their names in capitals as assignments."""
        self.rejoin(*names, **fields)
        self.assign(**{name: name.upper().encode() for name in names})
        for name in names:
            assert self.synced(self.start_sync(name)).assignment == name.upper().encode()
        assert self.state is KafkaGroupState.STABLE

    def rejoin(self, *names: str, **fields: object) -> None:
        """Those of these that are no members join, and then all that a rebalance waits for rejoin."""
        for name in names:
            if name not in self.group.members:
                self.start_join(name, **fields)
        for name in names:
            if (
                self.state is KafkaGroupState.PREPARING_REBALANCE
                and self.group.members[name].join_request is None
            ):
                self.start_join(name, member_id=name, **fields)
        assert self.state is KafkaGroupState.COMPLETING_REBALANCE
