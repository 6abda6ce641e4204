"""Metadata and ApiVersions: which topics, partitions and brokers there are, and which APIs a broker has.

https://kafka.apache.org/protocol.html#The_Messages_Metadata, KIP-35 (ApiVersions), KIP-430 (operations).
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.fields import Bool, Int16, Int32, NullableString, NullSince, String, since

# The operations are a bit field; this value means that they were not asked about.
NO_OPERATIONS = -0x8000_0000


class MetadataRequestTopic(Struct, frozen=True, kw_only=True):
    """One topic by its name."""

    name: String


class MetadataRequest(Struct, frozen=True, kw_only=True):
    """``topics`` None asks for all topics; so does an empty list in version 0, and only there."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, NullSince(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Struct, frozen=True, kw_only=True):
    """An address that clients connect to."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, since(1)] = None


class MetadataResponsePartition(Struct, frozen=True, kw_only=True):
    """``leader_id`` is the broker that reads and writes go to, or -1."""

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
    """Without fields in the versions that are offered."""


class ApiVersion(Struct, frozen=True, kw_only=True):
    """An API and its versions, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(Struct, frozen=True, kw_only=True):
    """To a version that is not offered: error 35 and the list, in the format of version 0."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
