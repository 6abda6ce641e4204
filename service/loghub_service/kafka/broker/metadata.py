"""Metadata and FindCoordinator: one broker leads every partition and coordinates every group."""

from loghub_service.kafka.broker.answer import Answer, check_names, once
from loghub_service.kafka.broker.call import NODE_ID, KafkaCall, NamedTopic, find_topic
from loghub_service.kafka.broker.store import StoreError
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.groups import GROUP_KEY, FindCoordinatorRequest, FindCoordinatorResponse
from loghub_service.kafka.wire.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_CLUSTER_PREFIX = "loghub-"


async def metadata(call: KafkaCall, body: MetadataRequest) -> Answer:
    """Describe topics. A topic is not created because a client requests its metadata."""
    check_names(call.broker.limits, body.topics or ())
    wants_all = body.topics is None or (call.version == 0 and not body.topics)
    if wants_all:
        topics = [_described(find_topic(call.login, topic.name)) for topic in call.login.topics()]
    else:
        topics = [_asked(call, name) for name in once(topic.name for topic in body.topics or ())]
    return call.answer(
        MetadataResponse(
            brokers=(
                MetadataResponseBroker(node_id=NODE_ID, host=call.address.host, port=call.address.port),
            ),
            cluster_id=_CLUSTER_PREFIX + call.login.project,
            controller_id=NODE_ID,
            topics=tuple(topics),
        )
    )


def _asked(call: KafkaCall, name: str) -> MetadataResponseTopic:
    try:
        return _described(find_topic(call.login, name))
    except StoreError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)


def _described(named: NamedTopic) -> MetadataResponseTopic:
    """A topic with every id up to the highest one that was ever given, so that the ids have no holes: some
    clients count partitions instead of reading their ids. The partition of a deleted shard is empty
    (docs/kafka.md 2)."""
    replicas = (NODE_ID,)
    return MetadataResponseTopic(
        name=named.name,
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=number, leader_id=NODE_ID, replica_nodes=replicas, isr_nodes=replicas
            )
            for number in range(named.topic.partitions)
        ),
    )


async def find_coordinator(call: KafkaCall, body: FindCoordinatorRequest) -> Answer:
    if body.key_type != GROUP_KEY:
        return call.answer(
            FindCoordinatorResponse(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                error_message="transactions are not offered",
            )
        )
    return call.answer(
        FindCoordinatorResponse(node_id=NODE_ID, host=call.address.host, port=call.address.port)
    )
