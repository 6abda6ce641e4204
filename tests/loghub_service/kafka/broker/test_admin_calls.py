"""Topics as an administrator sees them: created, grown, described and deleted as logstores."""

from pathlib import Path

import pytest

from loghub_service.kafka.wire import topics
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.topics import MetadataRequest, MetadataRequestTopic
from tests.loghub_service.kafka.broker.broker_place import (
    PROJECT,
    READER,
    TOPIC,
    Client,
    Place,
    records_of,
    run,
    values_of,
)


async def create(
    client: Client,
    name: str,
    *,
    partitions: int = 3,
    configs: dict[str, str | None] | None = None,
    check_only: bool = False,
    assignments: tuple[topics.CreatableReplicaAssignment, ...] = (),
) -> topics.CreatableTopicResult:
    topic = topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=assignments,
        configs=tuple(
            topics.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )
    body = topics.CreateTopicsRequest(topics=(topic,), validate_only=check_only)
    return (await client.call(ApiKey.CREATE_TOPICS, body)).topics[0]


async def partitions_of(client: Client, name: str) -> int:
    """-1 if there is no such topic."""
    body = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    topic = (await client.call(ApiKey.METADATA, body)).topics[0]
    return -1 if topic.error_code else len(topic.partitions)


async def grow(client: Client, name: str, count: int, *, check_only: bool = False) -> int:
    one = topics.CreatePartitionsTopic(name=name, count=count)
    body = topics.CreatePartitionsRequest(topics=(one,), timeout_ms=1000, validate_only=check_only)
    return (await client.call(ApiKey.CREATE_PARTITIONS, body)).results[0].error_code


async def configs_of(client: Client, name: str) -> dict[str, str | None]:
    resource = topics.DescribeConfigsResource(resource_type=topics.TOPIC_RESOURCE, resource_name=name)
    body = topics.DescribeConfigsRequest(resources=(resource,))
    found = (await client.call(ApiKey.DESCRIBE_CONFIGS, body)).results[0]
    assert found.error_code == 0
    return {one.name: one.value for one in found.configs}


def test_a_topic_is_a_logstore_that_is_created_and_deleted(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await create(client, "new")).error_code == 0
        assert await partitions_of(client, "new") == 3
        assert len(place.engine.catalog.projects[PROJECT].logstores["new"].shards) == 3
        assert (await create(client, "new")).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await create(client, "by-default", partitions=-1)).error_code == 0
        assert await partitions_of(client, "by-default") == 2
        body = topics.DeleteTopicsRequest(topic_names=("new", "nothing"), timeout_ms=1000)
        deleted = await client.call(ApiKey.DELETE_TOPICS, body)
        assert [one.error_code for one in deleted.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await partitions_of(client, "new") == -1

    run(scenario, tmp_path / "d")


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await create(client, "new", check_only=True)).error_code == 0
        assert await partitions_of(client, "new") == -1
        assert (await create(client, TOPIC, check_only=True)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await grow(client, TOPIC, 3, check_only=True) == 0
        assert await partitions_of(client, TOPIC) == 1

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "error"),
    [
        ("Upper", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("with.suffix", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("good", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("good", -2, {}, ErrorCode.INVALID_PARTITIONS),
        ("good", 65, {}, ErrorCode.INVALID_PARTITIONS),
        ("good", 1, {"loghub.form": "xml"}, ErrorCode.INVALID_CONFIG),
        ("good", 1, {"retention.ms": "-2"}, ErrorCode.INVALID_CONFIG),
        ("good", 1, {"retention.ms": None}, ErrorCode.INVALID_CONFIG),
        ("good", 1, {"cleanup.policy": "compost"}, ErrorCode.INVALID_CONFIG),
        ("good", 1, {"message.timestamp.type": "LogAppendTime"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_its_reason(
    tmp_path: Path, name: str, partitions: int, configs: dict[str, str | None], error: ErrorCode
) -> None:
    async def scenario(place: Place) -> None:
        result = await create(await place.client(), name, partitions=partitions, configs=configs)
        assert result.error_code == error
        assert result.error_message

    run(scenario, tmp_path / "d")


def test_assignments_are_refused(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        chosen = (topics.CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),)
        result = await create(await place.client(), "good", partitions=-1, assignments=chosen)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(scenario, tmp_path / "d")


@pytest.mark.long
def test_the_quota_of_shards_is_that_of_the_service(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        for number in range(6):
            assert (await create(client, f"large{number}", partitions=64)).error_code == 0
        assert (await create(client, "more", partitions=16)).error_code == ErrorCode.POLICY_VIOLATION
        assert await grow(client, TOPIC, 100) == ErrorCode.POLICY_VIOLATION

    run(scenario, tmp_path / "d")


def test_more_partitions_are_splits(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await client.produce("before")).error_code == 0
        assert await grow(client, TOPIC, 6) == 0  # 2 and then 3 more
        assert await partitions_of(client, TOPIC) == 6
        live = place.engine.catalog.projects[PROJECT].logstores[TOPIC].shard_map().writable()
        assert len(live) == 4
        assert values_of(await client.fetch(0)) == [b"before"]
        invalid = ErrorCode.INVALID_PARTITIONS
        assert [await grow(client, TOPIC, count) for count in (6, 5, 7)] == [invalid] * 3
        assert await grow(client, "nothing", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario, tmp_path / "d")


def test_settings_of_a_topic_are_described(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await create(client, "kept", configs={"retention.ms": "-1", "loghub.form": "json", "other": "x"})
        await create(client, "short", configs={"retention.ms": "1"})
        kept = await configs_of(client, "kept")
        assert (kept["retention.ms"], kept["loghub.form"], kept["cleanup.policy"]) == (
            "-1",
            "json",
            "compact",
        )
        assert (await configs_of(client, "short"))["retention.ms"] == str(86_400_000)  # a day at least
        assert (await configs_of(client, "short"))["loghub.form"] == "raw"
        for policy, days in (("compact", None), ("compact,delete", 2), ("delete", 2)):
            name = policy.replace(",", "-")
            await create(
                client, name, configs={"cleanup.policy": policy, "retention.ms": str(2 * 86_400_000)}
            )
            shown = await configs_of(client, name)
            assert shown["retention.ms"] == ("-1" if days is None else str(days * 86_400_000))
            assert shown["cleanup.policy"] == ("compact" if days is None else "delete")

    run(scenario, tmp_path / "d")


def test_the_form_of_a_topic_is_that_of_its_logstore_or_of_its_suffix(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await create(client, "plain", partitions=1, configs={"loghub.form": "plain"})
        for topic in ("plain", "plain.json", "plain.raw"):
            assert (await client.produce(b'{"a":"1"}', topic=topic)).error_code == 0
        by_field = [(one.key, one.value) for _, one in records_of(await client.fetch(0, topic="plain"))]
        assert by_field == [
            (b"content", b'{"a":"1"}'),
            (b"a", b"1"),
            (None, b'{"key":"k","value":"{\\"a\\":\\"1\\"}"}'),
        ]
        raw = [(one.key, one.value) for _, one in records_of(await client.fetch(0, topic="plain.raw"))]
        assert raw[2] == (b"k", b'{"a":"1"}')

    run(scenario, tmp_path / "d")


def test_a_key_without_the_right_changes_no_topic(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client(READER)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await create(client, "new")).error_code == refused
        assert await grow(client, TOPIC, 3) == refused
        body = topics.DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=1000)
        assert (await client.call(ApiKey.DELETE_TOPICS, body)).responses[0].error_code == refused
        assert await partitions_of(client, TOPIC) == 1

    run(scenario, tmp_path / "d")
