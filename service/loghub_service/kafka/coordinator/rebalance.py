"""How a rebalance begins and ends, and what happens when time passes.

A rebalance has two phases. In PreparingRebalance the members rejoin; `complete` closes the phase with a new
generation and answers all waiting requests. In CompletingRebalance the leader assigns (`membership.sync`).
Each phase lasts at most the longest rebalance timeout of the members, counted from its begin, so that every
waiting request is answered. There is one exception: if only static members are left, and none of them has
rejoined, the group waits for the end of their sessions, since their place is kept for them. No request waits
meanwhile.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from loghub_service.kafka.coordinator.draft import KafkaDraft
from loghub_service.kafka.coordinator.group import GroupErrorCode, GroupMember
from loghub_service.kafka.coordinator.requests import JoinAnswer, JoinedMember
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger


def prepare(draft: KafkaDraft, trigger: KafkaTrigger) -> None:
    """Begin a rebalance, unless one is being prepared already. SyncGroup requests that wait answer 27."""
    if draft.state is KafkaGroupState.PREPARING_REBALANCE:
        return
    for member in list(draft.members.values()):
        draft.answer_sync(member, GroupErrorCode.REBALANCE_IN_PROGRESS)
    draft.unsynced, draft.sync_end_s = frozenset(), None
    was_empty = draft.state is KafkaGroupState.EMPTY
    draft.go(trigger)
    draft.rebalance_end_s = draft.now + draft.rebalance_timeout_s
    if was_empty and draft.limits.initial_rebalance_delay_ms:
        draft.initial_end_s = draft.rebalance_end_s
        _delay(draft, draft.initial_end_s)


def _delay(draft: KafkaDraft, end_s: float) -> None:
    """Wait for more members, so that a group that starts does not rebalance for each of them."""
    draft.rebalance_end_s = min(draft.now + draft.limits.initial_rebalance_delay_ms / 1000, end_s)
    draft.joined_in_delay = False


def settle(draft: KafkaDraft) -> None:
    """End the joining as soon as no member is missing, or no member is left."""
    if draft.state is not KafkaGroupState.PREPARING_REBALANCE:
        return
    # A client with a new member id is about to join; during the initial delay, more clients may.
    is_early = bool(draft.pending) or draft.initial_end_s is not None
    has_all = all(member.join_request is not None for member in draft.members.values())
    if not draft.members or (has_all and not is_early):
        complete(draft, KafkaTrigger.ALL_JOINED)


def complete(draft: KafkaDraft, trigger: KafkaTrigger) -> None:
    """Begin a new generation with the members that have rejoined, and with static members that have not."""
    for member in list(draft.members.values()):
        if member.join_request is None and not member.is_static:
            draft.remove(member.member_id)
    joined = [member for member in draft.members.values() if member.join_request is not None]
    draft.initial_end_s = None
    if draft.members and not joined:
        draft.rebalance_end_s = draft.now + draft.rebalance_timeout_s
        return
    draft.generation += 1
    draft.rebalance_end_s = None
    if not joined:
        draft.protocol = None
        draft.go(KafkaTrigger.NOBODY_LEFT)
        return
    if draft.leader not in {member.member_id for member in joined}:
        draft.leader = joined[0].member_id
    draft.protocol = selected_protocol(draft.members.values())
    draft.go(trigger)
    draft.unsynced = frozenset(member.member_id for member in joined)
    draft.sync_end_s = draft.now + draft.rebalance_timeout_s
    for member in list(draft.members.values()):
        draft.put(replace(member, info=replace(member.info, assignment=b""), is_new=False))
    for member in joined:
        answer_joined(draft, draft.members[member.member_id])


def answer_joined(draft: KafkaDraft, member: GroupMember) -> None:
    """Answer the member's waiting JoinGroup with the present generation, and start its session."""
    assert member.join_request is not None
    draft.answer(member.join_request, joined_answer(draft, member.member_id))
    draft.renew(replace(member, join_request=None))


def joined_answer(draft: KafkaDraft, member_id: str) -> JoinAnswer:
    """The present generation; the leader also gets the metadata of all members."""
    assert draft.leader is not None
    members: tuple[JoinedMember, ...] = ()
    if member_id == draft.leader:
        members = tuple(
            JoinedMember(
                member_id=member.member_id,
                group_instance_id=member.info.group_instance_id,
                metadata=member.info.metadata_of(draft.protocol),
            )
            for member in draft.members.values()
        )
    return JoinAnswer(
        error=GroupErrorCode.NONE,
        member_id=member_id,
        generation=draft.generation,
        protocol_type=draft.protocol_type or "",
        protocol=draft.protocol or "",
        leader=draft.leader,
        members=members,
    )


def common_protocols(members: Iterable[GroupMember]) -> list[str]:
    """The protocols that every member supports, in the order of the first member."""
    names = [[protocol.name for protocol in member.info.protocols] for member in members]
    return [name for name in names[0] if all(name in others for others in names)] if names else []


def selected_protocol(members: Collection[GroupMember]) -> str:
    """Each member votes for its first protocol that all members support; the most votes win.

    Among equals, the first member decides. `membership` admits no member that has no protocol in common.
    """
    common = common_protocols(members)
    votes = Counter(
        next(protocol.name for protocol in member.info.protocols if protocol.name in common)
        for member in members
    )
    return max(common, key=lambda name: votes[name])


# Time


def tick(draft: KafkaDraft) -> None:
    """Expire everything that has reached its end: member ids, sessions, and the two phases of a rebalance."""
    for member_id, end_s in draft.pending.items():
        if end_s <= draft.now:
            draft.remove_pending(member_id)
    silent = [
        m for m in draft.members.values() if m.session_end_s is not None and m.session_end_s <= draft.now
    ]
    remove_members(draft, [member.member_id for member in silent], KafkaTrigger.SESSION_TIMED_OUT)
    if draft.sync_end_s is not None and draft.sync_end_s <= draft.now:
        remove_members(draft, draft.unsynced, KafkaTrigger.SYNC_TIMED_OUT)
    if draft.rebalance_end_s is not None and draft.rebalance_end_s <= draft.now:
        _joining_is_over(draft)


def _joining_is_over(draft: KafkaDraft) -> None:
    if draft.initial_end_s is None:
        complete(draft, KafkaTrigger.REBALANCE_TIMED_OUT)
    elif draft.joined_in_delay and draft.now < draft.initial_end_s:
        _delay(draft, draft.initial_end_s)
    else:
        complete(draft, KafkaTrigger.INITIAL_DELAY_OVER)


def remove_members(draft: KafkaDraft, member_ids: Iterable[str], trigger: KafkaTrigger) -> None:
    """Remove members. Unless the other members are rejoining already, the free partitions make them
    rejoin."""
    removed = list(member_ids)
    for member_id in removed:
        draft.remove(member_id)
    if removed:
        prepare(draft, trigger)


def extend(draft: KafkaDraft, pause_s: float) -> None:
    """Move every end by the time for which the service did not run, but not beyond a full timeout from now:
    requests may be waiting in the service's sockets."""
    for member in list(draft.members.values()):
        draft.put(replace(member, expires_s=min(member.expires_s + pause_s, draft.session_end(member.info))))
    draft.pending = {member_id: end_s + pause_s for member_id, end_s in draft.pending.items()}
    latest_s = draft.now + draft.rebalance_timeout_s
    if draft.rebalance_end_s is not None:
        draft.rebalance_end_s = min(draft.rebalance_end_s + pause_s, latest_s)
    if draft.initial_end_s is not None:
        draft.initial_end_s = min(draft.initial_end_s + pause_s, latest_s)
    if draft.sync_end_s is not None:
        draft.sync_end_s = min(draft.sync_end_s + pause_s, latest_s)
