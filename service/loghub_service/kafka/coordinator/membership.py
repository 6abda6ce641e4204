"""How members join, rejoin, get their assignments, stay and leave.

A request is accepted from a member only with its member id, and with the present generation where it names
one. A static member is also known by its instance id: a process that starts again under it takes the place of
the earlier one, whose requests are fenced from then on (docs/kafka-groups.md 3).
"""

from dataclasses import replace

from loghub_service.kafka.coordinator.draft import KafkaDraft
from loghub_service.kafka.coordinator.group import GroupErrorCode, GroupMember, KafkaGroupLimits, MemberInfo
from loghub_service.kafka.coordinator.rebalance import (
    common_protocols,
    joined_answer,
    prepare,
    remove_members,
    selected_protocol,
)
from loghub_service.kafka.coordinator.requests import (
    ConnectionLost,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    MemberHeartbeat,
    SyncAnswer,
    SyncGroup,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger


def member_error(draft: KafkaDraft, member_id: str, group_instance_id: str | None) -> GroupErrorCode:
    """Whether the sender of a request is a member: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if group_instance_id is not None:
        current = draft.static_member(group_instance_id)
        if current is None:
            return GroupErrorCode.UNKNOWN_MEMBER_ID
        if current.member_id != member_id:
            return GroupErrorCode.FENCED_INSTANCE_ID
    return GroupErrorCode.NONE if member_id in draft.members else GroupErrorCode.UNKNOWN_MEMBER_ID


def generation_error(draft: KafkaDraft, event: SyncGroup | MemberHeartbeat) -> GroupErrorCode:
    """The error of `member_error`, or ILLEGAL_GENERATION if the request names another generation."""
    error = member_error(draft, event.member_id, event.group_instance_id)
    if error is GroupErrorCode.NONE and event.generation != draft.generation:
        return GroupErrorCode.ILLEGAL_GENERATION
    return error


# JoinGroup


def join(draft: KafkaDraft, event: JoinGroup, request: int) -> None:
    error = _refuse_join(draft, event)
    if error is not GroupErrorCode.NONE:
        draft.answer(request, JoinAnswer(error=error, member_id=event.member_id))
    elif not event.member_id:
        _join_without_id(draft, event, request)
    elif event.member_id in draft.pending:
        draft.remove_pending(event.member_id)
        _add(draft, event, event.member_id, request)
    else:
        _rejoin(draft, event, request)


def _refuse_join(draft: KafkaDraft, event: JoinGroup) -> GroupErrorCode:
    limits = draft.limits
    if not _is_within_limits(event, limits):
        return GroupErrorCode.INVALID_REQUEST
    if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
        return GroupErrorCode.INVALID_SESSION_TIMEOUT
    is_pending = event.member_id in draft.pending and event.group_instance_id is None
    if event.member_id and not is_pending:
        error = member_error(draft, event.member_id, event.group_instance_id)
        if error is not GroupErrorCode.NONE:
            return error
    # Member ids that were given out count, because otherwise nothing would bound their number.
    size = len(draft.members) + len(draft.pending)
    is_new = not event.member_id and draft.static_member(event.group_instance_id) is None
    if is_new and size >= limits.max_members:
        return GroupErrorCode.GROUP_MAX_SIZE_REACHED
    return GroupErrorCode.NONE if _is_compatible(draft, event) else GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _is_within_limits(event: JoinGroup, limits: KafkaGroupLimits) -> bool:
    names = [
        event.client_id,
        event.client_host,
        event.protocol_type,
        event.group_instance_id or "",
        *(protocol.name for protocol in event.protocols),
    ]
    metadata_bytes = sum(len(protocol.metadata) for protocol in event.protocols)
    return (
        len(event.protocols) <= limits.max_protocols
        and metadata_bytes <= limits.max_metadata_bytes
        and all(len(name.encode()) <= limits.max_name_bytes for name in names)
    )


def _is_compatible(draft: KafkaDraft, event: JoinGroup) -> bool:
    """Whether the member has a protocol in common with all others. Its own earlier protocols do not count."""
    if not event.protocol_type or not event.protocols:
        return False
    replaced = draft.static_member(event.group_instance_id)
    own = {event.member_id, replaced.member_id if replaced else ""}
    others = [member for member in draft.members.values() if member.member_id not in own]
    if not others:
        return True
    names = {protocol.name for protocol in event.protocols}
    return event.protocol_type == draft.protocol_type and not names.isdisjoint(common_protocols(others))


def _join_without_id(draft: KafkaDraft, event: JoinGroup, request: int) -> None:
    if draft.state is KafkaGroupState.DEAD:
        draft.go(KafkaTrigger.CREATED)
    member_id = event.new_member_id
    assert member_id not in draft.members
    member = draft.static_member(event.group_instance_id)
    if member is not None:
        _replace_static(draft, member, event, request)
    elif event.requires_member_id and event.group_instance_id is None:
        draft.add_pending(member_id, session_timeout_ms=event.session_timeout_ms)
        draft.answer(request, JoinAnswer(error=GroupErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add(draft, event, member_id, request)


def _add(draft: KafkaDraft, event: JoinGroup, member_id: str, request: int) -> None:
    if not draft.members:
        draft.protocol_type = event.protocol_type
    info = _info(draft, event, member_id)
    draft.put(GroupMember(info=info, expires_s=draft.session_end(info), is_new=True, join_request=request))
    draft.joined_in_delay = draft.initial_end_s is not None
    prepare(draft, KafkaTrigger.MEMBER_JOINED)


def _info(draft: KafkaDraft, event: JoinGroup, member_id: str) -> MemberInfo:
    limits = draft.limits
    rebalance_timeout_ms = max(event.rebalance_timeout_ms, limits.min_rebalance_timeout_ms)
    return MemberInfo(
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=min(rebalance_timeout_ms, limits.max_rebalance_timeout_ms),
        protocols=event.protocols,
    )


def _replace_static(draft: KafkaDraft, old: GroupMember, event: JoinGroup, request: int) -> None:
    """A process starts under the instance id of a member: it takes over its place and its assignment.

    In a stable group nothing else changes, so that a restart within the session costs no rebalance. The
    answer names the earlier leader even if the member was it: an assignment would not be accepted now.
    """
    leader, was_leader = draft.leader, draft.leader == old.member_id
    was_unsynced = old.member_id in draft.unsynced
    draft.remove(old.member_id, error=GroupErrorCode.FENCED_INSTANCE_ID)
    info = replace(_info(draft, event, event.new_member_id), assignment=old.info.assignment)
    new = draft.put(
        GroupMember(info=info, expires_s=draft.session_end(info), is_new=old.is_new, join_request=request)
    )
    if was_leader:
        draft.leader = new.member_id
    if was_unsynced:
        draft.unsynced |= {new.member_id}
    if draft.state is KafkaGroupState.STABLE and selected_protocol(draft.members.values()) == draft.protocol:
        assert leader is not None
        draft.put(replace(new, join_request=None))
        draft.answer(request, replace(joined_answer(draft, new.member_id), leader=leader, members=()))
    else:
        prepare(draft, KafkaTrigger.STATIC_MEMBER_REPLACED)


def _rejoin(draft: KafkaDraft, event: JoinGroup, request: int) -> None:
    """A member joins again: because of a rebalance, with other metadata, or because it missed an answer."""
    member = draft.members[event.member_id]
    has_changed = member.info.protocols != event.protocols
    if draft.state is KafkaGroupState.PREPARING_REBALANCE:
        _wait_for_others(draft, member, event, request)
    elif has_changed:
        _wait_for_others(draft, member, event, request)
        prepare(draft, KafkaTrigger.METADATA_CHANGED)
    elif draft.state is KafkaGroupState.STABLE and draft.leader == event.member_id:
        _wait_for_others(draft, member, event, request)
        prepare(draft, KafkaTrigger.LEADER_REJOINED)
    else:
        draft.renew(member)
        draft.answer(request, joined_answer(draft, event.member_id))


def _wait_for_others(draft: KafkaDraft, member: GroupMember, event: JoinGroup, request: int) -> None:
    # The client has given up on an earlier request; error 27 does no harm if it still reads that answer.
    draft.answer_join_error(member, GroupErrorCode.REBALANCE_IN_PROGRESS)
    info = replace(
        _info(draft, event, event.member_id),
        group_instance_id=member.info.group_instance_id,
        assignment=member.info.assignment,
    )
    draft.put(replace(draft.members[member.member_id], info=info, join_request=request))


# SyncGroup, Heartbeat, LeaveGroup


def sync(draft: KafkaDraft, event: SyncGroup, request: int) -> None:
    error = generation_error(draft, event)
    if error is GroupErrorCode.NONE and draft.state is KafkaGroupState.PREPARING_REBALANCE:
        error = GroupErrorCode.REBALANCE_IN_PROGRESS
    assigned_bytes = sum(len(assignment) for _, assignment in event.assignments)
    if error is GroupErrorCode.NONE and assigned_bytes > draft.limits.max_assignment_bytes:
        error = GroupErrorCode.INVALID_REQUEST
    if error is not GroupErrorCode.NONE:
        draft.answer(request, SyncAnswer(error=error))
        return
    draft.answer_sync(draft.members[event.member_id], GroupErrorCode.REBALANCE_IN_PROGRESS)  # it was given up
    member = draft.put(replace(draft.members[event.member_id], sync_request=request))
    draft.unsynced -= {event.member_id}
    if draft.state is KafkaGroupState.STABLE:
        draft.answer_sync(member)
    elif draft.leader == event.member_id:
        _assign(draft, dict(event.assignments))
    if not draft.unsynced:
        draft.sync_end_s = None


def _assign(draft: KafkaDraft, assignments: dict[str, bytes]) -> None:
    """Distribute the leader's bytes. A member without an entry gets none, and entries of other members are
    ignored."""
    draft.go(KafkaTrigger.LEADER_ASSIGNED)
    for member in list(draft.members.values()):
        info = replace(member.info, assignment=assignments.get(member.member_id, b""))
        draft.answer_sync(draft.put(replace(member, info=info)))


def heartbeat(draft: KafkaDraft, event: MemberHeartbeat, request: int) -> None:
    error = generation_error(draft, event)
    if error is GroupErrorCode.NONE:
        draft.renew(draft.members[event.member_id])
        if draft.state is KafkaGroupState.PREPARING_REBALANCE:
            error = GroupErrorCode.REBALANCE_IN_PROGRESS
    draft.answer_heartbeat(request, error)


def leave(draft: KafkaDraft, event: LeaveGroup, request: int) -> None:
    errors: list[GroupErrorCode] = []
    removed: list[str] = []
    for member_id, group_instance_id in event.members:
        static = draft.static_member(group_instance_id)
        named = member_id or (static.member_id if static else "")
        if named in draft.pending:
            draft.remove_pending(named)
            errors.append(GroupErrorCode.NONE)
            continue
        error = member_error(draft, named, group_instance_id)
        if error is GroupErrorCode.NONE and named in removed:
            error = GroupErrorCode.UNKNOWN_MEMBER_ID
        if error is GroupErrorCode.NONE:
            removed.append(named)
        errors.append(error)
    remove_members(draft, removed, KafkaTrigger.MEMBER_LEFT)
    draft.answer(request, LeaveAnswer(error=GroupErrorCode.NONE, members=tuple(errors)))


def connection_lost(draft: KafkaDraft, event: ConnectionLost) -> None:
    for member in list(draft.members.values()):
        if member.join_request == event.request and member.is_new and not member.is_static:
            draft.remove(member.member_id)
