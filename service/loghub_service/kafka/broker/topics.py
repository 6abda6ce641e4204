"""Metadata, CreateTopics, DeleteTopics, CreatePartitions and DescribeConfigs: logstores as topics.

One broker leads every partition. The requests that change something require the ``admin`` right, like the
HTTP API, and enforce the same limits. A topic is created and deleted by its logstore's name, without a
suffix. Replicas and their assignment mean nothing to one service, so a replication factor is accepted and an
assignment is not.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from loghub_service.connections.service_ports import Access
from loghub_service.kafka.broker.answer import Answer, check_names, once
from loghub_service.kafka.broker.call import NODE_ID, KafkaCall, NamedTopic, find_topic
from loghub_service.kafka.broker.store import NewTopic, StoreError, TopicSettings
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.topics import (
    BROKER_RESOURCE,
    DEFAULT_CONFIG,
    TOPIC_CONFIG,
    TOPIC_RESOURCE,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FORM_CONFIG = "loghub.form"
RETENTION_CONFIG = "retention.ms"
POLICY_CONFIG = "cleanup.policy"
TIME_CONFIG = "message.timestamp.type"
_FOR_EVER = -1  # the value of retention.ms
_BY_DEFAULT = -1  # in place of a number of partitions
_CLUSTER_PREFIX = "loghub-"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


async def metadata(call: KafkaCall, body: MetadataRequest) -> Answer:
    """Describe topics. A topic is not created because a client requests its metadata."""
    check_names(call.broker.limits, body.topics or ())
    wants_all = body.topics is None or (call.version == 0 and not body.topics)
    if wants_all:
        topics = [_described_topic(find_topic(call.login, topic.name)) for topic in call.login.topics()]
    else:
        topics = [_requested(call, name) for name in once(topic.name for topic in body.topics or ())]
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


def _requested(call: KafkaCall, name: str) -> MetadataResponseTopic:
    try:
        return _described_topic(find_topic(call.login, name))
    except StoreError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)


def _described_topic(named: NamedTopic) -> MetadataResponseTopic:
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


async def create_topics(call: KafkaCall, body: CreateTopicsRequest) -> Answer:
    check_names(call.broker.limits, body.topics)
    twice = _repeated(body.topics)
    results = []
    for topic in body.topics:
        try:
            _check_admin(call)
            if topic.name in twice:
                raise StoreError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            await call.login.create_topic(_new_topic(topic), check_only=body.validate_only)
            results.append(CreatableTopicResult(name=topic.name))
        except StoreError as error:
            call.count_error(error.code)
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            results.append(result)
    return call.answer(CreateTopicsResponse(topics=tuple(results)))


def _repeated(topics: Sequence[_Named]) -> set[str]:
    seen: set[str] = set()
    return {topic.name for topic in topics if topic.name in seen or seen.add(topic.name)}  # type: ignore[func-returns-value]


def _check_admin(call: KafkaCall) -> None:
    if not call.login.may(Access.ADMIN):
        raise StoreError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"access key {call.login.key_id!r} does not have the right {Access.ADMIN.value!r}",
        )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    if topic.assignments:
        raise StoreError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicas cannot be assigned: there is one broker"
        )
    if topic.num_partitions < 1 and topic.num_partitions != _BY_DEFAULT:
        raise StoreError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
    configs = {config.name: config.value for config in topic.configs}
    _reject_different(configs)
    form = _form(configs[FORM_CONFIG]) if FORM_CONFIG in configs else None
    retention_ms = _retention_ms(configs[RETENTION_CONFIG]) if RETENTION_CONFIG in configs else None
    if _policies(configs.get(POLICY_CONFIG)) == {"compact"}:
        # Nothing is compacted, so the last record of each key is among the stored records.
        retention_ms = _FOR_EVER
    return NewTopic(
        name=topic.name,
        partitions=None if topic.num_partitions == _BY_DEFAULT else topic.num_partitions,
        retention_ms=retention_ms,
        form=form,
    )


def _policies(value: str | None) -> set[str]:
    """The policies of ``cleanup.policy``, as Kafka reads it."""
    policies = {one.strip() for one in (value or "delete").split(",")}
    if not policies <= {"delete", "compact"}:
        raise StoreError(ErrorCode.INVALID_CONFIG, f"{POLICY_CONFIG} is delete, compact or both")
    return policies


def _reject_different(configs: Mapping[str, str | None]) -> None:
    """Refuse settings that would give other records than requested. Settings of Kafka that mean nothing here
    are accepted, since tools set them by themselves."""
    if configs.get(TIME_CONFIG) not in (None, "CreateTime"):
        raise StoreError(
            ErrorCode.INVALID_CONFIG, f"{TIME_CONFIG} is CreateTime: a record keeps the time of its producer"
        )


def _form(value: str | None) -> RecordForm:
    try:
        return RecordForm(value or "")
    except ValueError:
        forms = ", ".join(form.value for form in RecordForm)
        raise StoreError(ErrorCode.INVALID_CONFIG, f"{FORM_CONFIG} is one of {forms}") from None


def _retention_ms(value: str | None) -> int:
    text = value or ""
    if text == "-1":
        return _FOR_EVER
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise StoreError(ErrorCode.INVALID_CONFIG, f"{RETENTION_CONFIG} is a number of milliseconds, or -1")
    return int(text)


async def delete_topics(call: KafkaCall, body: DeleteTopicsRequest) -> Answer:
    check_names(call.broker.limits, body.topic_names)
    results = []
    for name in body.topic_names:
        code = ErrorCode.NONE
        try:
            _check_admin(call)
            await call.login.delete_topic(name)
        except StoreError as error:
            code = error.code
        call.count_error(code)
        results.append(DeletableTopicResult(name=name, error_code=code))
    return call.answer(DeleteTopicsResponse(responses=tuple(results)))


async def create_partitions(call: KafkaCall, body: CreatePartitionsRequest) -> Answer:
    check_names(call.broker.limits, body.topics)
    results = [await _add_partitions(call, topic, body.validate_only) for topic in body.topics]
    return call.answer(CreatePartitionsResponse(results=tuple(results)))


async def _add_partitions(
    call: KafkaCall, topic: CreatePartitionsTopic, check_only: bool
) -> CreatePartitionsTopicResult:
    try:
        _check_admin(call)
        if topic.assignments:
            raise StoreError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicas cannot be assigned: there is one broker"
            )
        await call.login.add_partitions(topic.name, topic.count, check_only=check_only)
    except StoreError as error:
        call.count_error(error.code)
        return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
    return CreatePartitionsTopicResult(name=topic.name)


async def describe_configs(call: KafkaCall, body: DescribeConfigsRequest) -> Answer:
    check_names(call.broker.limits, body.resources)
    return call.answer(
        DescribeConfigsResponse(results=tuple(_described(call, resource) for resource in body.resources))
    )


def _described(call: KafkaCall, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        configs = _configs(call, kind, name)
    except StoreError as error:
        call.count_error(error.code)
        return DescribeConfigsResult(
            error_code=error.code, error_message=str(error), resource_type=kind, resource_name=name
        )
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        resource_type=kind,
        resource_name=name,
        configs=tuple(one for one in configs if wanted is None or one.name in wanted),
    )


def _configs(call: KafkaCall, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
    if kind == BROKER_RESOURCE and name == str(NODE_ID):
        return [_config("auto.create.topics.enable", "false", DEFAULT_CONFIG)]
    if kind != TOPIC_RESOURCE:
        raise StoreError(ErrorCode.INVALID_REQUEST, "only topics and the broker have settings")
    return _topic_configs(find_topic(call.login, name).topic.settings, call)


def _topic_configs(settings: TopicSettings, call: KafkaCall) -> list[DescribeConfigsResourceResult]:
    # Kafka's own tools refuse a topic that says "delete" if they need a compacted one.
    policy = "compact" if settings.retention_ms == _FOR_EVER else "delete"
    return [
        _config(POLICY_CONFIG, policy, TOPIC_CONFIG if policy == "compact" else DEFAULT_CONFIG),
        _config("compression.type", "uncompressed", DEFAULT_CONFIG),
        _config("max.message.bytes", str(call.broker.limits.group_bytes), DEFAULT_CONFIG),
        _config(TIME_CONFIG, "CreateTime", DEFAULT_CONFIG),
        _config(RETENTION_CONFIG, str(settings.retention_ms), TOPIC_CONFIG),
        _config(FORM_CONFIG, settings.form.value, TOPIC_CONFIG),
    ]


def _config(name: str, value: str, source: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        is_default=source == DEFAULT_CONFIG,
        config_source=source,
    )
