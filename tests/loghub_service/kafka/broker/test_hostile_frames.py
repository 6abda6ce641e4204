"""Requests that no client sends, against the real connection: each is answered, or ends its connection only.

What must come back is derived from the bytes: `Conversation` follows the login, and every request after it
has one answer, in order, up to the first one that ends the connection. Answers are read before the client
ends, so that handlers run to their end, and are counted for each API and version: a test that reaches none
fails. One well-behaved client is served after each example; the budgets are back at zero at the end.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from loghub_service.api.logstores import NewLogstore, create, delete
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.coordinator.group import KafkaGroupLimits as GroupLimits
from loghub_service.kafka.wire.apis import APIS, Api, ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.frames import RequestHeader
from loghub_service.kafka.wire.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
)
from tests.loghub_service.kafka.broker.broker_place import (
    PROJECT,
    TOPIC,
    Client,
    Closed,
    Place,
    a_broker,
    values_of,
)
from tests.loghub_service.kafka.broker.conversation import Answer, conversation
from tests.loghub_service.kafka.broker.likely_requests import TOKENS, Known, damaged, framed, requests
from tests.loghub_service.kafka.client_frames import decode_response
from tests.loghub_service.kafka.wire.messages import every_version, ids

REQUESTS = 30  # of each API, with every version in each example
LOGIN_EXAMPLES = 30
DAMAGED_EXAMPLES = 80
PARTITIONS = 2
ANSWER_GUARD_S = 120.0
QUIET = "quiet"  # the topic of the good client, which no other one names
LIMITS = BrokerLimits(
    refusal_delay_s=0.0, frame_s=5, login_s=60, fetch_wait_s=0.01, frame_bytes=1 << 20, memory_wait_s=0.2
)
# A member that does not join again, as none does here, holds its group up for a short time.
GROUP_LIMITS = GroupLimits(
    initial_rebalance_delay_ms=0,
    min_session_timeout_ms=50,
    max_session_timeout_ms=600_000,
    min_rebalance_timeout_ms=1,
    max_rebalance_timeout_ms=60,
)
SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
BEFORE_LOGIN = (*SASL, ApiKey.API_VERSIONS)
VERSIONS = list(every_version())


def codes_of(response: Any) -> list[int]:
    """Every error code in an answer."""
    if isinstance(response, tuple):
        return [code for one in response for code in codes_of(one)]
    if not isinstance(response, Struct):
        return []
    values = [(name, getattr(response, name)) for name in response.__struct_fields__]
    return [code for name, value in values for code in ([value] if name == "error_code" else codes_of(value))]


class Running:
    """A broker on an event loop that the examples of a test share, and what it has answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, place: Place, good: Client) -> None:
        self.loop = loop
        self.place = place
        self.good = good
        self.examples = 0
        self.answered: Counter[tuple[int, int]] = Counter()  # by API and version
        self.succeeded: Counter[int] = Counter()  # by API: those with a part that has no error
        self.ended = 0  # connections, by the broker

    def prepared(self) -> Known:
        return self.loop.run_until_complete(self._prepared())

    def send(self, stream: bytes, *, logged_in: bool, patient: bool = True) -> None:
        self.loop.run_until_complete(self._send(stream, logged_in, patient))

    async def _prepared(self) -> Known:
        """The topic with its two partitions, whatever earlier examples did to it, and two new groups."""
        self.examples += 1
        engine = self.place.engine
        store = engine.catalog.projects[PROJECT].logstores.get(TOPIC)
        if store is not None and store.saved.next_shard > PARTITIONS:
            await delete(engine, PROJECT, TOPIC)
            store = None
        if store is None:
            await _create(self.place, TOPIC)
        group, idle = f"g{self.examples}", f"idle{self.examples}"
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=600_000,  # longer than any example
            rebalance_timeout_ms=60,  # for this do requests wait that make others join again
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"m"),),
        )
        is_stable = False
        while not is_stable:  # a busy machine may be too late
            joined = await self.good.call(ApiKey.JOIN_GROUP, join, version=3)
            sync = SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
            )
            is_stable = codes_of(await self.good.call(ApiKey.SYNC_GROUP, sync)) == [0]
        position = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=(position,))
        commit = OffsetCommitRequest(group_id=idle, topics=(topic,))
        assert codes_of(await self.good.call(ApiKey.OFFSET_COMMIT, commit)) == [0]
        return Known(group, joined.member_id, idle)

    async def _send(self, stream: bytes, logged_in: bool, patient: bool) -> None:
        """A patient client reads its answers before it sends what no answer belongs to, and ends."""
        expected, end = conversation(stream, logged_in=logged_in)
        client = await (self.place.client() if logged_in else self.place.connect())
        client.writer.write(stream[:end] if patient else stream)
        if not patient:
            client.writer.write_eof()
        try:
            async with asyncio.timeout(ANSWER_GUARD_S):
                await self._read(client, expected.answers, patient)
                if patient and not expected.ends:
                    client.writer.write(stream[end:])
                    client.writer.write_eof()
                assert await client.is_closed(), "more came back than there were requests"
        finally:
            client.close()
            self.place.clients.remove(client)
        self.ended += expected.ends
        assert self.place.endpoint.broker.counts.failed_requests == 0
        await self._serve_the_good_client()

    async def _read(self, client: Client, expected: Iterable[Answer], patient: bool) -> None:
        for one in expected:
            try:
                frame = await client.frame()
            except Closed:
                assert not patient, f"the connection ended before the answer to {one}"
                return
            self._check(one, frame)

    def _check(self, expected: Answer, frame: bytes) -> None:
        header = expected.header
        if header is None:
            assert frame == b""
            return
        key = header.api_key
        if expected.code is ErrorCode.UNSUPPORTED_VERSION:  # in the format of version 0 (KIP-35)
            header = RequestHeader(api_key=key, api_version=0, correlation_id=header.correlation_id)
        response = decode_response(header, frame)
        codes = codes_of(response)
        if expected.code is not None:
            assert codes == [expected.code]
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, response
        assert set(codes) <= set(ErrorCode), response
        self.answered[key, header.api_version] += 1
        self.succeeded[key] += ErrorCode.NONE in codes

    async def _serve_the_good_client(self) -> None:
        value = f"after example {self.examples}"
        stored = await self.good.produce(value, topic=QUIET)
        assert stored.error_code == 0
        assert values_of(await self.good.fetch(stored.base_offset, topic=QUIET)) == [value.encode()]


@contextmanager
def running(data: Path) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    broker = a_broker(data, limits=LIMITS, group_limits=GROUP_LIMITS)
    place = loop.run_until_complete(broker.__aenter__())
    try:
        loop.run_until_complete(_create(place, QUIET))
        yield Running(loop, place, loop.run_until_complete(place.client()))
    finally:
        loop.run_until_complete(broker.__aexit__(None, None, None))  # which checks the budgets
        loop.close()


async def _create(place: Place, name: str) -> None:
    new = NewLogstore(name=name, shards=PARTITIONS, ttl_days=2, options='{"kafkaForm":"raw"}')
    await create(place.engine, PROJECT, new)


def search(examples: int) -> settings:
    """A failing example is reported as it is: to shrink it takes minutes, with a connection for each try."""
    return settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )


def _request(of: st.SearchStrategy[tuple[Api, int]], known: Known) -> st.SearchStrategy[bytes]:
    return of.flatmap(lambda one: requests(*one, known))


ALLOWED_BEFORE_LOGIN = st.sampled_from([one for one in VERSIONS if one[0].key in BEFORE_LOGIN])
AFTER_LOGIN = st.sampled_from([one for one in VERSIONS if one[0].key not in SASL])
API_VERSIONS = st.sampled_from([one for one in VERSIONS if one[0].key is ApiKey.API_VERSIONS])
# ApiVersions of a newer client, with a body that is not known here.
NEWER = st.builds(
    lambda version, body: framed(b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\x07\xff\xff" + body),
    st.integers(3, 9),
    st.binary(max_size=20),
)
NO_REQUEST = st.one_of(
    st.binary(max_size=100),
    st.binary(max_size=100).map(framed),
    st.builds(
        lambda api, version, rest: framed(api.to_bytes(2, "big") + version.to_bytes(2, "big") + rest),
        st.integers(0, 80),
        st.integers(0, 20),
        st.binary(max_size=60),
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("api", [api for api in APIS.values() if api.key not in SASL], ids=ids)
def test_every_version_of_an_api_is_answered_whatever_it_asks(tmp_path: Path, api: Api) -> None:
    versions = range(api.min_version, api.max_version + 1)
    examples = REQUESTS // len(versions)
    with running(tmp_path / "d") as broker:

        @search(examples)
        @given(data=st.data())
        def example(data: st.DataObject) -> None:
            known = broker.prepared()
            frames = []
            for version in versions:
                frames.append(data.draw(requests(api, version, known)))
                if data.draw(st.booleans()):
                    frames.append(data.draw(_request(AFTER_LOGIN, known)))
            last = st.sampled_from([(api, version) for version in versions])
            frames.append(data.draw(_request(last, known).flatmap(damaged)))
            broker.send(b"".join(frames), logged_in=True)

        example()
        assert broker.succeeded[api.key] > 0
        for version in versions:
            # Every request has an answer, but for Produce without acks.
            assert broker.answered[api.key, version] >= (1 if api.key is ApiKey.PRODUCE else examples)


@pytest.mark.long
@pytest.mark.parametrize("version", [0, 1], ids=["bare tokens", "SaslAuthenticate"])
def test_every_login_is_answered(tmp_path: Path, version: int) -> None:
    with running(tmp_path / "d") as broker:

        @search(LOGIN_EXAMPLES)
        @given(data=st.data())
        def example(data: st.DataObject) -> None:
            known = broker.prepared()
            frames = data.draw(st.lists(_request(API_VERSIONS, known) | NEWER, max_size=2))
            frames += data.draw(_login(version, known))
            frames += [data.draw(_request(AFTER_LOGIN, known)) for _ in range(3)]
            frames.append(data.draw(_request(ALLOWED_BEFORE_LOGIN, known)))
            broker.send(b"".join(frames), logged_in=False)

        example()
        assert broker.answered[ApiKey.SASL_HANDSHAKE, version] >= LOGIN_EXAMPLES
        after_login = sum(times for (api, _), times in broker.answered.items() if api not in BEFORE_LOGIN)
        assert after_login >= LOGIN_EXAMPLES // 4
        if version:
            answered = [broker.answered[ApiKey.SASL_AUTHENTICATE, each] for each in (0, 1)]
            assert sum(answered) >= LOGIN_EXAMPLES // 2
            assert broker.succeeded[ApiKey.SASL_AUTHENTICATE] > 0


def _login(version: int, known: Known) -> st.SearchStrategy[list[bytes]]:
    """Both requests of a login, or a handshake of version 0 and a token without a header."""
    handshake, authenticate = APIS[ApiKey.SASL_HANDSHAKE], APIS[ApiKey.SASL_AUTHENTICATE]
    token = _request(st.sampled_from([(authenticate, 0), (authenticate, 1)]), known)
    bare = st.sampled_from(TOKENS)
    return st.tuples(requests(handshake, version, known), token if version else bare.map(framed)).map(list)


@pytest.mark.long
@pytest.mark.parametrize("logged_in", [False, True])
def test_any_bytes_are_answered_or_end_their_connection_only(tmp_path: Path, logged_in: bool) -> None:
    with running(tmp_path / "d") as broker:

        @search(DAMAGED_EXAMPLES)
        @given(data=st.data())
        def example(data: st.DataObject) -> None:
            known = broker.prepared()
            request = _request(AFTER_LOGIN if logged_in else API_VERSIONS, known) | NEWER
            frames = [data.draw(request) for _ in range(3 if logged_in else 1)]
            frames += [] if logged_in else data.draw(_login(data.draw(st.integers(0, 1)), known))
            at = data.draw(st.sampled_from((2, 2, 2, 1, 0)))
            another = _request(st.sampled_from(VERSIONS), known) | st.just(b"")
            frames[at] = data.draw(st.one_of(damaged(frames[at]), NO_REQUEST, another))
            frames += data.draw(st.lists(_request(st.sampled_from(VERSIONS), known), max_size=3))
            broker.send(b"".join(frames), logged_in=logged_in, patient=data.draw(st.integers(0, 3)) > 0)

        example()
        assert broker.answered.total() >= DAMAGED_EXAMPLES // 2
        assert broker.ended >= DAMAGED_EXAMPLES // 8


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        bytes(100),
        b"\xff" * 100,
    ],
)
@pytest.mark.parametrize("logged_in", [False, True])
def test_what_is_not_kafka_ends_its_connection_only(tmp_path: Path, stream: bytes, logged_in: bool) -> None:
    with running(tmp_path / "d") as broker:
        for patient in (True, False):
            broker.send(stream, logged_in=logged_in, patient=patient)
