"""What a connection may send before its login, how it logs in, and what a login may do."""

import asyncio
from pathlib import Path

import pytest
import structlog.testing

from loghub_service.access_keys import AccessKey
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.wire.apis import APIS, ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.groups import FindCoordinatorRequest, ListGroupsRequest
from loghub_service.kafka.wire.logs import InitProducerIdRequest
from loghub_service.kafka.wire.topics import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.loghub_service.kafka.broker.broker_place import (
    KEY,
    PROJECT,
    READER,
    STRANGER,
    TOPIC,
    WRITER,
    Closed,
    Place,
    produce_request,
    run,
)

QUICK = BrokerLimits(refusal_delay_s=0.05)
ALL_TOPICS = MetadataRequest(topics=None)


def test_api_versions_is_answered_before_and_after_the_login(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        for _ in range(2):
            before = await client.call(ApiKey.API_VERSIONS, ApiVersionsRequest())
        await client.log_in(PROJECT, f"{KEY.key_id}#{KEY.secret}")
        after = await client.call(ApiKey.API_VERSIONS, ApiVersionsRequest())
        assert before == after
        assert {one.api_key: (one.min_version, one.max_version) for one in after.api_keys} == {
            api.key: (api.min_version, api.max_version) for api in APIS.values()
        }

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("version", [3, 5, 99])
def test_api_versions_above_ours_is_answered_in_version_0_with_the_ranges(
    tmp_path: Path, version: int
) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        # Header, and what newer versions have behind it, which is not read.
        frame = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\x07\xff\xff\0\x02a\x02b\0"
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        answer = await client.frame()
        assert answer[:4] == b"\0\0\0\x07"
        assert int.from_bytes(answer[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        count = int.from_bytes(answer[6:10], "big")
        assert count == len(APIS)
        assert len(answer) == 10 + 6 * count  # no throttle time, no tags
        await client.log_in(PROJECT, f"{KEY.key_id}#{KEY.secret}")  # the connection goes on

    run(scenario, tmp_path / "d")


BEFORE_THE_LOGIN = {
    ApiKey.PRODUCE: produce_request("a"),
    ApiKey.METADATA: ALL_TOPICS,
    ApiKey.LIST_GROUPS: ListGroupsRequest(),
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest(key="g"),
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(topics=()),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=1000),
}


@pytest.mark.parametrize("api", BEFORE_THE_LOGIN)
def test_anything_else_before_the_login_ends_the_connection(tmp_path: Path, api: ApiKey) -> None:
    """The requests are right, so that nothing but the missing login can be the reason."""

    async def scenario(place: Place) -> None:
        client = await place.connect()
        client.send(api, BEFORE_THE_LOGIN[api])
        assert await client.is_closed()
        other = await place.client()
        assert await other.call(api, BEFORE_THE_LOGIN[api])
        assert place.endpoint.broker.counts.requests[api.name] == 2

    run(scenario, tmp_path / "d")


def test_a_login_is_the_project_and_the_access_key(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        answer = await client.call(ApiKey.METADATA, ALL_TOPICS)
        assert [topic.name for topic in answer.topics] == [TOPIC]
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("127.0.0.1", place.port)
        # The secret, and even the id, may contain the character between them.
        place.keys["a#b"] = AccessKey(key_id="a#b", secret="c#d")
        await (await place.connect()).log_in(PROJECT, "a#b#c#d")
        # A project has no case, as over HTTP.
        other = await place.client(READER, project=PROJECT.upper())
        assert (await other.call(ApiKey.METADATA, ALL_TOPICS)).topics == answer.topics

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("user", "password"),
    [
        (PROJECT, f"{KEY.key_id}#wrong"),
        (PROJECT, f"unknown#{KEY.secret}"),
        (PROJECT, KEY.key_id),
        (PROJECT, ""),
        (PROJECT, f"{STRANGER.key_id}#{STRANGER.secret}"),
        ("", f"{READER.key_id}#{READER.secret}"),
    ],
)
def test_a_wrong_login_is_refused_late_and_closed(tmp_path: Path, user: str, password: str) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await client.try_log_in(user, password) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert loop.time() - began_s >= QUICK.refusal_delay_s
        assert await client.is_closed()
        assert place.endpoint.broker.counts.refused_logins == 1

    run(scenario, tmp_path / "d", limits=QUICK)


def test_a_refused_login_is_logged(tmp_path: Path) -> None:
    """How many of these lines get into the log is not decided here (`loghub_service.log_setup`)."""

    async def refuse(place: Place, user: str) -> None:
        client = await place.connect()
        assert await client.try_log_in(user, "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED

    async def scenario(place: Place) -> None:
        with structlog.testing.capture_logs() as lines:
            await asyncio.gather(*(refuse(place, user) for user in (PROJECT, "nobody")))
        refused = {"event": "Kafka login refused", "log_level": "warning", "peer": "127.0.0.1"}
        found = [line for line in lines if line["event"] == refused["event"]]
        assert sorted(found, key=lambda line: line["user"]) == [
            refused | {"user": PROJECT},
            refused | {"user": "nobody"},
        ]
        assert place.endpoint.broker.counts.refused_logins == 2

    run(scenario, tmp_path / "d", limits=QUICK)


def test_a_key_with_a_token_cannot_log_in(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        place.keys["sts"] = AccessKey(key_id="sts", secret="s", security_token="t")
        client = await place.connect()
        assert await client.try_log_in(PROJECT, "sts#s") == ErrorCode.SASL_AUTHENTICATION_FAILED

    run(scenario, tmp_path / "d", limits=QUICK)


def test_another_mechanism_is_refused_with_the_one_that_is_offered(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        answer = await client.call(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ("PLAIN",)
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


def test_the_login_needs_its_handshake(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        token = f"\0{PROJECT}\0{KEY.key_id}#{KEY.secret}".encode()
        answer = await client.call(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


def test_a_key_with_too_many_requests_is_disconnected_without_an_error_of_its_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients connect again, while they raise SASL_AUTHENTICATION_FAILED to their user."""

    async def scenario(place: Place) -> None:
        monkeypatch.setattr(place.endpoint.connections, "authenticated", lambda *_: False)
        client = await place.connect()
        await client.call(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        token = f"\0{PROJECT}\0{KEY.key_id}#{KEY.secret}".encode()
        with pytest.raises(Closed):
            await client.call(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))

    run(scenario, tmp_path / "d")


def test_a_handshake_of_version_0_is_followed_by_the_bare_token(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        await client.call(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), version=0)
        token = f"\0{PROJECT}\0{KEY.key_id}#{KEY.secret}".encode()
        client.writer.write(len(token).to_bytes(4, "big") + token)
        assert await client.frame() == b""
        assert (await client.call(ApiKey.METADATA, ALL_TOPICS)).topics

    run(scenario, tmp_path / "d")


def test_a_login_ends_with_its_key(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await client.call(ApiKey.METADATA, ALL_TOPICS)
        place.keys[KEY.key_id] = AccessKey(key_id=KEY.key_id, secret="rotated")
        with pytest.raises(Closed):
            await client.call(ApiKey.METADATA, ALL_TOPICS)

    run(scenario, tmp_path / "d")


def test_a_login_ends_when_its_key_expires(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        key = AccessKey(key_id="short", secret="s", expires_unix_s=place.clock.unix_s() + 100)
        place.keys[key.key_id] = key
        client = await place.client(key)
        await client.call(ApiKey.METADATA, ALL_TOPICS)
        place.clock.ahead_s += 100
        with pytest.raises(Closed):
            await client.call(ApiKey.METADATA, ALL_TOPICS)
        late = await place.connect()
        assert await late.try_log_in(PROJECT, "short#s") == ErrorCode.SASL_AUTHENTICATION_FAILED

    run(scenario, tmp_path / "d", limits=QUICK)


def test_rights_are_those_of_the_key(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        reader, writer = await place.client(READER), await place.client(WRITER)
        assert (await writer.produce("a")).error_code == 0
        assert (await reader.produce("a")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await reader.fetch(0)).error_code == 0
        assert (await writer.fetch(0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await writer.offset(-1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(scenario, tmp_path / "d")


def test_a_client_that_does_not_log_in_is_closed(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.connect()
        await client.call(ApiKey.API_VERSIONS, ApiVersionsRequest())  # which does not prolong its time
        assert await client.is_closed()

    run(scenario, tmp_path / "d", limits=BrokerLimits(login_s=0.1))
