"""The APIs: which requests there are, in which versions, and the classes of their messages.

The last versions are the versions of Kafka 2.3 (LeaveGroup 3, which removes static members, is of 2.4). They
are the last ones without flexible encoding, and every client that was tried falls back to them
(docs/kafka-protocol.md 2). `loghub_service.kafka.broker.handlers` says which function answers which API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from msgspec import Struct

from loghub_service.kafka.wire import groups, logs, topics
from loghub_service.kafka.wire.errors import ErrorCode


class ApiKey(IntEnum):
    """The number at the begin of a request, and so what the request is."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    OFFSET_DELETE = 47


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its versions, both ends included, and the classes of its two messages."""

    key: ApiKey
    min_version: int
    max_version: int
    request: type[Struct]
    response: type[Struct]

    def offers(self, version: int) -> bool:
        """Whether the version is offered."""
        return self.min_version <= version <= self.max_version


_TABLE = (
    Api(ApiKey.PRODUCE, 3, 7, logs.ProduceRequest, logs.ProduceResponse),
    Api(ApiKey.FETCH, 4, 11, logs.FetchRequest, logs.FetchResponse),
    Api(ApiKey.LIST_OFFSETS, 1, 5, logs.ListOffsetsRequest, logs.ListOffsetsResponse),
    Api(ApiKey.METADATA, 0, 8, topics.MetadataRequest, topics.MetadataResponse),
    Api(ApiKey.OFFSET_COMMIT, 2, 7, groups.OffsetCommitRequest, groups.OffsetCommitResponse),
    Api(ApiKey.OFFSET_FETCH, 1, 5, groups.OffsetFetchRequest, groups.OffsetFetchResponse),
    Api(ApiKey.FIND_COORDINATOR, 0, 2, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
    Api(ApiKey.JOIN_GROUP, 0, 5, groups.JoinGroupRequest, groups.JoinGroupResponse),
    Api(ApiKey.HEARTBEAT, 0, 3, groups.HeartbeatRequest, groups.HeartbeatResponse),
    Api(ApiKey.LEAVE_GROUP, 0, 3, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
    Api(ApiKey.SYNC_GROUP, 0, 3, groups.SyncGroupRequest, groups.SyncGroupResponse),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 4, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
    Api(ApiKey.LIST_GROUPS, 0, 2, groups.ListGroupsRequest, groups.ListGroupsResponse),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, topics.SaslHandshakeRequest, topics.SaslHandshakeResponse),
    Api(ApiKey.API_VERSIONS, 0, 2, topics.ApiVersionsRequest, topics.ApiVersionsResponse),
    Api(ApiKey.CREATE_TOPICS, 0, 3, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    Api(ApiKey.DELETE_TOPICS, 0, 3, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 1, logs.InitProducerIdRequest, logs.InitProducerIdResponse),
    Api(ApiKey.DESCRIBE_CONFIGS, 0, 2, topics.DescribeConfigsRequest, topics.DescribeConfigsResponse),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 1, topics.SaslAuthenticateRequest, topics.SaslAuthenticateResponse),
    Api(ApiKey.CREATE_PARTITIONS, 0, 1, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    Api(ApiKey.DELETE_GROUPS, 0, 1, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
    Api(ApiKey.OFFSET_DELETE, 0, 0, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse),
)

APIS: Mapping[int, Api] = {api.key: api for api in _TABLE}


def api_versions_response(requested_version: int) -> topics.ApiVersionsResponse:
    """The answer to ApiVersions: every API with its versions, also if the requested version is not offered.

    The error is then UNSUPPORTED_VERSION, and `frames.response_buffers` writes the format of version 0, from
    which a newer client learns what to fall back to (KIP-35).
    """
    offered = APIS[ApiKey.API_VERSIONS].offers(requested_version)
    return topics.ApiVersionsResponse(
        error_code=ErrorCode.NONE if offered else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=tuple(
            topics.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in _TABLE
        ),
    )
