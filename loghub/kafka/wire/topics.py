"""CreateTopics, DeleteTopics, CreatePartitions and DescribeConfigs: topics as an administrator sees them.

https://kafka.apache.org/protocol.html#The_Messages_CreateTopics, KIP-4 (administration), KIP-195
(CreatePartitions), KIP-226 (configuration with synonyms).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Bool, Int8, Int16, Int32, NullableString, String, since, until


class CreatableReplicaAssignment(Struct, frozen=True, kw_only=True):
    """The brokers of one partition, if the client chooses them."""

    partition_index: Int32
    broker_ids: tuple[Int32, ...]


class CreatableTopicConfig(Struct, frozen=True, kw_only=True):
    """One setting of the topic."""

    name: String
    value: NullableString


class CreatableTopic(Struct, frozen=True, kw_only=True):
    """``num_partitions`` and ``replication_factor`` are -1 if ``assignments`` is given."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Struct, frozen=True, kw_only=True):
    """With ``validate_only`` the answer is the same and nothing is made."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, since(1)] = False


class CreatableTopicResult(Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    name: String
    error_code: Int16 = 0
    error_message: Annotated[NullableString, since(1)] = None


class CreateTopicsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each topic of the request."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[CreatableTopicResult, ...]


class DeleteTopicsRequest(Struct, frozen=True, kw_only=True):
    """Topics by their names."""

    topic_names: tuple[String, ...]
    timeout_ms: Int32


class DeletableTopicResult(Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    name: String
    error_code: Int16 = 0


class DeleteTopicsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each topic of the request."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    responses: tuple[DeletableTopicResult, ...]


class CreatePartitionsAssignment(Struct, frozen=True, kw_only=True):
    """The brokers of one new partition."""

    broker_ids: tuple[Int32, ...]


class CreatePartitionsTopic(Struct, frozen=True, kw_only=True):
    """``count`` is the new number of partitions, not the number to add."""

    name: String
    count: Int32
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(Struct, frozen=True, kw_only=True):
    """With ``validate_only`` the answer is the same and nothing is made."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    name: String
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each topic of the request."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...]


# The kinds of resources, and where a setting comes from, as far as they occur here.
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5


class DescribeConfigsResource(Struct, frozen=True, kw_only=True):
    """``configuration_keys`` None asks for every setting."""

    resource_type: Int8
    resource_name: String
    configuration_keys: tuple[String, ...] | None = None


class DescribeConfigsRequest(Struct, frozen=True, kw_only=True):
    """Settings of topics and brokers."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Annotated[Bool, since(1)] = False


class DescribeConfigsSynonym(Struct, frozen=True, kw_only=True):
    """The same setting at another place."""

    name: String
    value: NullableString
    source: Int8


class DescribeConfigsResourceResult(Struct, frozen=True, kw_only=True):
    """One setting. ``is_default`` is only in version 0; later versions have ``config_source``."""

    name: String
    value: NullableString
    read_only: Bool = False
    is_default: Annotated[Bool, until(0)] = False
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], since(1)] = ()


class DescribeConfigsResult(Struct, frozen=True, kw_only=True):
    """The settings of one resource."""

    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8
    resource_name: String
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Struct, frozen=True, kw_only=True):
    """One entry for each resource of the request."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...]
