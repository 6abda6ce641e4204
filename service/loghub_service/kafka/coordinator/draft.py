"""A group under construction, for the length of one step.

The `KafkaDraft` collects the changes of one event, the answers and the transitions. Every change of the
group's state goes through `KafkaDraft.go`, which checks it against the table. The rules in `membership`,
`rebalance` and `offsets` decide why a change is made.
"""

from dataclasses import replace

from loghub_service.kafka.coordinator.facts import changes
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupErrorCode,
    GroupMember,
    KafkaGroupLimits,
    KafkaTransition,
    MemberInfo,
    next_deadline,
)
from loghub_service.kafka.coordinator.requests import Answer, HeartbeatAnswer, JoinAnswer, Outcome, SyncAnswer
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger, transition


class KafkaDraft:
    """Mutable for the length of one step; the group that it started from does not change."""

    def __init__(self, group: Group, *, now: float, limits: KafkaGroupLimits) -> None:
        self.now = now
        self.limits = limits
        self.state = group.state
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol = group.protocol
        self.leader = group.leader
        self.members = dict(group.members)
        self.pending = group.pending
        self.offsets = group.offsets
        self.rebalance_end_s = group.rebalance_end_s
        self.initial_end_s = group.initial_end_s
        self.joined_in_delay = group.joined_in_delay
        self.unsynced = group.unsynced
        self.sync_end_s = group.sync_end_s
        self.empty_since_unix_ms = group.empty_since_unix_ms
        self._changed_members: dict[str, None] = {}  # ids, in order
        self._answers: list[tuple[int, Answer]] = []
        self._transitions: list[KafkaTransition] = []
        self._group = group

    def go(self, trigger: KafkaTrigger) -> None:
        """Change the group's state by one edge."""
        old, self.state = self.state, transition(self.state, trigger)
        self._transitions.append(
            KafkaTransition(
                group_id=self._group.group_id,
                old=old,
                new=self.state,
                trigger=trigger,
                generation=self.generation,
                members=len(self.members),
            )
        )

    def answer(self, request: int, answer: Answer) -> None:
        self._answers.append((request, answer))

    # Members

    def put(self, member: GroupMember) -> GroupMember:
        """Add a member, or replace the one with its id."""
        before = self.members.get(member.member_id)
        if before is None or before.info is not member.info or before.is_new is not member.is_new:
            self._changed_members[member.member_id] = None
        self.members[member.member_id] = member
        return member

    def renew(self, member: GroupMember) -> GroupMember:
        """Start the member's session again."""
        return self.put(replace(member, expires_s=self.session_end(member.info)))

    def session_end(self, info: MemberInfo) -> float:
        return self.now + info.session_timeout_ms / 1000

    def remove(self, member_id: str, *, error: GroupErrorCode = GroupErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member; its waiting requests are answered with ``error``."""
        self.answer_join_error(self.members[member_id], error)
        self.answer_sync(self.members[member_id], error)
        del self.members[member_id]
        self._changed_members[member_id] = None
        self.unsynced -= {member_id}
        if self.leader == member_id:
            self.leader = None

    def static_member(self, group_instance_id: str | None) -> GroupMember | None:
        """The member with this instance id."""
        if group_instance_id is None:
            return None
        members = (m for m in self.members.values() if m.info.group_instance_id == group_instance_id)
        return next(members, None)

    def add_pending(self, member_id: str, *, session_timeout_ms: int) -> None:
        self.pending = {**self.pending, member_id: self.now + session_timeout_ms / 1000}

    def remove_pending(self, member_id: str) -> None:
        self.pending = {m: end for m, end in self.pending.items() if m != member_id}

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest rebalance timeout of all members."""
        return max((m.info.rebalance_timeout_ms for m in self.members.values()), default=0) / 1000

    # Waiting requests

    def answer_join_error(self, member: GroupMember, error: GroupErrorCode) -> None:
        """Answer the member's waiting JoinGroup, if there is one, with an error. The caller removes the
        member, or gives it another request."""
        if member.join_request is not None:
            self.answer(member.join_request, JoinAnswer(error=error, member_id=member.member_id))

    def answer_sync(self, member: GroupMember, error: GroupErrorCode = GroupErrorCode.NONE) -> None:
        """Answer the member's waiting SyncGroup, if there is one, and start its session again."""
        if member.sync_request is not None:
            assignment = member.info.assignment if error is GroupErrorCode.NONE else b""
            self.answer(member.sync_request, SyncAnswer(error=error, assignment=assignment))
            self.renew(replace(member, sync_request=None))

    def answer_heartbeat(self, request: int, error: GroupErrorCode) -> None:
        self.answer(request, HeartbeatAnswer(error=error))

    def finish(self) -> Outcome:
        if self.state is not KafkaGroupState.EMPTY:
            self.empty_since_unix_ms = None
        group = Group(
            group_id=self._group.group_id,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=self.members,
            pending=self.pending,
            offsets=self.offsets,
            rebalance_end_s=self.rebalance_end_s,
            initial_end_s=self.initial_end_s,
            joined_in_delay=self.joined_in_delay,
            unsynced=self.unsynced,
            sync_end_s=self.sync_end_s,
            empty_since_unix_ms=self.empty_since_unix_ms,
        )
        return Outcome(
            group=group,
            answers=tuple(self._answers),
            facts=changes(self._group, group, self._changed_members),
            transitions=tuple(self._transitions),
            next_deadline_s=next_deadline(group),
        )
