"""Frames that are wrong raise one named error, and take no memory in proportion to what they claim."""

import contextlib
import struct
import tracemalloc
from random import Random

import pytest

from loghub_service.kafka.wire.apis import APIS, Api, ApiKey, api_versions_response
from loghub_service.kafka.wire.codec import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS
from loghub_service.kafka.wire.errors import ErrorCode, MalformedFrame, UnencodableValue, UnsupportedRequest
from loghub_service.kafka.wire.frames import RequestHeader, decode_request
from loghub_service.kafka.wire.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    decode_assignment,
)
from loghub_service.kafka.wire.logs import FetchRequest, FetchResponse
from loghub_service.kafka.wire.topics import (
    ApiVersionsRequest,
    MetadataRequest,
    PlainCredentials,
    decode_plain,
)
from tests.loghub_service.kafka.client_frames import decode_response, encode_request, encode_response
from tests.loghub_service.kafka.wire.messages import EXAMPLES, dice_of, every_version, ids, some_messages
from tests.suite.seed import of_run


def header_of(key: int, version: int) -> RequestHeader:
    return RequestHeader(api_key=key, api_version=version, correlation_id=7, client_id="c")


def damaged(frame: bytes, dice: Random) -> bytes:
    """A frame with some bytes changed, truncated, or followed by others."""
    changed = bytearray(frame)
    for _ in range(dice.randint(0, 4)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    end = dice.choice((len(changed), dice.randint(0, len(changed))))
    return bytes(changed[:end]) + dice.randbytes(dice.randint(0, 3))


@EXAMPLES
@pytest.mark.parametrize(("api", "version"), list(every_version()), ids=ids)
def test_a_damaged_frame_is_decoded_or_raises_its_error(api: Api, version: int, examples: int) -> None:
    header, dice = header_of(api.key, version), dice_of(api.request, version)
    for request in some_messages(api.request, version, examples):
        with contextlib.suppress(MalformedFrame):
            decode_request(damaged(encode_request(header, request)[4:], dice))
    for response in some_messages(api.response, version, examples):
        with contextlib.suppress(MalformedFrame):
            decode_response(header, damaged(encode_response(header, response)[4:], dice))


@EXAMPLES
def test_random_bytes_raise_the_error_or_are_a_request(examples: int) -> None:
    dice = Random(of_run())
    for _ in range(100 * examples):
        with contextlib.suppress(MalformedFrame):
            decode_request(dice.randbytes(dice.randrange(200)))


@EXAMPLES
@pytest.mark.parametrize(("api", "version"), list(every_version()), ids=ids)
def test_every_truncation_is_an_error(api: Api, version: int, examples: int) -> None:
    dice = dice_of(api.request, version)
    for message in some_messages(api.request, version, examples):
        frame = encode_request(header_of(api.key, version), message)[4:]
        with pytest.raises(MalformedFrame):
            decode_request(frame[: dice.randrange(len(frame))])
        with pytest.raises(MalformedFrame, match="follow the message"):
            decode_request(frame + b"\0")


@pytest.mark.parametrize("count", [2**31 - 1, 10**6, -2, -(2**31)])
def test_a_claimed_length_takes_no_memory(count: int) -> None:
    """An array and a string whose length is not in the frame."""
    prefix = encode_request(header_of(ApiKey.FETCH, 4), FetchRequest(max_wait_ms=1, min_bytes=1, topics=()))[
        4:-4
    ]
    heartbeat = encode_request(
        header_of(ApiKey.HEARTBEAT, 0), HeartbeatRequest(group_id="", generation_id=1, member_id="")
    )[4:-2]
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame, match="an array of"):
            decode_request(prefix + struct.pack(">i", count) + bytes(1000))
        with pytest.raises(MalformedFrame):
            decode_request(heartbeat + struct.pack(">h", max(-3, min(count, 0x7FFF))) + bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_elements_of_a_frame_are_bounded() -> None:
    header = header_of(ApiKey.METADATA, 1)
    prefix = encode_request(header, MetadataRequest(topics=()))[4:-4]
    maximum = prefix + struct.pack(">i", MAX_REQUEST_ELEMENTS) + bytes(2 * MAX_REQUEST_ELEMENTS)
    assert decode_request(maximum)[0] == header
    more = prefix + struct.pack(">i", MAX_REQUEST_ELEMENTS + 1) + bytes(2 * (MAX_REQUEST_ELEMENTS + 1))
    with pytest.raises(MalformedFrame, match=f"more than {MAX_REQUEST_ELEMENTS} array elements"):
        decode_request(more)
    # A broker's answer may have more, and what a client believes is bounded as well.
    brokers = struct.pack(">ii", header.correlation_id, MAX_ELEMENTS + 1) + bytes(13 * (MAX_ELEMENTS + 1))
    with pytest.raises(MalformedFrame, match=f"more than {MAX_ELEMENTS} array elements"):
        decode_response(header, brokers)


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 8), (23, 0), (999, 0), (-1, 0), (4, 1)]
)
def test_an_api_that_is_not_offered_is_named(key: int, version: int) -> None:
    frame = struct.pack(">hhih", key, version, 7, -1) + bytes(50)
    with pytest.raises(UnsupportedRequest) as caught:
        decode_request(frame)
    assert (caught.value.api_key, caught.value.api_version) == (key, version)
    with pytest.raises(UnsupportedRequest):
        encode_request(header_of(key, version), ApiVersionsRequest())
    with pytest.raises(UnsupportedRequest):
        decode_response(header_of(key, version), bytes(4))


@pytest.mark.parametrize("version", [3, 4, 5, 99, -1])
def test_a_newer_api_versions_is_answered_in_version_0(version: int) -> None:
    """Its body is of a format that is not known, so it is not read; the client falls back (KIP-35)."""
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1) + b"\x00\x05java\x01\xff"
    header, body = decode_request(frame)
    assert (header.api_version, header.correlation_id, body) == (version, 7, ApiVersionsRequest())
    answer = encode_response(header, api_versions_response(version))
    found = decode_response(header_of(ApiKey.API_VERSIONS, 0), answer[4:])
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
    ranges = {
        (each.api_key, each.min_version, each.max_version)
        for each in found.api_keys  # type: ignore[attr-defined]
    }
    assert ranges == {(api.key, api.min_version, api.max_version) for api in APIS.values()}
    assert api_versions_response(2).error_code == ErrorCode.NONE


def test_an_answer_to_another_request_is_refused() -> None:
    header = header_of(ApiKey.HEARTBEAT, 1)
    answer = encode_response(header, HeartbeatResponse())[4:]
    with pytest.raises(MalformedFrame, match="answer to request 7"):
        decode_response(RequestHeader(api_key=ApiKey.HEARTBEAT, api_version=1, correlation_id=8), answer)


@pytest.mark.parametrize(
    "body",
    [
        JoinGroupResponse(member_id="x" * 40_000),
        JoinGroupResponse(member_id="m", generation_id=2**31),
        JoinGroupResponse(member_id=None),  # type: ignore[arg-type]
        JoinGroupResponse(member_id="m", members=None),  # type: ignore[arg-type]
        JoinGroupResponse(member_id="m", members=(HeartbeatResponse(),)),  # type: ignore[arg-type]
        FetchResponse(responses=()),
    ],
)
def test_what_a_message_cannot_carry_is_not_encoded(body: JoinGroupResponse | FetchResponse) -> None:
    with pytest.raises(UnencodableValue):
        encode_response(header_of(ApiKey.JOIN_GROUP, 5), body)


def test_null_is_refused_in_versions_that_have_no_null() -> None:
    assert decode_request(encode_request(header_of(ApiKey.METADATA, 1), MetadataRequest(topics=None))[4:])
    with pytest.raises(UnencodableValue, match="null"):
        encode_request(header_of(ApiKey.METADATA, 0), MetadataRequest(topics=None))


def test_plain_credentials() -> None:
    found = decode_plain(b"\0project\0id#secret")
    assert found == PlainCredentials(authorization_id="", user="project", password="id#secret")
    assert "secret" not in repr(found)
    for wrong in (b"", b"a\0b", b"a\0b\0c\0d", b"\0\xff\0secret"):
        with pytest.raises(MalformedFrame) as caught:
            decode_plain(wrong)
        assert "secret" not in str(caught.value)


@EXAMPLES
def test_bytes_of_members_raise_the_error_or_are_read(examples: int) -> None:
    dice = Random(of_run())
    for _ in range(100 * examples):
        content = bytes(
            dice.choices((0, 0, 0, 0, 1, 2, 3, 5, 255, dice.randrange(256)), k=dice.randrange(60))
        )
        with contextlib.suppress(MalformedFrame):
            decode_assignment(content)
