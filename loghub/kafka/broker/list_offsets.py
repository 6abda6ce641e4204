"""ListOffsets: the first offset, the end, or the offset for a time.

A time is compared with when a log group was received, as for a cursor of SLS, since only that is in the order
of the offsets; the time of a log is the producer's own.
"""

from loghub.kafka.broker.calls import Call
from loghub.kafka.broker.reply import Reply
from loghub.kafka.broker.requests import PAUSE_EVERY, check_bounded
from loghub.kafka.broker.store import Access, StoreError
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from loghub.pauses import Pauses


async def list_offsets(call: Call, body: ListOffsetsRequest) -> Reply:
    check_bounded(
        call.broker.limits,
        topics=len(body.topics),
        partitions=sum(len(topic.partitions) for topic in body.topics),
    )
    pauses, topics = Pauses(PAUSE_EVERY), []
    for topic in body.topics:
        found = []
        for one in topic.partitions:
            found.append(await _find(call, topic.name, one))
            await pauses.step()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return Reply(ListOffsetsResponse(topics=tuple(topics)))


async def _find(call: Call, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    number = asked.partition_index
    try:
        return await _found(call, name, asked)
    except StoreError as error:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=call.counted(error.code))


async def _found(call: Call, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Raises StoreError."""
    number = asked.partition_index
    partition = call.topic(name, Access.READ).topic.partition(number)
    if partition is None:
        raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:100]!r} has no such partition")
    if asked.timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        bounds = await partition.bounds()
        offset = bounds.end if asked.timestamp == LATEST_TIMESTAMP else bounds.start
        return ListOffsetsPartitionResponse(partition_index=number, offset=offset)
    if asked.timestamp < 0:  # newer clients have more of them, and ask in a newer version
        raise StoreError(ErrorCode.INVALID_REQUEST, f"the time {asked.timestamp} is not known")
    found = await partition.offset_at(asked.timestamp)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=number)
    return ListOffsetsPartitionResponse(partition_index=number, offset=found.offset, timestamp=found.unix_ms)
