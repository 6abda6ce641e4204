"""How members join, rejoin, get their assignments, stay and leave.

A request is accepted from a member only with its member id, and with the present generation where it names
one. A static member is also known by its instance id: a process that starts again under it takes the place of
the earlier one, whose requests are fenced from then on (docs/kafka-groups.md 3).
"""

from dataclasses import replace

from loghub.kafka.coordinator.answers import JoinAnswer, LeaveAnswer, SyncAnswer
from loghub.kafka.coordinator.draft import Draft
from loghub.kafka.coordinator.events import ConnectionLost, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from loghub.kafka.coordinator.group import ErrorCode, Limits, Member, MemberInfo
from loghub.kafka.coordinator.rebalance import (
    common_protocols,
    joined_answer,
    prepare,
    remove_members,
    selected_protocol,
)
from loghub.kafka.coordinator.states import GroupState, Trigger


def member_error(draft: Draft, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Whether the sender of a request is a member: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if group_instance_id is not None:
        current = draft.static_member(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in draft.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(draft: Draft, event: SyncGroup | Heartbeat) -> ErrorCode:
    """As `member_error`, or ILLEGAL_GENERATION if the request is of another generation."""
    error = member_error(draft, event.member_id, event.group_instance_id)
    if error is ErrorCode.NONE and event.generation != draft.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


# JoinGroup


def join(draft: Draft, event: JoinGroup, request: int) -> None:
    error = _refuse_join(draft, event)
    if error is not ErrorCode.NONE:
        draft.answer(request, JoinAnswer(error=error, member_id=event.member_id))
    elif not event.member_id:
        _join_without_id(draft, event, request)
    elif event.member_id in draft.pending:
        draft.remove_pending(event.member_id)
        _add(draft, event, event.member_id, request)
    else:
        _rejoin(draft, event, request)


def _refuse_join(draft: Draft, event: JoinGroup) -> ErrorCode:
    limits = draft.limits
    if not _is_within_limits(event, limits):
        return ErrorCode.INVALID_REQUEST
    if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    is_pending = event.member_id in draft.pending and event.group_instance_id is None
    if event.member_id and not is_pending:
        error = member_error(draft, event.member_id, event.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    # Member ids that were given out count, or nothing would bound them.
    size = len(draft.members) + len(draft.pending)
    is_new = not event.member_id and draft.static_member(event.group_instance_id) is None
    if is_new and size >= limits.max_members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return ErrorCode.NONE if _is_compatible(draft, event) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _is_within_limits(event: JoinGroup, limits: Limits) -> bool:
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


def _is_compatible(draft: Draft, event: JoinGroup) -> bool:
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


def _join_without_id(draft: Draft, event: JoinGroup, request: int) -> None:
    if draft.state is GroupState.DEAD:
        draft.go(Trigger.CREATED)
    member_id = event.new_member_id
    assert member_id not in draft.members
    known = draft.static_member(event.group_instance_id)
    if known is not None:
        _replace_static(draft, known, event, request)
    elif event.requires_member_id and event.group_instance_id is None:
        draft.add_pending(member_id, session_timeout_ms=event.session_timeout_ms)
        draft.answer(request, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add(draft, event, member_id, request)


def _add(draft: Draft, event: JoinGroup, member_id: str, request: int) -> None:
    if not draft.members:
        draft.protocol_type = event.protocol_type
    info = _info(draft, event, member_id)
    draft.put(Member(info=info, expires_s=draft.session_end(info), is_new=True, join_request=request))
    draft.joined_in_delay = draft.initial_end_s is not None
    prepare(draft, Trigger.MEMBER_JOINED)


def _info(draft: Draft, event: JoinGroup, member_id: str) -> MemberInfo:
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


def _replace_static(draft: Draft, old: Member, event: JoinGroup, request: int) -> None:
    """A process starts under the instance id of a member: it takes over its place and its assignment.

    In a stable group nothing else changes, so that a restart within the session costs no rebalance. The
    answer names the earlier leader even if the member was it: an assignment would not be accepted now.
    """
    leader, was_leader = draft.leader, draft.leader == old.member_id
    was_unsynced = old.member_id in draft.unsynced
    draft.remove(old.member_id, error=ErrorCode.FENCED_INSTANCE_ID)
    info = replace(_info(draft, event, event.new_member_id), assignment=old.info.assignment)
    new = draft.put(
        Member(info=info, expires_s=draft.session_end(info), is_new=old.is_new, join_request=request)
    )
    if was_leader:
        draft.leader = new.member_id
    if was_unsynced:
        draft.unsynced |= {new.member_id}
    if draft.state is GroupState.STABLE and selected_protocol(draft.members.values()) == draft.protocol:
        assert leader is not None
        draft.put(replace(new, join_request=None))
        draft.answer(request, replace(joined_answer(draft, new.member_id), leader=leader, members=()))
    else:
        prepare(draft, Trigger.STATIC_MEMBER_REPLACED)


def _rejoin(draft: Draft, event: JoinGroup, request: int) -> None:
    """A member joins again: because of a rebalance, with other metadata, or because it missed an answer."""
    member = draft.members[event.member_id]
    has_changed = member.info.protocols != event.protocols
    if draft.state is GroupState.PREPARING_REBALANCE:
        _wait_for_others(draft, member, event, request)
    elif has_changed:
        _wait_for_others(draft, member, event, request)
        prepare(draft, Trigger.METADATA_CHANGED)
    elif draft.state is GroupState.STABLE and draft.leader == event.member_id:
        _wait_for_others(draft, member, event, request)
        prepare(draft, Trigger.LEADER_REJOINED)
    else:
        draft.renew(member)
        draft.answer(request, joined_answer(draft, event.member_id))


def _wait_for_others(draft: Draft, member: Member, event: JoinGroup, request: int) -> None:
    # The client has given up on an earlier request; 27 does no harm should it still read the answer.
    draft.answer_join_error(member, ErrorCode.REBALANCE_IN_PROGRESS)
    info = replace(
        _info(draft, event, event.member_id),
        group_instance_id=member.info.group_instance_id,
        assignment=member.info.assignment,
    )
    draft.put(replace(draft.members[member.member_id], info=info, join_request=request))


# SyncGroup, Heartbeat, LeaveGroup


def sync(draft: Draft, event: SyncGroup, request: int) -> None:
    error = generation_error(draft, event)
    if error is ErrorCode.NONE and draft.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    assigned_bytes = sum(len(assignment) for _, assignment in event.assignments)
    if error is ErrorCode.NONE and assigned_bytes > draft.limits.max_assignment_bytes:
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        draft.answer(request, SyncAnswer(error=error))
        return
    draft.answer_sync(draft.members[event.member_id], ErrorCode.REBALANCE_IN_PROGRESS)  # it was given up
    member = draft.put(replace(draft.members[event.member_id], sync_request=request))
    draft.unsynced -= {event.member_id}
    if draft.state is GroupState.STABLE:
        draft.answer_sync(member)
    elif draft.leader == event.member_id:
        _assign(draft, dict(event.assignments))
    if not draft.unsynced:
        draft.sync_end_s = None


def _assign(draft: Draft, assignments: dict[str, bytes]) -> None:
    """Hand out the leader's bytes. A member that it does not name gets none, and others are ignored."""
    draft.go(Trigger.LEADER_ASSIGNED)
    for member in list(draft.members.values()):
        info = replace(member.info, assignment=assignments.get(member.member_id, b""))
        draft.answer_sync(draft.put(replace(member, info=info)))


def heartbeat(draft: Draft, event: Heartbeat, request: int) -> None:
    error = generation_error(draft, event)
    if error is ErrorCode.NONE:
        draft.renew(draft.members[event.member_id])
        if draft.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    draft.answer_heartbeat(request, error)


def leave(draft: Draft, event: LeaveGroup, request: int) -> None:
    errors: list[ErrorCode] = []
    removed: list[str] = []
    for member_id, group_instance_id in event.members:
        static = draft.static_member(group_instance_id)
        named = member_id or (static.member_id if static else "")
        if named in draft.pending:
            draft.remove_pending(named)
            errors.append(ErrorCode.NONE)
            continue
        error = member_error(draft, named, group_instance_id)
        if error is ErrorCode.NONE and named in removed:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE:
            removed.append(named)
        errors.append(error)
    remove_members(draft, removed, Trigger.MEMBER_LEFT)
    draft.answer(request, LeaveAnswer(error=ErrorCode.NONE, members=tuple(errors)))


def connection_lost(draft: Draft, event: ConnectionLost) -> None:
    for member in list(draft.members.values()):
        if member.join_request == event.request and member.is_new and not member.is_static:
            draft.remove(member.member_id)
