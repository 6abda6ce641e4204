"""Which commands there are, and the classes of their messages.

In a BaseCommand the number of a command is also the number of the field that has its message, so one table
says both. https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/
"""

from collections.abc import Mapping

from msgspec import Struct

from loghub_service.pulsar.wire import consumers, producers, session, topics

NUMBERED: Mapping[int, type[Struct]] = {
    2: session.CommandConnect,
    3: session.CommandConnected,
    4: consumers.CommandSubscribe,
    5: producers.CommandProducer,
    6: producers.CommandSend,
    7: producers.CommandSendReceipt,
    8: producers.CommandSendError,
    9: consumers.CommandMessage,
    10: consumers.CommandAck,
    11: consumers.CommandFlow,
    12: consumers.CommandUnsubscribe,
    13: session.CommandSuccess,
    14: session.CommandError,
    15: producers.CommandCloseProducer,
    16: consumers.CommandCloseConsumer,
    17: producers.CommandProducerSuccess,
    18: session.CommandPing,
    19: session.CommandPong,
    20: consumers.CommandRedeliverUnacknowledgedMessages,
    21: topics.CommandPartitionedTopicMetadata,
    22: topics.CommandPartitionedTopicMetadataResponse,
    23: topics.CommandLookupTopic,
    24: topics.CommandLookupTopicResponse,
    25: consumers.CommandConsumerStats,
    26: consumers.CommandConsumerStatsResponse,
    27: consumers.CommandReachedEndOfTopic,
    28: consumers.CommandSeek,
    29: consumers.CommandGetLastMessageId,
    30: consumers.CommandGetLastMessageIdResponse,
    31: consumers.CommandActiveConsumerChange,
    32: topics.CommandGetTopicsOfNamespace,
    33: topics.CommandGetTopicsOfNamespaceResponse,
    34: topics.CommandGetSchema,
    35: topics.CommandGetSchemaResponse,
    36: session.CommandAuthChallenge,
    37: session.CommandAuthResponse,
    38: consumers.CommandAckResponse,
    39: topics.CommandGetOrCreateSchema,
    40: topics.CommandGetOrCreateSchemaResponse,
    62: session.CommandTcClientConnectRequest,
    63: session.CommandTcClientConnectResponse,
    64: topics.CommandWatchTopicList,
    65: topics.CommandWatchTopicListSuccess,
    66: topics.CommandWatchTopicUpdate,
    67: topics.CommandWatchTopicListClose,
}
COMMANDS: Mapping[type[Struct], int] = {command: number for number, command in NUMBERED.items()}
