"""Committed offsets: who may commit, and when offsets and groups are deleted or expire."""

from loghub.kafka.coordinator.answers import DeleteAnswer, PartitionsAnswer
from loghub.kafka.coordinator.draft import Draft
from loghub.kafka.coordinator.events import Cleanup, LogstoreDeleted, OffsetCommit, OffsetDelete
from loghub.kafka.coordinator.group import CommittedOffset, ErrorCode, TopicPartition
from loghub.kafka.coordinator.membership import member_error
from loghub.kafka.coordinator.states import GroupState, Trigger
from loghub.kafka.coordinator.subscription import CONSUMER, logstore_of, subscribed_topics


def commit(draft: Draft, event: OffsetCommit, request: int) -> None:
    error = _refuse_commit(draft, event)
    if error is not ErrorCode.NONE:
        every = tuple((partition, error) for partition, _, _ in event.offsets)
        draft.answer(request, PartitionsAnswer(error=error, partitions=every))
        return
    if draft.state is GroupState.DEAD:
        draft.go(Trigger.CREATED)
    if event.member_id in draft.members:
        draft.renew(draft.members[event.member_id])
    draft.offsets, errors = dict(draft.offsets), []
    for partition, offset, metadata in event.offsets:
        error = _refuse_offset(draft, partition, metadata)
        if error is ErrorCode.NONE:
            draft.offsets[partition] = CommittedOffset(
                offset=offset, metadata=metadata, commit_unix_ms=event.unix_ms
            )
        errors.append((partition, error))
    draft.answer(request, PartitionsAnswer(error=ErrorCode.NONE, partitions=tuple(errors)))


def _refuse_commit(draft: Draft, event: OffsetCommit) -> ErrorCode:
    """Members commit with the present generation; others only while the group has no members."""
    is_outside = event.generation < 0 and draft.state in (GroupState.EMPTY, GroupState.DEAD)
    if is_outside:
        return ErrorCode.NONE
    if draft.state is GroupState.DEAD:
        return ErrorCode.ILLEGAL_GENERATION  # of a group that was deleted or has expired
    error = member_error(draft, event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != draft.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if draft.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _refuse_offset(draft: Draft, partition: TopicPartition, metadata: str) -> ErrorCode:
    if len(metadata.encode()) > draft.limits.max_offset_metadata_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if partition not in draft.offsets and len(draft.offsets) >= draft.limits.max_offsets:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.NONE


def delete_offsets(draft: Draft, event: OffsetDelete, request: int) -> None:
    """OffsetDelete: of partitions whose topic no member subscribes to."""
    error = ErrorCode.NONE
    if draft.state is GroupState.DEAD:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif draft.members and draft.protocol_type != CONSUMER:
        error = ErrorCode.NON_EMPTY_GROUP  # whose topics are not known
    if error is not ErrorCode.NONE:
        every = tuple((partition, error) for _, partition in event.partitions)
        draft.answer(request, PartitionsAnswer(error=error, partitions=every))
        return
    errors, deleted = [], set()
    for topic, partition in event.partitions:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _is_subscribed(draft, topic) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            deleted.add(partition)
        errors.append((partition, error))
    draft.offsets = {p: committed for p, committed in draft.offsets.items() if p not in deleted}
    draft.answer(request, PartitionsAnswer(error=ErrorCode.NONE, partitions=tuple(errors)))


def _is_subscribed(draft: Draft, topic: str) -> bool:
    """Whether a member subscribes to the topic, under any of its names; what cannot be read may name it."""
    for member in draft.members.values():
        for protocol in member.info.protocols:
            topics = subscribed_topics(protocol.metadata)
            if topics is None or logstore_of(topic) in map(logstore_of, topics):
                return True
    return False


def delete_group(draft: Draft, request: int) -> None:
    error = ErrorCode.NONE
    if draft.state is GroupState.DEAD:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif draft.state is not GroupState.EMPTY:
        error = ErrorCode.NON_EMPTY_GROUP
    else:
        _forget(draft, Trigger.DELETED)
    draft.answer(request, DeleteAnswer(error=error))


def _forget(draft: Draft, trigger: Trigger) -> None:
    draft.pending, draft.offsets = {}, {}
    draft.generation, draft.protocol_type = 0, None
    draft.go(trigger)


def cleanup(draft: Draft, event: Cleanup) -> None:
    """Let the offsets of an empty group expire once neither a commit nor the group's being in use is younger
    than the retention."""
    if draft.state is not GroupState.EMPTY:
        return
    if draft.empty_since_unix_ms is None:
        draft.empty_since_unix_ms = event.unix_ms
    expired_ms = event.unix_ms - draft.limits.offsets_retention_ms
    if draft.empty_since_unix_ms <= expired_ms:
        draft.offsets = {p: c for p, c in draft.offsets.items() if c.commit_unix_ms > expired_ms}
    if not draft.offsets and not draft.pending:
        _forget(draft, Trigger.NOTHING_TO_KEEP)


def forget_logstore(draft: Draft, event: LogstoreDeleted) -> None:
    draft.offsets = {p: c for p, c in draft.offsets.items() if p.logstore != event.logstore}
