"""Requests and responses as frames, the broker's half: a length of four bytes, a header, and a message; and
the APIs, with their versions and the classes of their messages.

A frame is passed in without its length, and comes out with it, ready to be sent. Headers have the form of the
versions without flexible encoding (https://kafka.apache.org/protocol.html#protocol_messages). All pure: a
socket belongs to the caller.

The last versions are the versions of Kafka 2.3 (LeaveGroup 3, which removes static members, is of 2.4). They
are the last ones without flexible encoding, and every client that was tried falls back to them
(docs/kafka-protocol.md 2).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from msgspec import Struct

from loghub_service.kafka.wire import groups, logs, topics
from loghub_service.kafka.wire import groups as group_admin
from loghub_service.kafka.wire import groups as offsets
from loghub_service.kafka.wire import topics as metadata
from loghub_service.kafka.wire import topics as sasl
from loghub_service.kafka.wire.codec import (
    MAX_REQUEST_ELEMENTS,
    Buffer,
    Int16,
    Int32,
    NullableString,
    Reader,
    coder_of,
)
from loghub_service.kafka.wire.errors import ErrorCode, UnencodableValue, UnsupportedRequest
from loghub_service.kafka.wire.topics import ApiVersionsRequest


class ApiKey(IntEnum):
    """The number at the begin of a request."""

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
    Api(ApiKey.METADATA, 0, 8, metadata.MetadataRequest, metadata.MetadataResponse),
    Api(ApiKey.OFFSET_COMMIT, 2, 7, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse),
    Api(ApiKey.OFFSET_FETCH, 1, 5, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse),
    Api(ApiKey.FIND_COORDINATOR, 0, 2, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
    Api(ApiKey.JOIN_GROUP, 0, 5, groups.JoinGroupRequest, groups.JoinGroupResponse),
    Api(ApiKey.HEARTBEAT, 0, 3, groups.HeartbeatRequest, groups.HeartbeatResponse),
    Api(ApiKey.LEAVE_GROUP, 0, 3, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
    Api(ApiKey.SYNC_GROUP, 0, 3, groups.SyncGroupRequest, groups.SyncGroupResponse),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 4, group_admin.DescribeGroupsRequest, group_admin.DescribeGroupsResponse),
    Api(ApiKey.LIST_GROUPS, 0, 2, group_admin.ListGroupsRequest, group_admin.ListGroupsResponse),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse),
    Api(ApiKey.API_VERSIONS, 0, 2, metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    Api(ApiKey.CREATE_TOPICS, 0, 3, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    Api(ApiKey.DELETE_TOPICS, 0, 3, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 1, logs.InitProducerIdRequest, logs.InitProducerIdResponse),
    Api(ApiKey.DESCRIBE_CONFIGS, 0, 2, topics.DescribeConfigsRequest, topics.DescribeConfigsResponse),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 1, sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse),
    Api(ApiKey.CREATE_PARTITIONS, 0, 1, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    Api(ApiKey.DELETE_GROUPS, 0, 1, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse),
    Api(ApiKey.OFFSET_DELETE, 0, 0, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse),
)

APIS: Mapping[int, Api] = {api.key: api for api in _TABLE}


def api_versions_response(requested_version: int) -> metadata.ApiVersionsResponse:
    """The answer to ApiVersions: every API with its versions, also if the requested version is not offered.

    The error is then UNSUPPORTED_VERSION, and `frames.response_buffers` writes the format of version 0, from
    which a newer client learns what to fall back to (KIP-35).
    """
    offered = APIS[ApiKey.API_VERSIONS].offers(requested_version)
    return metadata.ApiVersionsResponse(
        error_code=ErrorCode.NONE if offered else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=tuple(
            metadata.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in _TABLE
        ),
    )


_LENGTH, _CORRELATION = struct.Struct(">i"), struct.Struct(">i")


class RequestHeader(Struct, frozen=True, kw_only=True):
    """The header of a request. The answer repeats ``correlation_id``."""

    api_key: Int16
    api_version: Int16
    correlation_id: Int32
    client_id: NullableString = None


def decode_request(frame: Buffer) -> tuple[RequestHeader, Struct]:
    """Header and body of a request, from a frame without its length.

    ApiVersions of a version that is not offered is decoded up to its header, and its body is empty: the
    caller answers with `apis.api_versions_response`. Raises UnsupportedRequest for every other API or
    version that is not offered, and MalformedFrame. Records are views of ``frame``, everything else is
    copied.
    """
    reader = Reader(frame, max_elements=MAX_REQUEST_ELEMENTS)
    header: RequestHeader = coder_of(RequestHeader, 0).decode(reader)
    api = APIS.get(header.api_key)
    if api is None or not api.offers(header.api_version):
        if header.api_key == ApiKey.API_VERSIONS:
            return header, ApiVersionsRequest()
        raise UnsupportedRequest(header.api_key, header.api_version)
    body: Struct = coder_of(api.request, header.api_version).decode(reader)
    reader.finish()
    return header, body


def response_buffers(header: RequestHeader, body: Struct) -> list[Buffer]:
    """The frame, with its length, that answers the request with ``header``: several buffers for a socket, so
    that record batches are not copied. Raises UnencodableValue.

    An answer to ApiVersions in a version that is not offered is written as version 0.
    """
    api = APIS[header.api_key]
    version = header.api_version
    if api.key is ApiKey.API_VERSIONS and not api.offers(version):
        version = 0
    _expect(body, api.response)
    return _framed(_CORRELATION.pack(header.correlation_id), body, version)


def _expect(body: Struct, expected: type[Struct]) -> None:
    if type(body) is not expected:
        raise UnencodableValue(f"{type(body).__name__} where the API has {expected.__name__}")


def _framed(header: bytes, body: Struct, version: int) -> list[Buffer]:
    buffers: list[Buffer] = [b"", header]
    coder_of(type(body), version).encode(body, buffers)
    size = sum(map(len, buffers))
    if size > 0x7FFF_FFFF:
        raise UnencodableValue(f"a frame of {size} bytes")
    buffers[0] = _LENGTH.pack(size)
    return buffers
