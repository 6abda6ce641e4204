"""Bytes that no client sends, against the real connection: an answer or a clean end, and nobody else notices.

Before and after the login, frames are random, or valid ones that are cut, changed or repeated. The broker is
the same for all examples of a test, with one well-behaved client that must be served after each of them; the
budgets must be back at zero at the end.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loghub.kafka.broker.limits import BrokerLimits
from loghub.kafka.wire import groups, metadata, offsets, sasl
from loghub.kafka.wire.apis import APIS, ApiKey
from loghub.kafka.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from loghub.kafka.wire.frames import RequestHeader, encode_request
from tests.loghub.kafka.broker.broker_place import (
    TOPIC,
    Client,
    Place,
    a_broker,
    produce_request,
    values_of,
)

EXAMPLES = 150
LIMITS = BrokerLimits(
    refusal_delay_s=0.0, frame_s=0.2, login_s=5, fetch_wait_s=0.01, frame_bytes=1 << 20, memory_wait_s=0.2
)
_BODIES = {
    ApiKey.API_VERSIONS: metadata.ApiVersionsRequest(),
    ApiKey.SASL_HANDSHAKE: sasl.SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: sasl.SaslAuthenticateRequest(auth_bytes=b"\0demo\0a#b"),
    ApiKey.METADATA: metadata.MetadataRequest(topics=(metadata.MetadataRequestTopic(name=TOPIC),)),
    ApiKey.PRODUCE: produce_request("a", "b", "c"),
    ApiKey.FETCH: FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=(
            FetchTopic(
                topic=TOPIC,
                partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),),
            ),
        ),
    ),
    ApiKey.JOIN_GROUP: groups.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b"m"),),
    ),
    ApiKey.OFFSET_FETCH: offsets.OffsetFetchRequest(group_id="g", topics=None),
}
VALID = [
    encode_request(
        RequestHeader(api_key=api, api_version=APIS[api].max_version, correlation_id=7, client_id="x"), body
    )
    for api, body in _BODIES.items()
]


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A valid frame with some bytes changed, cut or added, whose length is right or was changed, too."""
    frame = bytearray(draw(st.sampled_from(VALID)))
    first = draw(st.sampled_from((0, 4)))
    for _ in range(draw(st.integers(0, 4))):
        frame[draw(st.integers(first, len(frame) - 1))] = draw(st.integers(0, 255))
    content = bytes(frame[4:])
    match draw(st.integers(0, 3)):
        case 0:
            return framed(content[: draw(st.integers(0, len(content)))])
        case 1:
            return framed(content + draw(st.binary(max_size=20)))
        case _:
            return bytes(frame)


HEADER = st.builds(
    lambda api, version, rest: framed(api.to_bytes(2, "big") + version.to_bytes(2, "big") + rest),
    st.integers(0, 80),
    st.integers(0, 20),
    st.binary(max_size=60),
)
BYTES = st.one_of(st.binary(max_size=100), st.binary(max_size=100).map(framed), HEADER, changed())
STREAMS = st.lists(BYTES, min_size=1, max_size=5).map(b"".join)


class Running:
    """A broker on an event loop that the examples of a test share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, place: Place, good: Client) -> None:
        self.loop = loop
        self.place = place
        self.good = good

    def send(self, stream: bytes, *, logged_in: bool) -> None:
        self.loop.run_until_complete(asyncio.wait_for(self._send(stream, logged_in), 60))

    async def _send(self, stream: bytes, logged_in: bool) -> None:
        client = await (self.place.client() if logged_in else self.place.connect())
        client.writer.write(stream)
        client.writer.write_eof()
        # Answers or not, the connection ends: the client has said that nothing follows.
        async with asyncio.timeout(30):
            try:
                while await client._reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        client.close()
        self.place.clients.remove(client)
        assert (await self.good.produce("still here")).error_code == 0
        assert values_of(await self.good.fetch(0))[0] is not None


@contextmanager
def running(data: Path) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    broker = a_broker(data, limits=LIMITS)
    place = loop.run_until_complete(broker.__aenter__())
    try:
        good = loop.run_until_complete(place.client())
        yield Running(loop, place, good)
    finally:
        loop.run_until_complete(broker.__aexit__(None, None, None))  # which checks the budgets
        loop.close()


@pytest.mark.long
@pytest.mark.parametrize("logged_in", [False, True])
def test_any_bytes_are_answered_or_end_their_connection_only(tmp_path: Path, logged_in: bool) -> None:
    with running(tmp_path / "d") as broker:

        @settings(
            max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(stream=STREAMS)
        @example(stream=b"")
        @example(stream=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        @example(stream=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        @example(stream=b"".join(VALID))
        @example(stream=b"".join(VALID * 5)[:-3])
        def search(stream: bytes) -> None:
            broker.send(stream, logged_in=logged_in)

        search()
