"""What all Kafka groups may hold together: what adds to it is refused, and nobody who is there is stopped."""

from dataclasses import replace

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode, KafkaGroupLimits, MemberProtocol
from loghub_service.kafka.coordinator.requests import JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from loghub_service.kafka.groups import MEMBER_BYTES, OFFSET_BYTES, KafkaGroupKey, KafkaGroups
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.kafka.coordinator.driver import NONE, P0, P1
from tests.loghub_service.kafka.group_service import JOIN, KEY, Disk, Service, run

FULL = GroupErrorCode.POLICY_VIOLATION
OTHER = KafkaGroupKey("other project", "g")


def joining(metadata: int, member_id: str = "", **more: object) -> JoinGroup:
    protocols = (MemberProtocol("range", bytes(metadata)),)
    return replace(JOIN, protocols=protocols, member_id=member_id, **more)  # type: ignore[arg-type]


def test_a_member_beyond_the_bound_is_refused_and_one_that_is_there_joins_again() -> None:
    async def story() -> None:
        service = Service(max_bytes=2 * MEMBER_BYTES + 100)
        groups = service.groups
        member = (await groups.join(KEY, joining(60))).member_id
        assert (await groups.join(OTHER, joining(50))).error is FULL
        assert not list(groups.of(OTHER.project))
        assert (await groups.join(KEY, joining(60, member))).error is NONE
        assert (await groups.join(KEY, joining(60 + 2000, member))).error is FULL
        assert (await service.heartbeat(member)) is NONE
        assert (await groups.join(OTHER, joining(40))).error is NONE
        await groups.leave(KEY, LeaveGroup(members=((member, None),)))
        assert groups.memory.used == MEMBER_BYTES + 40

    run(story)


def test_a_static_member_that_starts_again_at_the_bound_takes_its_place() -> None:
    async def story() -> None:
        groups = Service(max_bytes=MEMBER_BYTES + 60).groups
        for _ in range(3):
            assert (await groups.join(KEY, joining(60, group_instance_id="i"))).error is NONE
        assert groups.memory.used == groups.memory.limit

    run(story)


def test_member_ids_that_were_given_out_count() -> None:
    async def story() -> None:
        groups = Service(max_bytes=MEMBER_BYTES).groups
        asking = joining(0, requires_member_id=True)
        given = [await groups.join(KEY, asking) for _ in range(2)]
        assert [one.error for one in given] == [GroupErrorCode.MEMBER_ID_REQUIRED, FULL]
        assert (await groups.join(KEY, joining(0, given[0].member_id))).error is NONE

    run(story)


def test_an_assignment_beyond_the_bound_is_refused() -> None:
    async def story() -> None:
        groups = Service(max_bytes=MEMBER_BYTES + 100).groups
        member = (await groups.join(KEY, joining(0))).member_id
        for size, error in ((101, FULL), (100, NONE)):
            event = SyncGroup(member_id=member, generation=1, assignments=((member, bytes(size)),))
            assert (await groups.sync(KEY, event)).error is error

    run(story)


def test_offsets_move_at_the_bound_and_new_ones_are_refused() -> None:
    async def story() -> None:
        groups = Service(max_bytes=OFFSET_BYTES + 10).groups

        async def commit(*offsets: tuple[object, int, str]) -> set[GroupErrorCode]:
            answer = await groups.commit(KEY, OffsetCommit(offsets=offsets, unix_ms=1))  # type: ignore[arg-type]
            return {error for _, error in answer.partitions}

        assert await commit((P0, 1, "ü" * 5)) == {NONE}
        assert await commit((P0, 2, "ä" * 5)) == {NONE}
        assert await commit((P0, 3, "ä" * 6)) == {FULL}
        assert await commit((P0, 3, ""), (P1, 3, "")) == {FULL}
        await groups.delete(KEY)
        assert groups.memory.used == 0
        assert await commit((P1, 3, "")) == {NONE}

    run(story)


@pytest.mark.parametrize("forget", [True, False])
def test_what_was_restored_counts_until_its_project_is_deleted(forget: bool) -> None:
    async def story() -> None:
        disk, first = Disk(), Service()
        await first.stable_member()
        held = first.groups.memory.used
        groups = KafkaGroups(
            clock=ManualClock(),
            persist=disk.persist,
            new_id=lambda: "id",
            limits=KafkaGroupLimits(),
            max_bytes=held,
        )
        groups.restore(KEY, first.disk.saved[KEY])
        groups.open()
        assert groups.memory.used == held
        if forget:
            groups.forget_project(KEY.project)
        expected = GroupErrorCode.MEMBER_ID_REQUIRED if forget else FULL
        assert (await groups.join(OTHER, joining(0, requires_member_id=True))).error is expected

    run(story)
