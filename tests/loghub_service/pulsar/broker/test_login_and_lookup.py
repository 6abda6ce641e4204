"""CONNECT, and the commands about topics, over a real socket."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loghub_service.api import shards
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from tests.loghub_service.pulsar.broker.pulsar_place import (
    KEY,
    LOGSTORE,
    NO_REQUEST,
    PARTITION,
    PROJECT,
    READER,
    STRANGER,
    TOPIC,
    Client,
    PulsarPlace,
    error_name,
    frame,
    run,
    subscription,
)

pytestmark = pytest.mark.tools
TOKEN = f"{PROJECT}#{KEY.key_id}#{KEY.secret}"


async def _connected(place: PulsarPlace, method: str, data: str) -> tuple[Client, str, Any]:
    client = await place.connect()
    client.send("connect", client_version="t", auth_method_name=method, auth_data=data.encode())
    kind, answer = await client.next()
    return client, kind, answer


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("token", TOKEN),
        ("basic", f"{PROJECT}:{KEY.key_id}#{KEY.secret}"),
        ("token", f"{PROJECT.upper()}#{KEY.key_id}#{KEY.secret}"),
    ],
)
def test_a_key_of_the_project_logs_in_with_a_token_or_basic(tmp_path: Path, method: str, data: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        _, kind, answer = await _connected(place, method, data)
        assert kind == "connected"
        assert answer.max_message_size == 5 << 20

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("token", f"{PROJECT}#{KEY.key_id}#wrong"),
        ("token", f"{PROJECT}#{STRANGER.key_id}#{STRANGER.secret}"),
        ("token", ""),
        ("token", TOKEN.split("#", 1)[1]),
        ("basic", TOKEN),
        ("tls", TOKEN),
        ("", ""),
    ],
)
def test_a_wrong_login_gets_an_error_in_words_and_the_end(tmp_path: Path, method: str, data: str) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client, kind, answer = await _connected(place, method, data)
        assert (kind, error_name(answer.error), answer.request_id) == (
            "error",
            "AuthenticationError",
            NO_REQUEST,
        )
        assert "PROJECT#ACCESSKEYID#ACCESSKEYSECRET" in answer.message
        assert await client.is_closed()

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(refusal_delay_s=0))


def test_a_key_with_too_many_requests_may_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its login is not wrong: Java's library shows AuthenticationError to its user, and ends."""

    async def scenario(place: PulsarPlace) -> None:
        monkeypatch.setattr(place.endpoint.connections, "authenticated", lambda *_: False)
        client, kind, answer = await _connected(place, "token", TOKEN)
        assert (kind, error_name(answer.error)) == ("error", "ServiceNotReady")
        assert "too many requests" in answer.message
        assert await client.is_closed()

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(refusal_delay_s=0))


def test_refused_logins_of_a_client_that_tries_again_are_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        for _ in range(5):
            client, *_ = await _connected(place, "token", f"{PROJECT}#nobody#x")
            assert await client.is_closed()
        assert place.endpoint.broker.counts.refused_logins == 5

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(refusal_delay_s=0))
    assert capsys.readouterr().out.count("Pulsar login refused") == 1


@pytest.mark.parametrize(("asked", "said"), [(21, 20), (20, 20), (12, 12)])
def test_connected_says_what_java_needs_to_see_new_partitions(tmp_path: Path, asked: int, said: int) -> None:
    """Trap 2: without the fifth flag Java's clients never look at the count of partitions again."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.connect()
        kind, answer = await client.log_in(TOKEN, protocol_version=asked)
        assert (kind, answer.protocol_version) == ("connected", said)
        flags = answer.feature_flags
        assert flags.supports_get_partitioned_metadata_without_auto_creation
        assert flags.supports_topic_watchers
        assert not flags.supports_partial_producer
        assert not flags.supports_broker_entry_metadata

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("name", ["ping", "lookupTopic", "connected"])
def test_a_command_before_connect_ends_the_connection(tmp_path: Path, name: str) -> None:
    fields = (
        {"topic": TOPIC} if name == "lookupTopic" else {"server_version": "x"} if name == "connected" else {}
    )

    async def scenario(place: PulsarPlace) -> None:
        client = await place.connect()
        client.send(name, **fields)
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


def test_a_key_that_is_removed_ends_its_connections_at_the_next_command(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client, other = await place.client(), await place.client(READER)
        place.keys[KEY.key_id] = replace(KEY, secret="another one")
        client.send("ping")
        kind, answer = await client.next()
        assert (kind, error_name(answer.error), answer.request_id) == (
            "error",
            "AuthenticationError",
            NO_REQUEST,
        )
        assert await client.is_closed()
        await other.drained()

    run(scenario, tmp_path / "d")


def test_a_client_that_says_nothing_is_asked_once_and_then_closed(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        silent, there = await place.client(), await place.client()
        assert (await there.next())[0] == "ping"
        there.send("pong")
        assert (await silent.next())[0] == "ping"
        assert await silent.is_closed()
        assert (await there.next())[0] == "ping"  # it was not closed

    run(scenario, tmp_path / "d", limits=PulsarBrokerLimits(idle_s=0.3))


def test_auth_response_with_the_same_key_is_taken_and_another_one_is_not(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        client.send("authResponse", response={"auth_method_name": "token", "auth_data": TOKEN.encode()})
        await client.drained()
        token = f"{PROJECT}#{READER.key_id}#{READER.secret}"
        client.send("authResponse", response={"auth_method_name": "token", "auth_data": token.encode()})
        assert (await client.next())[0] == "error"
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("topic", "partitions"),
    [
        (TOPIC, 3),
        (LOGSTORE, 3),
        (f"persistent://public/{PROJECT}/{LOGSTORE}", 3),
        (f"{TOPIC}.json", 3),
        (f"{TOPIC}-partition-2", 0),  # of a partition
        (TOPIC.replace(LOGSTORE, LOGSTORE.upper()), 3),
    ],
)
def test_a_logstore_is_a_topic_with_as_many_partitions_as_shards(
    tmp_path: Path, topic: str, partitions: int
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        answer = await client.call("partitionMetadata", "partitionMetadataResponse", topic=topic)
        assert (answer.response, answer.partitions) == (0, partitions)

    run(scenario, tmp_path / "d", shards=3)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ("persistent://public/default/missing", "TopicNotFound", "loghub logstore create"),
        ("persistent://public/default/__change_events", "TopicNotFound", "loghub logstore create"),
        ("persistent://other/default/access", "TopicNotFound", "the tenant is always 'public'"),
        ("persistent://public/access", "TopicNotFound", "a topic is persistent://public/default/LOGSTORE"),
        (
            "persistent://public/a/b/access",
            "TopicNotFound",
            "a topic is persistent://public/default/LOGSTORE",
        ),
        ("non-persistent://public/default/access", "TopicNotFound", "only persistent topics are offered"),
        ("persistent://public/else/access", "AuthorizationError", "the login is for project 'demo'"),
    ],
)
def test_a_topic_that_is_not_there_is_refused_in_both_answers(
    tmp_path: Path, topic: str, code: str, words: str
) -> None:
    """Also without creating it: that needs --pulsar-auto-create."""

    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        answer = await client.call("partitionMetadata", "partitionMetadataResponse", topic=topic)
        assert (answer.response, error_name(answer.error)) == (1, code)
        assert words in answer.message
        answer = await client.call("lookupTopic", "lookupTopicResponse", topic=topic)
        assert (answer.response, error_name(answer.error)) == (2, code)
        assert await client.refused("subscribe", **subscription(1, topic, "s", "Shared")) == code

    run(scenario, tmp_path / "d")


def test_a_topic_is_created_only_if_service_and_key_allow_it(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        admin, reader = await place.client(), await place.client(READER)
        topic = "persistent://public/default/New-sub-RETRY"
        answer = await reader.call("partitionMetadata", "partitionMetadataResponse", topic=topic)
        assert error_name(answer.error) == "TopicNotFound"
        both = [admin.send("partitionMetadata", topic=topic) for _ in range(2)]
        assert [(await admin.answer_to(one))[1].partitions for one in both] == [1, 1]
        created = place.engine.catalog.projects[PROJECT].logstores["new-sub-retry"]
        assert '"kafkaForm":"raw"' in created.saved.options
        answer = await reader.call("lookupTopic", "lookupTopicResponse", topic=topic)
        assert answer.response == 1

    run(scenario, tmp_path / "d", auto_create=True)


def test_the_look_up_names_the_address_that_the_client_used_or_the_advertised_one(tmp_path: Path) -> None:
    async def used(place: PulsarPlace) -> None:
        client = await place.client()
        answer = await client.call("lookupTopic", "lookupTopicResponse", topic=PARTITION)
        assert answer.brokerServiceUrl == f"pulsar://127.0.0.1:{place.port}"
        assert (answer.response, answer.authoritative, answer.proxy_through_service_url) == (1, True, False)

    async def advertised(place: PulsarPlace) -> None:
        client = await place.client()
        answer = await client.call("lookupTopic", "lookupTopicResponse", topic=PARTITION)
        assert answer.brokerServiceUrl == "pulsar://[::1]:6650"

    run(used, tmp_path / "d")
    run(advertised, tmp_path / "d", advertised=("::1", 6650))


def test_the_topics_of_a_namespace_are_listed_by_partition_and_not_again_if_nothing_changed(
    tmp_path: Path,
) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        listed = await client.call(
            "getTopicsOfNamespace", "getTopicsOfNamespaceResponse", namespace="public/default"
        )
        assert list(listed.topics) == [f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"]
        again = await client.call(
            "getTopicsOfNamespace",
            "getTopicsOfNamespaceResponse",
            namespace="public/default",
            topics_hash=listed.topics_hash,
        )
        assert (again.changed, list(again.topics)) == (False, [])
        assert await client.refused("getTopicsOfNamespace", namespace="public/else") == "AuthorizationError"
        assert await client.refused("getTopicsOfNamespace", namespace="else/default") == "TopicNotFound"

    run(scenario, tmp_path / "d", shards=2)


def test_a_watcher_is_informed_of_partitions_that_come(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        watched = await client.call(
            "watchTopicList",
            "watchTopicListSuccess",
            watcher_id=7,
            namespace="public/default",
            topics_pattern="persistent://public/default/acc.*",
        )
        assert list(watched.topic) == [PARTITION]
        store = place.store
        async with place.engine.admin:
            reshard = shards.rules.split(store.shard_map(), shard=0, parts=2)
            await shards.carry_out(place.engine, place.engine.catalog.projects[PROJECT], store, reshard)
        update = await client.expect("watchTopicUpdate")
        assert list(update.new_topics) == [f"{TOPIC}-partition-1", f"{TOPIC}-partition-2"]
        assert (update.watcher_id, list(update.deleted_topics)) == (7, [])
        await client.call("watchTopicListClose", "success", watcher_id=7)
        assert place.endpoint.broker.watchers == {}

    run(scenario, tmp_path / "d")


def test_a_pattern_that_could_take_long_is_refused(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        fields = {"watcher_id": 1, "namespace": "public/default", "topics_pattern": "(a*)*b"}
        assert await client.refused("watchTopicList", **fields) == "NotAllowedError"

    run(scenario, tmp_path / "d")


def test_transactions_are_refused_in_words(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        answer = await client.call("tcClientConnectRequest", "tcClientConnectResponse", tc_id=0)
        assert (error_name(answer.error), answer.message) == (
            "NotAllowedError",
            "transactions are not offered",
        )

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (6 << 20).to_bytes(4, "big"),
        b"\0\0\0\x05\0\0\0\x01\xff",
        frame("connected", server_version="x"),
        b"\0\0\0\x06\0\0\0\x02\x08\x34",  # a command of transactions
    ],
)
def test_what_is_no_command_ends_the_connection_and_no_other_one(tmp_path: Path, sent: bytes) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client, other = await place.client(), await place.client()
        client.writer.write(sent)
        assert await client.is_closed()
        await other.drained()

    run(scenario, tmp_path / "d")


def test_before_the_login_only_small_frames_are_taken(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.connect()
        client.writer.write((16 * 1024 + 1).to_bytes(4, "big"))
        assert await client.is_closed()

    run(scenario, tmp_path / "d")


def test_the_service_ends_with_clients_that_wait(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await place.endpoint.close()
        assert await client.is_closed()

    run(scenario, tmp_path / "d")
