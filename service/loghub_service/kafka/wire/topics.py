"""CreateTopics, DeleteTopics, CreatePartitions and DescribeConfigs: topics as an administrator sees them;
Metadata and ApiVersions; SaslHandshake and SaslAuthenticate with the mechanism PLAIN.

https://kafka.apache.org/protocol.html#protocol_messages, KIP-4 (administration), KIP-195 (CreatePartitions),
KIP-226 (configuration with synonyms), KIP-35 (ApiVersions), KIP-430 (operations), KIP-152 (SaslAuthenticate).
After a handshake of version 0 the bytes of the mechanism follow in frames without a header; after version 1
they are in SaslAuthenticate.
"""

from typing import Annotated

from msgspec import Struct

from loghub_service.kafka.wire.codec import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    NullSince,
    String,
    since,
    until,
)
from loghub_service.kafka.wire.errors import MalformedFrame

# The operations are a bit field; this value means that they were not requested.
NO_OPERATIONS = -0x8000_0000


class MetadataRequestTopic(Struct, frozen=True, kw_only=True):
    """One topic by its name."""

    name: String


class MetadataRequest(Struct, frozen=True, kw_only=True):
    """``topics`` None requests all topics; in version 0, and only there, an empty list does, too."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullSince(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Struct, frozen=True, kw_only=True):
    """The address of a broker for clients."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, since(1)] = None


class MetadataResponsePartition(Struct, frozen=True, kw_only=True):
    """``leader_id`` is the broker for reads and writes, or -1."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(5)] = ()


class MetadataResponseTopic(Struct, frozen=True, kw_only=True):
    """A topic with its partitions, or with the error why there are none."""

    error_code: Int16 = 0
    name: String
    is_internal: Annotated[Bool, since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, since(8)] = NO_OPERATIONS


class MetadataResponse(Struct, frozen=True, kw_only=True):
    """Brokers and topics."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: Annotated[NullableString, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: Annotated[Int32, since(8)] = NO_OPERATIONS


class ApiVersionsRequest(Struct, frozen=True, kw_only=True):
    """A request without fields in the offered versions."""


class ApiVersion(Struct, frozen=True, kw_only=True):
    """An API and its versions, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(Struct, frozen=True, kw_only=True):
    """The answer to a version that is not offered is error 35 and the list, in the format of version 0."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[Int32, since(1)] = 0


class SaslHandshakeRequest(Struct, frozen=True, kw_only=True):
    """The mechanism that the client chooses."""

    mechanism: String


class SaslHandshakeResponse(Struct, frozen=True, kw_only=True):
    """The mechanisms that the broker offers."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...]


class SaslAuthenticateRequest(Struct, frozen=True, kw_only=True):
    """One message of the mechanism."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Struct, frozen=True, kw_only=True):
    """A session lifetime of 0 requires no further login."""

    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


class PlainCredentials(Struct, frozen=True, kw_only=True):
    """The one message of the mechanism PLAIN (RFC 4616)."""

    authorization_id: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password, which would end up in a log."""
        return f"PlainCredentials(user={self.user!r})"


def decode_plain(auth_bytes: bytes) -> PlainCredentials:
    """The credentials in a message of PLAIN: two zero bytes between three texts. Raises MalformedFrame."""
    parts = auth_bytes.split(b"\0")
    if len(parts) != 3:
        raise MalformedFrame("a message of PLAIN has not exactly two zero bytes")
    try:
        authorization_id, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError as error:
        # The message of the cause is left out, because it shows the bytes.
        raise MalformedFrame(f"a message of PLAIN is not UTF-8 at byte {error.start} of a part") from None
    return PlainCredentials(authorization_id=authorization_id, user=user, password=password)


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
    """The result for one topic."""

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
    """The result for one topic."""

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
    """The result for one topic."""

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
    """The value of a setting at another place."""

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
