"""Which function answers which command after the login."""

from collections.abc import Mapping

from msgspec import Struct

from loghub_service.pulsar.broker import consumers, lookup, producers, schemas
from loghub_service.pulsar.broker.session import Handler
from loghub_service.pulsar.wire import consumers as wire
from loghub_service.pulsar.wire import topics
from loghub_service.pulsar.wire.producers import CommandCloseProducer, CommandProducer, CommandSend
from loghub_service.pulsar.wire.session import CommandTcClientConnectRequest

HANDLERS: Mapping[type[Struct], Handler] = {
    topics.CommandPartitionedTopicMetadata: lookup.partitions,
    topics.CommandLookupTopic: lookup.lookup,
    topics.CommandGetTopicsOfNamespace: lookup.topics_of_namespace,
    topics.CommandWatchTopicList: lookup.watch_topics,
    topics.CommandWatchTopicListClose: lookup.watch_no_more,
    topics.CommandGetSchema: schemas.get_schema,
    topics.CommandGetOrCreateSchema: schemas.get_or_create_schema,
    CommandProducer: producers.create_producer,
    CommandSend: producers.send,
    CommandCloseProducer: producers.close_producer,
    wire.CommandSubscribe: consumers.subscribe,
    wire.CommandFlow: consumers.flow,
    wire.CommandAck: consumers.acknowledge,
    wire.CommandRedeliverUnacknowledgedMessages: consumers.redeliver,
    wire.CommandCloseConsumer: consumers.close_consumer,
    wire.CommandUnsubscribe: consumers.unsubscribe,
    wire.CommandSeek: consumers.seek,
    wire.CommandGetLastMessageId: consumers.last_message_id,
    wire.CommandConsumerStats: consumers.consumer_stats,
    CommandTcClientConnectRequest: lookup.no_transactions,
}
