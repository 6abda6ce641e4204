"""Consumer groups through the broker: what a client reads in the answers, and rights and bounds around them.

The decisions themselves are tested with the coordinator.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loghub_service.api import logstores, projects
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.kafka.wire import groups
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from tests.loghub_service.kafka.broker.broker_place import (
    KEY,
    PROJECT,
    READER,
    TOPIC,
    WRITER,
    Client,
    Place,
    create_topic,
    run,
)
from tests.loghub_service.kafka.broker.test_offsets import of_demo

GROUP = "readers"


async def join(
    client: Client, member_id: str = "", *, version: int = 5, session_timeout_ms: int = 10_000, **more: Any
) -> Any:
    body = groups.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b"metadata"),),
        **more,
    )
    return await client.call(ApiKey.JOIN_GROUP, body, version=version)


async def member_of(client: Client) -> tuple[str, int]:
    """Join alone, and take the whole assignment; the member's id and the generation."""
    known = await join(client)
    assert known.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await join(client, known.member_id)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id == known.member_id
    assert [one.metadata for one in joined.members] == [b"metadata"]
    body = groups.SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(
            groups.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\1its bytes"),
        ),
    )
    synced = await client.call(ApiKey.SYNC_GROUP, body)
    assert (synced.error_code, synced.assignment) == (0, b"\0\1its bytes")
    return joined.member_id, joined.generation_id


async def heartbeat(client: Client, member_id: str, generation: int) -> int:
    body = groups.HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return (await client.call(ApiKey.HEARTBEAT, body)).error_code


async def commit(
    client: Client,
    offset: int,
    member_id: str = "",
    generation: int = -1,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    group: str = GROUP,
) -> int:
    one = groups.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    body = groups.OffsetCommitRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        topics=(groups.OffsetCommitRequestTopic(name=topic, partitions=(one,)),),
    )
    answer = await client.call(ApiKey.OFFSET_COMMIT, body)
    return answer.topics[0].partitions[0].error_code


async def committed(
    client: Client, *, topic: str = TOPIC, partition: int = 0, group: str = GROUP
) -> tuple[int, str | None]:
    asked = groups.OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,))
    answer = await client.call(
        ApiKey.OFFSET_FETCH, groups.OffsetFetchRequest(group_id=group, topics=(asked,))
    )
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.metadata


def test_a_member_joins_commits_and_leaves(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client(READER)
        member_id, generation = await member_of(client)
        assert await heartbeat(client, member_id, generation) == 0
        assert await heartbeat(client, member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert await heartbeat(client, "nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, 5, member_id, generation) == 0
        assert await commit(client, 6, member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
        assert await commit(client, 6) == ErrorCode.UNKNOWN_MEMBER_ID  # the group is not empty
        assert await committed(client) == (5, "note")
        body = groups.LeaveGroupRequest(group_id=GROUP, member_id=member_id)
        assert (await client.call(ApiKey.LEAVE_GROUP, body, version=2)).error_code == 0
        assert (await client.call(ApiKey.LEAVE_GROUP, body, version=2)).error_code == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )
        assert await commit(client, 7) == 0  # nobody is in it

    run(scenario, tmp_path / "d")


def test_groups_members_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    known: list[tuple[str, int]] = []

    async def first(place: Place) -> None:
        client = await place.client()
        known.append(await member_of(client))
        assert await commit(client, 5, *known[0]) == 0

    async def again(place: Place) -> None:
        client = await place.client()
        assert await committed(client) == (5, "note")
        assert await heartbeat(client, *known[0]) == 0

    run(first, tmp_path / "d")
    run(again, tmp_path / "d")


def test_the_offsets_of_a_logstore_that_is_made_again_are_gone(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert await commit(client, 5) == 0
        await logstores.delete(place.engine, PROJECT, TOPIC)
        assert await commit(client, 6) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new = logstores.NewLogstore(name=TOPIC, shards=1, ttl_days=1, options="{}")
        await logstores.create(place.engine, PROJECT, new)
        assert await committed(client) == (-1, "")

    run(scenario, tmp_path / "d")


def test_a_group_waits_for_its_project_and_then_keeps_what_is_committed(tmp_path: Path) -> None:
    """Its clients may begin before the project is created, or go on while it is deleted and made again."""
    errors: list[int] = []

    async def before(place: Place) -> None:
        client = await place.client()
        await projects.delete_project(place.engine, of_demo("DELETE"))
        joined = await join(client, version=3)
        member = groups.MemberIdentity(member_id=joined.member_id)
        await client.call(ApiKey.LEAVE_GROUP, groups.LeaveGroupRequest(group_id=GROUP, members=(member,)))
        await create_topic(place.engine, shards=1)
        assert await commit(client, 5) == 0
        errors.append(joined.error_code)

    async def again(place: Place) -> None:
        assert await committed(await place.client()) == (5, "note")

    run(before, tmp_path / "d")
    run(again, tmp_path / "d")
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_topic_and_the_same_one_with_a_suffix_share_their_offsets(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert await commit(client, 5, topic=f"{TOPIC}.json") == 0
        assert await committed(client) == (5, "note")
        assert await committed(client, topic=f"{TOPIC}.raw") == (5, "note")
        everything = await client.call(
            ApiKey.OFFSET_FETCH, groups.OffsetFetchRequest(group_id=GROUP, topics=None)
        )
        assert [(topic.name, len(topic.partitions)) for topic in everything.topics] == [(TOPIC, 1)]

    run(scenario, tmp_path / "d")


def test_offsets_of_what_does_not_exist_are_refused_one_by_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert await commit(client, 5, topic="nothing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(client, 5, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await committed(client, topic="nothing") == (-1, "")
        assert await commit(client, 5, group="") == ErrorCode.INVALID_GROUP_ID

    run(scenario, tmp_path / "d")


def test_groups_belong_to_their_project(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, other = await place.client(project=PROJECT.upper()), await place.client(project="other")
        assert await commit(client, 5) == 0
        listed = await client.call(ApiKey.LIST_GROUPS, groups.ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == [GROUP]
        listed = await other.call(ApiKey.LIST_GROUPS, groups.ListGroupsRequest())
        assert listed.groups == ()

    run(scenario, tmp_path / "d")


def test_groups_are_described_and_deleted(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, reader = await place.client(), await place.client(READER)
        member_id, generation = await member_of(client)
        body = groups.DescribeGroupsRequest(groups=(GROUP, "nothing"))
        found, nothing = (await client.call(ApiKey.DESCRIBE_GROUPS, body)).groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == (
            "Stable", "consumer", "range",
        )  # fmt: skip
        assert [(one.member_id, one.client_id, one.client_host) for one in found.members] == [
            (member_id, "test", "/127.0.0.1")
        ]
        assert found.members[0].member_assignment == b"\0\1its bytes"
        assert (nothing.group_state, nothing.error_code) == ("Dead", 0)
        delete = groups.DeleteGroupsRequest(groups_names=(GROUP,))

        async def deleted(by: Client) -> int:
            return (await by.call(ApiKey.DELETE_GROUPS, delete)).results[0].error_code

        assert await deleted(reader) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await deleted(client) == ErrorCode.NON_EMPTY_GROUP
        leave = groups.LeaveGroupRequest(
            group_id=GROUP, members=(groups.MemberIdentity(member_id=member_id),)
        )
        left = await client.call(ApiKey.LEAVE_GROUP, leave)
        assert [one.error_code for one in left.members] == [0]
        assert await deleted(client) == 0
        assert await deleted(client) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await heartbeat(client, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario, tmp_path / "d")


def test_an_offset_is_deleted_by_an_administrator(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, reader = await place.client(), await place.client(READER)
        assert await commit(client, 5) == 0
        one = groups.OffsetDeleteRequestPartition(partition_index=0)
        body = groups.OffsetDeleteRequest(
            group_id=GROUP, topics=(groups.OffsetDeleteRequestTopic(name=TOPIC, partitions=(one,)),)
        )
        refused = await reader.call(ApiKey.OFFSET_DELETE, body)
        assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer = await client.call(ApiKey.OFFSET_DELETE, body)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert await committed(client) == (-1, "")

    run(scenario, tmp_path / "d")


def test_a_key_without_the_right_to_read_is_in_no_group(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client(WRITER)
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await join(client)).error_code == refused
        assert await heartbeat(client, "m", 1) == refused
        assert await commit(client, 5) == refused
        listed = await client.call(ApiKey.LIST_GROUPS, groups.ListGroupsRequest())
        assert listed.error_code == refused

    run(scenario, tmp_path / "d")


@pytest.mark.long
def test_a_member_whose_connection_ends_while_it_waits_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        first, second = await place.client(), await place.client()
        known = await join(first)
        waiting = asyncio.create_task(join(first, known.member_id))  # for the initial delay
        known = await join(second)
        header = second.send(
            ApiKey.JOIN_GROUP,
            groups.JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=known.member_id,
                protocol_type="consumer",
                protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b""),),
            ),
        )
        assert header.api_key == ApiKey.JOIN_GROUP
        while len(next(place.engine.kafka_groups.of(PROJECT))[1].members) < 2:
            await asyncio.sleep(0.01)
        second.close()
        joined = await waiting
        assert joined.error_code == 0
        assert len(joined.members) == 1

    run(scenario, tmp_path / "d", group_limits=KafkaGroupLimits(initial_rebalance_delay_ms=1000))


def test_the_broker_is_every_coordinator_and_offers_no_transactions(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client(KEY)
        body = groups.FindCoordinatorRequest(key=GROUP)
        found = await client.call(ApiKey.FIND_COORDINATOR, body)
        assert (found.error_code, found.host, found.port) == (0, "127.0.0.1", place.port)
        body = groups.FindCoordinatorRequest(key="t", key_type=groups.TRANSACTION_KEY)
        assert (await client.call(ApiKey.FIND_COORDINATOR, body)).error_code != 0

    run(scenario, tmp_path / "d")
