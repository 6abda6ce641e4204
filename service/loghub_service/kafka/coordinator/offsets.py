"""Committed offsets: who may commit, and when offsets and groups are deleted or expire."""

from loghub_service.kafka.coordinator.consumer_metadata import CONSUMER, logstore_of, subscribed_topics
from loghub_service.kafka.coordinator.draft import KafkaDraft
from loghub_service.kafka.coordinator.group import CommittedOffset, GroupErrorCode, TopicPartition
from loghub_service.kafka.coordinator.membership import member_error
from loghub_service.kafka.coordinator.requests import (
    Cleanup,
    DeleteAnswer,
    LogstoreGone,
    OffsetCommit,
    OffsetDelete,
    PartitionsAnswer,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger


def commit(draft: KafkaDraft, event: OffsetCommit, request: int) -> None:
    error = _refuse_commit(draft, event)
    if error is not GroupErrorCode.NONE:
        every = tuple((partition, error) for partition, _, _ in event.offsets)
        draft.answer(request, PartitionsAnswer(error=error, partitions=every))
        return
    if draft.state is KafkaGroupState.DEAD:
        draft.go(KafkaTrigger.CREATED)
    if event.member_id in draft.members:
        draft.renew(draft.members[event.member_id])
    draft.offsets, errors = dict(draft.offsets), []
    for partition, offset, metadata in event.offsets:
        error = _refuse_offset(draft, partition, metadata)
        if error is GroupErrorCode.NONE:
            draft.offsets[partition] = CommittedOffset(
                offset=offset, metadata=metadata, commit_unix_ms=event.unix_ms
            )
        errors.append((partition, error))
    draft.answer(request, PartitionsAnswer(error=GroupErrorCode.NONE, partitions=tuple(errors)))


def _refuse_commit(draft: KafkaDraft, event: OffsetCommit) -> GroupErrorCode:
    """Members commit with the present generation; others only while the group has no members."""
    is_outside = event.generation < 0 and draft.state in (KafkaGroupState.EMPTY, KafkaGroupState.DEAD)
    if is_outside:
        return GroupErrorCode.NONE
    if draft.state is KafkaGroupState.DEAD:
        return GroupErrorCode.ILLEGAL_GENERATION  # the group was deleted or has expired
    error = member_error(draft, event.member_id, event.group_instance_id)
    if error is not GroupErrorCode.NONE:
        return error
    if event.generation != draft.generation:
        return GroupErrorCode.ILLEGAL_GENERATION
    if draft.state is KafkaGroupState.COMPLETING_REBALANCE:
        return GroupErrorCode.REBALANCE_IN_PROGRESS
    return GroupErrorCode.NONE


def _refuse_offset(draft: KafkaDraft, partition: TopicPartition, metadata: str) -> GroupErrorCode:
    if len(metadata.encode()) > draft.limits.max_offset_metadata_bytes:
        return GroupErrorCode.OFFSET_METADATA_TOO_LARGE
    if partition not in draft.offsets and len(draft.offsets) >= draft.limits.max_offsets:
        return GroupErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return GroupErrorCode.NONE


def delete_offsets(draft: KafkaDraft, event: OffsetDelete, request: int) -> None:
    """OffsetDelete: of partitions whose topic no member subscribes to."""
    error = GroupErrorCode.NONE
    if draft.state is KafkaGroupState.DEAD:
        error = GroupErrorCode.GROUP_ID_NOT_FOUND
    elif draft.members and draft.protocol_type != CONSUMER:
        error = GroupErrorCode.NON_EMPTY_GROUP  # the topics of its members are not known
    if error is not GroupErrorCode.NONE:
        every = tuple((partition, error) for _, partition in event.partitions)
        draft.answer(request, PartitionsAnswer(error=error, partitions=every))
        return
    errors, deleted = [], set()
    for topic, partition in event.partitions:
        error = (
            GroupErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _is_subscribed(draft, topic) else GroupErrorCode.NONE
        )
        if error is GroupErrorCode.NONE:
            deleted.add(partition)
        errors.append((partition, error))
    draft.offsets = {p: committed for p, committed in draft.offsets.items() if p not in deleted}
    draft.answer(request, PartitionsAnswer(error=GroupErrorCode.NONE, partitions=tuple(errors)))


def _is_subscribed(draft: KafkaDraft, topic: str) -> bool:
    """Whether a member subscribes to the topic, under any of its names. Metadata that cannot be read counts
    as a subscription."""
    for member in draft.members.values():
        for protocol in member.info.protocols:
            topics = subscribed_topics(protocol.metadata)
            if topics is None or logstore_of(topic) in map(logstore_of, topics):
                return True
    return False


def delete_group(draft: KafkaDraft, request: int) -> None:
    error = GroupErrorCode.NONE
    if draft.state is KafkaGroupState.DEAD:
        error = GroupErrorCode.GROUP_ID_NOT_FOUND
    elif draft.state is not KafkaGroupState.EMPTY:
        error = GroupErrorCode.NON_EMPTY_GROUP
    else:
        _forget(draft, KafkaTrigger.DELETED)
    draft.answer(request, DeleteAnswer(error=error))


def _forget(draft: KafkaDraft, trigger: KafkaTrigger) -> None:
    draft.pending, draft.offsets = {}, {}
    draft.generation, draft.protocol_type = 0, None
    draft.go(trigger)


def cleanup(draft: KafkaDraft, event: Cleanup) -> None:
    """Let the offsets of an empty group expire once both the commit and the last use of the group are older
    than the retention."""
    if draft.state is not KafkaGroupState.EMPTY:
        return
    if draft.empty_since_unix_ms is None:
        draft.empty_since_unix_ms = event.unix_ms
    expired_ms = event.unix_ms - draft.limits.offsets_retention_ms
    if draft.empty_since_unix_ms <= expired_ms:
        draft.offsets = {p: c for p, c in draft.offsets.items() if c.commit_unix_ms > expired_ms}
    if not draft.offsets and not draft.pending:
        _forget(draft, KafkaTrigger.NOTHING_TO_KEEP)


def forget_logstore(draft: KafkaDraft, event: LogstoreGone) -> None:
    draft.offsets = {p: c for p, c in draft.offsets.items() if p.logstore != event.logstore}
