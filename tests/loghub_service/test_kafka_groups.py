"""Kafka groups live in the engine: they survive its restart, and go with their logstore and project."""

import asyncio
from dataclasses import replace
from pathlib import Path

from loghub_service.api.logstores import delete_logstore
from loghub_service.api.projects import delete_project
from loghub_service.engine import Engine
from loghub_service.kafka.coordinator.group import GroupErrorCode, MemberProtocol, TopicPartition
from loghub_service.kafka.coordinator.requests import JoinGroup, MemberHeartbeat, OffsetCommit, SyncGroup
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.retention import Retention
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live
from tests.loghub_service.engines import request as a_request

KEY = KafkaGroupKey("p", "kafka")
JOIN = JoinGroup(
    member_id="",
    protocol_type="consumer",
    protocols=(MemberProtocol("range", b"m"),),
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    group_instance_id="i",
)
COMMIT = OffsetCommit(offsets=((TopicPartition(STORE_ID, 0), 5, "note"),), unix_ms=1)


async def stable_member(engine: Engine, clock: ManualClock) -> str:
    groups = engine.kafka_groups
    joining = asyncio.create_task(groups.join(KEY, JOIN))
    await asyncio.sleep(0)
    for _ in range(4):
        clock.now_s += 1
        groups.tick()
    joined = await joining
    event = SyncGroup(
        member_id=joined.member_id, generation=joined.generation, assignments=((joined.member_id, b"all"),)
    )
    assert (await groups.sync(KEY, event)).assignment == b"all"
    return joined.member_id


def test_a_group_goes_on_after_a_restart_of_the_service(tmp_path: Path) -> None:
    clock = ManualClock()
    member_ids = []

    async def before(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        member_ids.append(await stable_member(engine, clock))
        committed = await engine.kafka_groups.commit(
            KEY, replace(COMMIT, member_id=member_ids[0], generation=1)
        )
        assert committed.error is GroupErrorCode.NONE

    async def after(engine: Engine) -> None:
        groups = engine.kafka_groups
        described = await groups.describe(KEY)
        assert (described.state, [m.assignment for m in described.members]) == ("Stable", [b"all"])
        ((_, offset),) = (await groups.fetch(KEY, None)).offsets
        assert offset is not None
        assert (offset.offset, offset.metadata) == (5, "note")
        assert (
            await groups.heartbeat(KEY, MemberHeartbeat(member_id=member_ids[0], generation=1))
        ).error == 0
        again = await groups.join(KEY, JOIN)  # the static member restarts, too
        assert (again.error, again.generation) == (GroupErrorCode.NONE, 1)
        assert again.member_id.startswith("i-")
        assert again.member_id != member_ids[0]

    live(tmp_path / "data", clock, before)
    clock.now_s += 3600
    live(tmp_path / "data", clock, after)


def test_a_request_that_waits_is_answered_when_the_service_stops(tmp_path: Path) -> None:
    answers = []

    async def story(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        joining = asyncio.create_task(engine.kafka_groups.join(KEY, JOIN))
        joining.add_done_callback(lambda done: answers.append(done.result().error))
        await asyncio.sleep(0)

    live(tmp_path / "data", ManualClock(), story)
    assert answers == [GroupErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_deleted_logstore_takes_its_offsets_along_and_a_deleted_project_its_groups(tmp_path: Path) -> None:
    request = a_request("DELETE")

    async def story(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        groups = engine.kafka_groups
        await groups.commit(KEY, COMMIT)
        await delete_logstore(engine, request, ls="ls")
        assert (await groups.fetch(KEY, None)).offsets == ()
        # A commit that overlapped with the deletion does no harm.
        await groups.commit(KEY, COMMIT)
        await delete_project(engine, request)
        for answer in (await groups.describe(KEY), await groups.commit(KEY, COMMIT)):
            assert answer.error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE  # until there is one again

    async def after(engine: Engine) -> None:
        assert (await engine.kafka_groups.list("p")).groups == ()

    live(tmp_path / "data", ManualClock(), story)
    live(tmp_path / "data", ManualClock(), after)


def test_retention_lets_offsets_expire(tmp_path: Path) -> None:
    clock = ManualClock()

    async def story(engine: Engine) -> None:
        await create_group_of_one_shard(engine, ttl_days=3650)
        unix_ms = int(clock.unix_s() * 1000)
        await engine.kafka_groups.commit(KEY, replace(COMMIT, unix_ms=unix_ms))
        retention = Retention(engine)
        for _ in range(7):
            await retention.look()
            assert (await engine.kafka_groups.describe(KEY)).state == "Empty"
            clock.now_s += 24 * 3600
        await retention.look()
        assert (await engine.kafka_groups.describe(KEY)).state == "Dead"

    live(tmp_path / "data", clock, story)
