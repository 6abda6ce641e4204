"""The requests of consumer groups, which `loghub_service.kafka.groups` decides.

A group belongs to a project, and the requests of a consumer require the right to read, as over HTTP.
Committed offsets are kept by the logstore's id and the shard. A topic and the same topic with a suffix
therefore share them, and a logstore that was deleted and created again begins without any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loghub_service.connections.service_ports import Access
from loghub_service.connections.turns import Pauses
from loghub_service.kafka.broker.answer import PAUSE_EVERY, Answer, check_bounded, check_names, once
from loghub_service.kafka.broker.call import NODE_ID, KafkaCall
from loghub_service.kafka.broker.store import StoreError
from loghub_service.kafka.coordinator import requests
from loghub_service.kafka.coordinator.group import CommittedOffset, MemberProtocol, TopicPartition
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.kafka.wire import groups
from loghub_service.kafka.wire.errors import ErrorCode

_MEMBER_ID_REQUIRED_SINCE = 4  # version of JoinGroup
_MANY_LEAVE_SINCE = 3  # version of LeaveGroup


def _key(call: KafkaCall, group_id: str) -> KafkaGroupKey:
    return KafkaGroupKey(call.login.project, group_id)


def _refusal(call: KafkaCall, access: Access = Access.READ) -> ErrorCode:
    return call.count_error(
        ErrorCode.NONE if call.login.may(access) else ErrorCode.GROUP_AUTHORIZATION_FAILED
    )


# Membership


async def find_coordinator(call: KafkaCall, body: groups.FindCoordinatorRequest) -> Answer:
    """One broker coordinates every group."""
    if body.key_type != groups.GROUP_KEY:
        return call.answer(
            groups.FindCoordinatorResponse(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                error_message="transactions are not offered",
            )
        )
    return call.answer(
        groups.FindCoordinatorResponse(node_id=NODE_ID, host=call.address.host, port=call.address.port)
    )


async def join_group(call: KafkaCall, body: groups.JoinGroupRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.JoinGroupResponse(error_code=error, member_id=body.member_id))
    rebalance_ms = body.rebalance_timeout_ms
    event = requests.JoinGroup(
        member_id=body.member_id,
        new_member_id="",
        protocol_type=body.protocol_type,
        protocols=tuple(MemberProtocol(one.name, one.metadata) for one in body.protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.session_timeout_ms if rebalance_ms < 0 else rebalance_ms,
        group_instance_id=body.group_instance_id,
        requires_member_id=call.version >= _MEMBER_ID_REQUIRED_SINCE,
        client_id=call.header.client_id or "",
        client_host=call.client_host,
    )
    with call.waiting():
        answer = await call.broker.groups.join(_key(call, body.group_id), event)
    return call.answer(
        groups.JoinGroupResponse(
            error_code=call.count_error(answer.error),
            generation_id=answer.generation,
            protocol_name=answer.protocol,
            leader=answer.leader,
            member_id=answer.member_id,
            members=tuple(
                groups.JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata,
                )
                for member in answer.members
            ),
        )
    )


async def sync_group(call: KafkaCall, body: groups.SyncGroupRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.SyncGroupResponse(error_code=error))
    event = requests.SyncGroup(
        member_id=body.member_id,
        generation=body.generation_id,
        group_instance_id=body.group_instance_id,
        assignments=tuple((one.member_id, one.assignment) for one in body.assignments),
    )
    with call.waiting():
        answer = await call.broker.groups.sync(_key(call, body.group_id), event)
    return call.answer(
        groups.SyncGroupResponse(error_code=call.count_error(answer.error), assignment=answer.assignment)
    )


async def heartbeat(call: KafkaCall, body: groups.HeartbeatRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.HeartbeatResponse(error_code=error))
    event = requests.MemberHeartbeat(
        member_id=body.member_id,
        generation=body.generation_id,
        group_instance_id=body.group_instance_id,
    )
    answer = await call.broker.groups.heartbeat(_key(call, body.group_id), event)
    return call.answer(groups.HeartbeatResponse(error_code=call.count_error(answer.error)))


async def leave_group(call: KafkaCall, body: groups.LeaveGroupRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.LeaveGroupResponse(error_code=error))
    many = call.version >= _MANY_LEAVE_SINCE
    members = body.members if many else (groups.MemberIdentity(member_id=body.member_id),)
    check_names(call.broker.limits, members)
    event = requests.LeaveGroup(members=tuple((one.member_id, one.group_instance_id) for one in members))
    answer = await call.broker.groups.leave(_key(call, body.group_id), event)
    error_code = answer.error
    if not many and not error_code and answer.members:
        error_code = answer.members[0]
    return call.answer(
        groups.LeaveGroupResponse(
            error_code=call.count_error(error_code),
            members=tuple(
                groups.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
                )
                for member, error in zip(members, answer.members, strict=False)
            ),
        )
    )


# Offsets


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition as the client names it."""

    topic: str
    partition: int


async def _resolve(call: KafkaCall, places: Iterable[_Place]) -> dict[_Place, TopicPartition]:
    """The partitions that exist."""
    resolved, pauses = {}, Pauses(PAUSE_EVERY)
    for place in places:
        await pauses.step()
        try:
            topic = call.topic(place.topic).topic
        except StoreError:
            continue
        if 0 <= place.partition < topic.partitions:
            resolved[place] = TopicPartition(topic.id, place.partition)
    return resolved


async def offset_commit(call: KafkaCall, body: groups.OffsetCommitRequest) -> Answer:
    named = [(topic.name, topic.partitions) for topic in body.topics]
    check_bounded(call.broker.limits, topics=len(named), partitions=sum(len(ones) for _, ones in named))
    error = _refusal(call)
    resolved = await _resolve(
        call, [_Place(name, one.partition_index) for name, ones in named for one in ones]
    )
    errors: Mapping[TopicPartition, int] = {}
    if not error:
        event = requests.OffsetCommit(
            offsets=tuple(
                (resolved[place], partition.committed_offset, partition.committed_metadata or "")
                for name, ones in named
                for partition in ones
                if (place := _Place(name, partition.partition_index)) in resolved
            ),
            unix_ms=call.broker.service.now_ms(),
            member_id=body.member_id,
            generation=body.generation_id,
            group_instance_id=body.group_instance_id,
        )
        answer = await call.broker.groups.commit(_key(call, body.group_id), event)
        error = call.count_error(answer.error)
        errors = dict(answer.partitions)

    def outcome(place: _Place) -> int:
        if error:
            return error
        if place not in resolved:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors.get(resolved[place], ErrorCode.NONE)

    return call.answer(
        groups.OffsetCommitResponse(
            topics=tuple(
                groups.OffsetCommitResponseTopic(
                    name=name,
                    partitions=tuple(
                        groups.OffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=call.count_error(outcome(_Place(name, partition.partition_index))),
                        )
                        for partition in ones
                    ),
                )
                for name, ones in named
            )
        )
    )


async def offset_fetch(call: KafkaCall, body: groups.OffsetFetchRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.OffsetFetchResponse(topics=(), error_code=error))
    key = _key(call, body.group_id)
    if body.topics is None:
        return await _fetch_all(call, key)
    named = [(topic.name, topic.partition_indexes) for topic in body.topics]
    check_bounded(call.broker.limits, topics=len(named), partitions=sum(len(ones) for _, ones in named))
    resolved = await _resolve(call, [_Place(name, number) for name, numbers in named for number in numbers])
    answer = await call.broker.groups.fetch(key, tuple(resolved.values()))
    error_code = call.count_error(answer.error)
    committed = dict(answer.offsets)

    def found(place: _Place) -> groups.OffsetFetchResponsePartition:
        if error_code:
            return groups.OffsetFetchResponsePartition(partition_index=place.partition, error_code=error_code)
        offset = committed.get(resolved[place]) if place in resolved else None
        return _committed(place.partition, offset)

    return call.answer(
        groups.OffsetFetchResponse(
            topics=tuple(
                groups.OffsetFetchResponseTopic(
                    name=name, partitions=tuple(found(_Place(name, number)) for number in numbers)
                )
                for name, numbers in named
            ),
            error_code=error_code,
        )
    )


async def _fetch_all(call: KafkaCall, key: KafkaGroupKey) -> Answer:
    """Every offset of the group, under the names of the logstores that exist."""
    answer = await call.broker.groups.fetch(key, None)
    names = {topic.id: topic.name for topic in call.login.topics()}
    topics: dict[str, list[groups.OffsetFetchResponsePartition]] = {}
    for place, offset in answer.offsets:
        if place.logstore in names:
            topics.setdefault(names[place.logstore], []).append(_committed(place.shard, offset))
    return call.answer(
        groups.OffsetFetchResponse(
            topics=tuple(
                groups.OffsetFetchResponseTopic(name=name, partitions=tuple(ones))
                for name, ones in topics.items()
            ),
            error_code=call.count_error(answer.error),
        )
    )


def _committed(number: int, offset: CommittedOffset | None) -> groups.OffsetFetchResponsePartition:
    if offset is None:
        return groups.OffsetFetchResponsePartition(partition_index=number)
    return groups.OffsetFetchResponsePartition(
        partition_index=number, committed_offset=offset.offset, metadata=offset.metadata
    )


async def offset_delete(call: KafkaCall, body: groups.OffsetDeleteRequest) -> Answer:
    named = [(topic.name, topic.partitions) for topic in body.topics]
    check_bounded(call.broker.limits, topics=len(named), partitions=sum(len(ones) for _, ones in named))
    if error := _refusal(call, Access.ADMIN):
        return call.answer(groups.OffsetDeleteResponse(error_code=error))
    resolved = await _resolve(
        call, [_Place(name, one.partition_index) for name, ones in named for one in ones]
    )
    event = requests.OffsetDelete(partitions=tuple((place.topic, one) for place, one in resolved.items()))
    answer = await call.broker.groups.delete_offsets(_key(call, body.group_id), event)
    errors = dict(answer.partitions)

    def outcome(place: _Place) -> int:
        if place not in resolved:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors.get(resolved[place], ErrorCode.NONE)

    return call.answer(
        groups.OffsetDeleteResponse(
            error_code=call.count_error(answer.error),
            topics=tuple(
                groups.OffsetDeleteResponseTopic(
                    name=name,
                    partitions=tuple(
                        groups.OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=outcome(_Place(name, partition.partition_index)),
                        )
                        for partition in ones
                    ),
                )
                for name, ones in named
            ),
        )
    )


# Administration


async def describe_groups(call: KafkaCall, body: groups.DescribeGroupsRequest) -> Answer:
    check_names(call.broker.limits, body.groups)
    described = tuple([await _describe(call, group_id) for group_id in once(body.groups)])
    return call.answer(groups.DescribeGroupsResponse(groups=described))


async def _describe(call: KafkaCall, group_id: str) -> groups.DescribedGroup:
    if error := _refusal(call):
        return groups.DescribedGroup(error_code=error, group_id=group_id)
    description = await call.broker.groups.describe(_key(call, group_id))
    return groups.DescribedGroup(
        error_code=call.count_error(description.error),
        group_id=group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=tuple(
            groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=f"/{member.client_host}",  # as Kafka writes it
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in description.members
        ),
    )


async def list_groups(call: KafkaCall, _: groups.ListGroupsRequest) -> Answer:
    if error := _refusal(call):
        return call.answer(groups.ListGroupsResponse(error_code=error))
    listing = await call.broker.groups.list(call.login.project)
    return call.answer(
        groups.ListGroupsResponse(
            error_code=call.count_error(listing.error),
            groups=tuple(
                groups.ListedGroup(group_id=group.group_id, protocol_type=group.protocol_type)
                for group in listing.groups
            ),
        )
    )


async def delete_groups(call: KafkaCall, body: groups.DeleteGroupsRequest) -> Answer:
    check_names(call.broker.limits, body.groups_names)
    results = []
    for group_id in once(body.groups_names):
        error: int = _refusal(call, Access.ADMIN)
        if not error:
            answer = await call.broker.groups.delete(_key(call, group_id))
            error = call.count_error(answer.error)
        results.append(groups.DeletableGroupResult(group_id=group_id, error_code=error))
    return call.answer(groups.DeleteGroupsResponse(results=tuple(results)))
