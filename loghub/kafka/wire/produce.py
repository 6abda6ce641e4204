"""Produce and InitProducerId: what producers write, and the ids of idempotent ones.

https://kafka.apache.org/protocol.html#The_Messages_Produce, KIP-98 (idempotent producers).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Int16, Int32, Int64, NullableString, Records, String, since


class PartitionProduceData(Struct, frozen=True, kw_only=True):
    """Exactly one record batch in versions 3 and later; not yet checked."""

    index: Int32
    records: Records


class TopicProduceData(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partition_data: tuple[PartitionProduceData, ...]


class ProduceRequest(Struct, frozen=True, kw_only=True):
    """``acks`` is 0 (no answer is sent), 1, or -1 for all in-sync replicas."""

    transactional_id: NullableString = None
    acks: Int16
    timeout_ms: Int32
    topic_data: tuple[TopicProduceData, ...]


class PartitionProduceResponse(Struct, frozen=True, kw_only=True):
    """``log_append_time_ms`` is -1 where records keep the producer's time."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1


class TopicProduceResponse(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True, kw_only=True):
    """Unlike elsewhere, the throttle time is the last field."""

    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: Int32 = 0


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    """A transactional id is a request for transactions; null means idempotence only."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32


class InitProducerIdResponse(Struct, frozen=True, kw_only=True):
    """The id and epoch that the producer writes into its batches."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
