"""The commands of consumers and readers: subscribing, permits, messages, acknowledgements and positions.

https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#consumer, PIP-54 (acknowledgement of parts of
a batch), PIP-34 (Key_Shared).
"""

from enum import IntEnum
from typing import Annotated

from msgspec import Struct

from loghub_service.pulsar.wire.codec import UNSAID, Bool, Double, Int32, Int64, String, UInt32, UInt64
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.values import KeyLongValue, KeyValue, MessageIdData, Schema


class SubType(IntEnum):
    """How the consumers of a subscription share its messages."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a new subscription begins."""

    LATEST = 0
    EARLIEST = 1


class KeySharedMode(IntEnum):
    """Who says which keys a consumer gets: the broker, or the consumer."""

    AUTO_SPLIT = 0
    STICKY = 1


class AckType(IntEnum):
    """Whether an acknowledgement names messages, or means all up to one."""

    INDIVIDUAL = 0
    CUMULATIVE = 1


class IntRange(Struct, frozen=True, kw_only=True):
    """Slots of keys, both ends included."""

    start: Annotated[Int32, 1]
    end: Annotated[Int32, 2]


class KeySharedMeta(Struct, frozen=True, kw_only=True):
    """How the consumers of a subscription share keys; ``hash_ranges`` are given by a sticky consumer."""

    key_shared_mode: Annotated[KeySharedMode, 1]
    hash_ranges: Annotated[tuple[IntRange, ...], 3] = ()
    allow_out_of_order_delivery: Annotated[Bool, 4] = False


class CommandSubscribe(Struct, frozen=True, kw_only=True):
    """A new consumer. A reader has a subscription that is not durable, and says where it begins."""

    topic: Annotated[String, 1]
    subscription: Annotated[String, 2]
    sub_type: Annotated[SubType, 3]
    consumer_id: Annotated[UInt64, 4]
    request_id: Annotated[UInt64, 5]
    consumer_name: Annotated[String | None, 6] = None
    priority_level: Annotated[Int32, 7] = 0
    durable: Annotated[Bool, 8] = True
    start_message_id: Annotated[MessageIdData | None, 9] = None
    metadata: Annotated[tuple[KeyValue, ...], 10] = ()
    read_compacted: Annotated[Bool, 11] = False
    schema: Annotated[Schema | None, 12] = None
    initial_position: Annotated[InitialPosition, 13] = InitialPosition.LATEST
    replicate_subscription_state: Annotated[Bool, 14] = False
    force_topic_creation: Annotated[Bool, 15] = True
    start_message_rollback_duration_sec: Annotated[UInt64, 16] = 0
    key_shared_meta: Annotated[KeySharedMeta | None, 17] = None
    subscription_properties: Annotated[tuple[KeyValue, ...], 18] = ()
    consumer_epoch: Annotated[UInt64 | None, 19] = None


class CommandFlow(Struct, frozen=True, kw_only=True):
    """The consumer can take this many more messages."""

    consumer_id: Annotated[UInt64, 1]
    message_permits: Annotated[UInt32, 2]


class CommandMessage(Struct, frozen=True, kw_only=True):
    """An entry for a consumer; metadata and payload follow."""

    consumer_id: Annotated[UInt64, 1]
    message_id: Annotated[MessageIdData, 2]
    redelivery_count: Annotated[UInt32, 3, UNSAID] = 0
    ack_set: Annotated[tuple[Int64, ...], 4] = ()
    consumer_epoch: Annotated[UInt64 | None, 5] = None


class CommandAck(Struct, frozen=True, kw_only=True):
    """Acknowledges messages. The command is answered if it has a request id, and may have the id of a message
    more than once."""

    consumer_id: Annotated[UInt64, 1]
    ack_type: Annotated[AckType, 2]
    message_id: Annotated[tuple[MessageIdData, ...], 3] = ()
    validation_error: Annotated[Int32 | None, 4] = None
    properties: Annotated[tuple[KeyLongValue, ...], 5] = ()
    txnid_least_bits: Annotated[UInt64, 6] = 0
    txnid_most_bits: Annotated[UInt64, 7] = 0
    request_id: Annotated[UInt64 | None, 8] = None


class CommandAckResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandAck."""

    consumer_id: Annotated[UInt64, 1]
    txnid_least_bits: Annotated[UInt64, 2] = 0
    txnid_most_bits: Annotated[UInt64, 3] = 0
    error: Annotated[ServerError | None, 4] = None
    message: Annotated[String | None, 5] = None
    request_id: Annotated[UInt64, 6]


class CommandRedeliverUnacknowledgedMessages(Struct, frozen=True, kw_only=True):
    """Asks for these messages again, or for all that are out. With an epoch, each message that follows has to
    carry it."""

    consumer_id: Annotated[UInt64, 1]
    message_ids: Annotated[tuple[MessageIdData, ...], 2] = ()
    consumer_epoch: Annotated[UInt64 | None, 3] = None


class CommandActiveConsumerChange(Struct, frozen=True, kw_only=True):
    """Whether the consumer is the one that gets the messages of its subscription."""

    consumer_id: Annotated[UInt64, 1]
    is_active: Annotated[Bool, 2] = False


class CommandReachedEndOfTopic(Struct, frozen=True, kw_only=True):
    """Nothing more will come."""

    consumer_id: Annotated[UInt64, 1]


class CommandUnsubscribe(Struct, frozen=True, kw_only=True):
    """Delete the subscription, with ``force`` also if others use it."""

    consumer_id: Annotated[UInt64, 1]
    request_id: Annotated[UInt64, 2]
    force: Annotated[Bool, 3] = False


class CommandSeek(Struct, frozen=True, kw_only=True):
    """Go to a message, or to the first one of a time in unix ms."""

    consumer_id: Annotated[UInt64, 1]
    request_id: Annotated[UInt64, 2]
    message_id: Annotated[MessageIdData | None, 3] = None
    message_publish_time: Annotated[UInt64 | None, 4] = None


class CommandCloseConsumer(Struct, frozen=True, kw_only=True):
    """A client says that it is done, or the broker says that the client has to subscribe again."""

    consumer_id: Annotated[UInt64, 1]
    request_id: Annotated[UInt64, 2]
    assigned_broker_service_url: Annotated[String | None, 3] = None
    assigned_broker_service_url_tls: Annotated[String | None, 4] = None


class CommandGetLastMessageId(Struct, frozen=True, kw_only=True):
    """Where does the topic end?"""

    consumer_id: Annotated[UInt64, 1]
    request_id: Annotated[UInt64, 2]


class CommandGetLastMessageIdResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandGetLastMessageId. Both ids have the form in which messages are sent to the
    consumer."""

    last_message_id: Annotated[MessageIdData, 1]
    request_id: Annotated[UInt64, 2]
    consumer_mark_delete_position: Annotated[MessageIdData | None, 3] = None


class CommandConsumerStats(Struct, frozen=True, kw_only=True):
    """How is the consumer doing?"""

    request_id: Annotated[UInt64, 1]
    consumer_id: Annotated[UInt64, 4]


class CommandConsumerStatsResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandConsumerStats. Rates are for a second."""

    request_id: Annotated[UInt64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[String | None, 3] = None
    msg_rate_out: Annotated[Double, 4] = 0.0
    msg_throughput_out: Annotated[Double, 5] = 0.0
    msg_rate_redeliver: Annotated[Double, 6] = 0.0
    consumer_name: Annotated[String, 7] = ""
    available_permits: Annotated[UInt64, 8] = 0
    unacked_messages: Annotated[UInt64, 9] = 0
    blocked_consumer_on_unacked_msgs: Annotated[Bool, 10] = False
    address: Annotated[String, 11] = ""
    connected_since: Annotated[String, 12] = ""
    type: Annotated[String, 13] = ""
    msg_rate_expired: Annotated[Double, 14] = 0.0
    msg_backlog: Annotated[UInt64, 15] = 0
    message_ack_rate: Annotated[Double, 16] = 0.0
