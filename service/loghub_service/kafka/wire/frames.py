"""Requests and responses as frames, the broker's half: a length of four bytes, a header, and a message.

A frame is passed in without its length, and comes out with it, ready to be sent. Headers have the form of the
versions without flexible encoding (https://kafka.apache.org/protocol.html#protocol_messages). All pure: a
socket belongs to the caller.
"""

import struct

from msgspec import Struct

from loghub_service.kafka.wire.apis import APIS, ApiKey
from loghub_service.kafka.wire.codec import (
    MAX_REQUEST_ELEMENTS,
    Buffer,
    Int16,
    Int32,
    NullableString,
    Reader,
    coder_of,
)
from loghub_service.kafka.wire.errors import UnencodableValue, UnsupportedRequest
from loghub_service.kafka.wire.topics import ApiVersionsRequest

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
