"""The client's half of the frames that `loghub_service.kafka.wire.frames` reads and writes for the broker."""

import struct

from msgspec import Struct

from loghub_service.kafka.wire.apis import APIS, Api
from loghub_service.kafka.wire.codec import Buffer, Reader, coder_of
from loghub_service.kafka.wire.errors import MalformedFrame, UnencodableValue, UnsupportedRequest
from loghub_service.kafka.wire.frames import RequestHeader, response_buffers

_NUMBER = struct.Struct(">i")


def encode_response(header: RequestHeader, body: Struct) -> bytes:
    """The broker's answer in one piece."""
    return b"".join(response_buffers(header, body))


def encode_request(header: RequestHeader, body: Struct) -> bytes:
    """The frame, with its length, of a request. Raises UnencodableValue, and UnsupportedRequest."""
    api = _offered(header)
    if type(body) is not api.request:
        raise UnencodableValue(f"{type(body).__name__} where the API has {api.request.__name__}")
    parts: list[Buffer] = []
    coder_of(RequestHeader, 0).encode(header, parts)
    coder_of(api.request, header.api_version).encode(body, parts)
    frame = b"".join(parts)
    return _NUMBER.pack(len(frame)) + frame


def decode_response(header: RequestHeader, frame: Buffer) -> Struct:
    """The body of the answer to the request with ``header``, from a frame without its length.

    Raises MalformedFrame, also if the frame answers another request, and UnsupportedRequest.
    """
    api = _offered(header)
    reader = Reader(frame)
    (correlation_id,) = _NUMBER.unpack_from(reader.view, reader.take(_NUMBER.size))
    if correlation_id != header.correlation_id:
        raise MalformedFrame(f"an answer to request {correlation_id}, not to {header.correlation_id}")
    body: Struct = coder_of(api.response, header.api_version).decode(reader)
    reader.finish()
    return body


def _offered(header: RequestHeader) -> Api:
    api = APIS.get(header.api_key)
    if api is None or not api.offers(header.api_version):
        raise UnsupportedRequest(header.api_key, header.api_version)
    return api
