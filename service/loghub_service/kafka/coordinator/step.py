"""The coordinator of Kafka consumer groups: every decision about a group, as one pure function.

`step` takes a group, one event and the time, and returns the next group with everything that follows from it:
answers, facts, transitions and the next deadline. A request whose answer must wait (JoinGroup until the
others have joined, SyncGroup until the leader has assigned) is remembered by its number, and answered by a
later step, exactly once.

How to use it: apply events one at a time. Persist ``facts`` before any of ``answers`` is sent. After each
step, set one timer for ``next_deadline_s``, and apply a `TimePassed` when it fires. A late timer is harmless
if `PauseDetected` reports how late it is. A group that does not exist is a `Group` in the state Dead; forget
a group that is Dead after a step.

    done = step(Group(group_id="g"), JoinGroup(...), request=1, now=0.0)
    done = step(done.group, TimePassed(), now=done.next_deadline_s)
    done.answers  # ((1, JoinAnswer(error=GroupErrorCode.NONE, generation=1, ...)),)
"""

from loghub_service.kafka.coordinator import membership, offsets, rebalance
from loghub_service.kafka.coordinator.draft import KafkaDraft
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupErrorCode,
    GroupMember,
    KafkaGroupLimits,
    TopicPartition,
)
from loghub_service.kafka.coordinator.requests import (
    Cleanup,
    ConnectionLost,
    DeleteKafkaGroup,
    DescribeAnswer,
    DescribedMember,
    Event,
    FetchAnswer,
    GroupListing,
    JoinGroup,
    LeaveGroup,
    LogstoreGone,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    Outcome,
    PauseDetected,
    Request,
    SyncGroup,
    TimePassed,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState

NO_REQUEST = 0  # of an event whose answer nobody waits for
DEFAULT_LIMITS = KafkaGroupLimits()


def step(
    group: Group,
    event: Event,
    *,
    now: float,
    request: int = NO_REQUEST,
    limits: KafkaGroupLimits = DEFAULT_LIMITS,
) -> Outcome:
    """Apply one event. ``request`` is the number of the event's request, which no other waiting request has.
    A bad request results in an answer with an error, never in an exception."""
    draft = KafkaDraft(group, now=now, limits=limits)
    match event:
        case TimePassed():
            rebalance.tick(draft)
        case PauseDetected(pause_s=pause_s):
            rebalance.extend(draft, pause_s)
        case Cleanup():
            offsets.cleanup(draft, event)
        case LogstoreGone():
            offsets.forget_logstore(draft, event)
        case ConnectionLost():
            membership.connection_lost(draft, event)
        case _:
            _request(draft, event, request)
    rebalance.settle(draft)
    return draft.finish()


def _request(draft: KafkaDraft, event: Request, request: int) -> None:
    match event:
        case MemberHeartbeat():
            membership.heartbeat(draft, event, request)
        case OffsetCommit():
            offsets.commit(draft, event, request)
        case JoinGroup():
            membership.join(draft, event, request)
        case SyncGroup():
            membership.sync(draft, event, request)
        case LeaveGroup():
            membership.leave(draft, event, request)
        case OffsetDelete():
            offsets.delete_offsets(draft, event, request)
        case DeleteKafkaGroup():
            offsets.delete_group(draft, request)


# What is only read


def fetch_offsets(group: Group, partitions: tuple[TopicPartition, ...] | None) -> FetchAnswer:
    """OffsetFetch: the committed offsets of these partitions, or all committed offsets."""
    named = tuple(group.offsets) if partitions is None else partitions
    return FetchAnswer(error=GroupErrorCode.NONE, offsets=tuple((p, group.offsets.get(p)) for p in named))


def describe(group: Group) -> DescribeAnswer:
    """DescribeGroups of one group."""
    return DescribeAnswer(
        error=GroupErrorCode.NONE,
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if group.state is KafkaGroupState.STABLE else "",
        members=tuple(_described(group, member) for member in group.members.values()),
    )


def _described(group: Group, member: GroupMember) -> DescribedMember:
    info, is_stable = member.info, group.state is KafkaGroupState.STABLE
    return DescribedMember(
        member_id=info.member_id,
        group_instance_id=info.group_instance_id,
        client_id=info.client_id,
        client_host=info.client_host,
        metadata=info.metadata_of(group.protocol) if is_stable else b"",
        assignment=info.assignment if is_stable else b"",
    )


def listed(group: Group) -> GroupListing:
    """The group in the answer to ListGroups."""
    return GroupListing(group_id=group.group_id, protocol_type=group.protocol_type or "")
