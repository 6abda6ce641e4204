"""Every message in every version, against two coders that share nothing with ours.

kafka-python derives its coders from descriptions of its own and has every version; aiokafka's are written
class by class and it has some.
"""

import io
from collections.abc import Mapping
from itertools import cycle, product
from typing import Any

import aiokafka.protocol.admin
import aiokafka.protocol.commit
import aiokafka.protocol.coordination
import aiokafka.protocol.fetch
import aiokafka.protocol.group
import aiokafka.protocol.metadata
import aiokafka.protocol.offset
import aiokafka.protocol.produce
import aiokafka.protocol.transaction
import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from msgspec import Struct
from msgspec.structs import replace

from loghub_service.kafka.wire.apis import Api
from loghub_service.kafka.wire.frames import RequestHeader, decode_request
from loghub_service.kafka.wire.topics import ApiVersionsResponse
from tests.loghub_service.kafka.client_frames import decode_response, encode_request, encode_response
from tests.loghub_service.kafka.wire.messages import (
    EXAMPLES,
    as_dict,
    every_version,
    flat,
    ids,
    some_messages,
)

KAFKA_PYTHON = [
    getattr(kafka.protocol, part) for part in ("admin", "consumer", "metadata", "producer", "sasl")
]
AIOKAFKA = [
    getattr(aiokafka.protocol, part)
    for part in (
        "admin",
        "commit",
        "coordination",
        "fetch",
        "group",
        "metadata",
        "offset",
        "produce",
        "transaction",
    )
]
# Names that only kafka-python has, which describes newer versions.
RENAMED = {
    "generation_id": "generation_id_or_member_epoch",
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}
VERSIONS = pytest.mark.parametrize(("api", "version"), list(every_version()), ids=ids)


def header_of(api: Api, version: int) -> RequestHeader:
    return RequestHeader(api_key=api.key, api_version=version, correlation_id=7, client_id="tests")


def encode(api: Api, version: int, message: Struct) -> bytes:
    """The message without frame and header."""
    header = header_of(api, version)
    if isinstance(message, api.request):
        return encode_request(header, message)[4 + 8 + 2 + len("tests") :]
    return encode_response(header, message)[4 + 4 :]


def decode(api: Api, version: int, kind: type[Struct], body: bytes) -> Struct:
    """The reverse of `encode`."""
    header = header_of(api, version)
    if kind is api.request:
        empty = RequestHeader(api_key=api.key, api_version=version, correlation_id=7)
        prefix = b"".join(
            number.to_bytes(size, "big", signed=True)
            for number, size in (
                (empty.api_key, 2),
                (empty.api_version, 2),
                (empty.correlation_id, 4),
                (-1, 2),
            )
        )
        found, decoded = decode_request(prefix + body)
        assert found == empty
        return decoded
    return decode_response(header, (7).to_bytes(4, "big") + body)


def kafka_python_class(kind: type[Struct]) -> Any:
    (found,) = {getattr(module, kind.__name__) for module in KAFKA_PYTHON if hasattr(module, kind.__name__)}
    return found


def as_kafka_python(value: Any, of: Any) -> Any:
    """Our plain value as nested objects of kafka-python."""
    fields = of._struct.fields
    converted = {}
    for ours, part in value.items():
        name = ours if ours in fields else RENAMED[ours]
        if isinstance(part, list) and fields[name].is_struct_array():
            part = [as_kafka_python(each, fields[name].data_class) for each in part]
        if name == "authorized_operations":
            # kafka-python has a set of the bits that are set.
            part = {bit for bit in range(32) if part >> bit & 1}
        converted[name] = part
    return of(**converted)


def from_kafka_python(value: Any, like: Any) -> Any:
    """The fields that ``like``, a value of ours, has."""
    if isinstance(like, Mapping):
        return {
            name: from_kafka_python(
                getattr(value, name if name in value._struct.fields else RENAMED[name]), part
            )
            for name, part in like.items()
        }
    if isinstance(like, int) and (value is None or isinstance(value, set)):
        bits = {31} if value is None else value
        return int.from_bytes(sum(1 << bit for bit in bits).to_bytes(4, "big"), "big", signed=True)
    if isinstance(like, list) and value is not None:
        # A list of another length compares unequal at the caller.
        patterns = like or [None] * len(value)
        return [from_kafka_python(each, part) for each, part in zip(value, patterns, strict=True)]
    return bytes(value) if isinstance(value, memoryview) else value


@EXAMPLES
@VERSIONS
@pytest.mark.parametrize("part", ["request", "response"])
def test_kafka_python_reads_and_writes_the_same_bytes(
    api: Api, version: int, part: str, examples: int
) -> None:
    kind: type[Struct] = getattr(api, part)
    theirs = kafka_python_class(kind)
    for message in some_messages(kind, version, examples):
        if isinstance(message, ApiVersionsResponse):
            # With an error kafka-python takes every answer for one of version 0.
            message = replace(message, error_code=0)
        plain = as_dict(message, version)
        body = encode(api, version, message)
        assert from_kafka_python(theirs.decode(body, version=version), plain) == plain
        assert bytes(as_kafka_python(plain, theirs).encode(version=version)) == body
        assert as_dict(decode(api, version, kind, body), version) == plain


def aiokafka_class(kind: type[Struct], version: int) -> Any:
    name = f"{kind.__name__}_v{version}"
    return next((getattr(module, name) for module in AIOKAFKA if hasattr(module, name)), None)


AIOKAFKA_VERSIONS = [
    pytest.param(api, version, kind, id=f"{kind.__name__}-{version}")
    for api, version in every_version()
    for kind in (api.request, api.response)
    if aiokafka_class(kind, version) is not None
]


def test_aiokafka_has_versions_of_most_messages() -> None:
    """Otherwise a change of its names would empty the next test unnoticed."""
    assert len(AIOKAFKA_VERSIONS) > 80


@EXAMPLES
@pytest.mark.parametrize(("api", "version", "kind"), AIOKAFKA_VERSIONS)
def test_aiokafka_reads_and_writes_the_same_bytes(
    api: Api, version: int, kind: type[Struct], examples: int
) -> None:
    coder = aiokafka_class(kind, version)
    for message in some_messages(kind, version, examples):
        body = encode(api, version, message)
        theirs = coder.decode(io.BytesIO(body))
        found = tuple(getattr(theirs, name) for name in theirs.SCHEMA.names)
        assert flat(found) == flat(as_dict(message, version))
        assert theirs.encode() == body


@EXAMPLES
@VERSIONS
def test_a_request_comes_back_as_it_was(api: Api, version: int, examples: int) -> None:
    headers = (
        replace(header_of(api, version), correlation_id=number, client_id=client)
        for number, client in cycle(product((-(2**31), -1, 0, 2**31 - 1), (None, "", "caf\u00e9")))
    )
    requests, responses = (some_messages(kind, version, examples) for kind in (api.request, api.response))
    for header, request, response in zip(headers, requests, responses, strict=False):
        assert decode_request(encode_request(header, request)[4:]) == (header, request)
        assert decode_response(header, encode_response(header, response)[4:]) == response
