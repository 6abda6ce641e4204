"""Requests that no Kafka group gets to see: before the start, after the end, or beyond a bound."""

import asyncio

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode
from loghub_service.kafka.coordinator.requests import LeaveGroup, MemberHeartbeat, OffsetDelete, SyncGroup
from loghub_service.kafka.groups import Availability, KafkaGroupKey, KafkaGroups
from tests.loghub_service.kafka.coordinator.driver import P0
from tests.loghub_service.kafka.group_service import COMMIT, JOIN, KEY, Service, run, settled


def test_requests_before_the_groups_are_loaded_and_after_the_end() -> None:
    async def story() -> None:
        service = Service(delay_ms=1000)
        groups = service.groups
        joining = asyncio.create_task(groups.join(KEY, JOIN))
        await settled()
        groups.close()
        assert (await joining).error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        for availability, error in (
            (Availability.LOADING, GroupErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (Availability.STOPPED, GroupErrorCode.COORDINATOR_NOT_AVAILABLE),
        ):
            groups.availability = availability
            assert await _errors(groups, KEY) == {error}

    run(story)


async def _errors(groups: KafkaGroups, key: KafkaGroupKey) -> set[GroupErrorCode]:
    """Those of each kind of request, and of each part of its answer."""
    commit = await groups.commit(key, COMMIT)
    delete_offsets = await groups.delete_offsets(key, OffsetDelete(partitions=(("ls", P0),)))
    leave = await groups.leave(key, LeaveGroup(members=(("m", None),)))
    return {
        (await groups.join(key, JOIN)).error,
        (await groups.sync(key, SyncGroup(member_id="m", generation=1))).error,
        (await groups.heartbeat(key, MemberHeartbeat(member_id="m", generation=1))).error,
        leave.error,
        *leave.members,
        commit.error,
        *(error for _, error in commit.partitions),
        delete_offsets.error,
        *(error for _, error in delete_offsets.partitions),
        (await groups.delete(key)).error,
        (await groups.fetch(key, None)).error,
        (await groups.describe(key)).error,
        *([] if groups.availability is Availability.READY else [(await groups.list("p")).error]),
    }


@pytest.mark.parametrize("group_id", ["", "g" * 256, "ü" * 128])
def test_a_group_id_that_is_empty_or_too_long_is_refused(group_id: str) -> None:
    async def story() -> None:
        groups = Service().groups
        assert await _errors(groups, KafkaGroupKey("p", group_id)) == {GroupErrorCode.INVALID_GROUP_ID}
        assert (await groups.list("p")).groups == ()

    run(story)


def test_the_number_of_groups_is_bounded() -> None:
    async def story() -> None:
        service = Service(max_groups=2)
        keys = [KafkaGroupKey("p", "one"), KafkaGroupKey("q", "two"), KafkaGroupKey("p", "three")]
        for key in keys[:2]:
            await service.stable_member(key)
        assert (await service.groups.join(keys[2], JOIN)).error is GroupErrorCode.POLICY_VIOLATION
        assert (await service.groups.commit(keys[2], COMMIT)).error is GroupErrorCode.POLICY_VIOLATION
        assert (await service.groups.commit(keys[0], COMMIT)).error is GroupErrorCode.UNKNOWN_MEMBER_ID
        assert (await service.groups.delete(keys[2])).error is GroupErrorCode.GROUP_ID_NOT_FOUND

    run(story)
