"""The Kafka groups of a running service: answers wait for durability, one timer for many deadlines, pauses,
lost connections.

What all groups hold together is bounded: what adds to it is refused, and nobody who is there is stopped. Some
requests no group gets to see: before the start, after the end, or beyond a bound.
"""

import asyncio
from dataclasses import replace

import pytest

from loghub.clock import SystemClock
from loghub_service.kafka.coordinator.group import (
    GroupErrorCode,
    KafkaGroupLimits,
    MemberProtocol,
    TopicPartition,
)
from loghub_service.kafka.coordinator.requests import (
    JoinGroup,
    LeaveGroup,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
)
from loghub_service.kafka.groups import (
    MEMBER_BYTES,
    OFFSET_BYTES,
    Availability,
    KafkaGroupKey,
    KafkaGroups,
    TimerHeap,
)
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.kafka.coordinator.driver import NONE, P0, P1
from tests.loghub_service.kafka.group_service import COMMIT, JOIN, KEY, SESSION_S, Disk, Service, run, settled


def test_an_answer_is_sent_when_its_facts_are_durable_and_not_before() -> None:
    async def story() -> None:
        service = Service()
        service.disk.is_slow = True
        joining = asyncio.create_task(service.groups.join(KEY, JOIN))
        await settled()
        assert not joining.done()
        assert service.disk.waiting
        service.disk.commit()
        assert (await joining).generation == 1
        committing = asyncio.create_task(service.groups.commit(KafkaGroupKey("p", "other"), COMMIT))
        fetching = asyncio.create_task(service.groups.fetch(KafkaGroupKey("p", "other"), None))
        await settled()
        assert not committing.done()
        assert not fetching.done()  # it would show what a crash undoes
        service.disk.commit()
        assert (await committing).error is NONE
        ((_, offset),) = (await fetching).offsets
        assert offset is not None
        assert offset.offset == 5

    run(story)


def test_a_heartbeat_does_not_wait_for_the_disk() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        service.disk.is_slow = True
        assert await service.heartbeat(member_id) is NONE
        assert service.disk.waiting == []

    run(story)


def test_after_a_failed_commit_nothing_of_the_group_is_answered() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        service.disk.is_slow = True
        event = replace(COMMIT, member_id=member_id, generation=1)
        committing = asyncio.create_task(service.groups.commit(KEY, event))
        await settled()
        service.disk.fail()
        with pytest.raises(OSError, match="no disk"):
            await committing
        with pytest.raises(OSError, match="no disk"):
            await service.heartbeat(member_id)
        with pytest.raises(OSError, match="no disk"):
            await service.groups.fetch(KEY, None)

    run(story)


def test_a_join_is_answered_when_the_others_have_rejoined() -> None:
    async def story() -> None:
        service = Service()
        first = await service.stable_member()
        joining = asyncio.create_task(service.groups.join(KEY, JOIN))
        await settled()
        assert await service.heartbeat(first) is GroupErrorCode.REBALANCE_IN_PROGRESS
        assert not joining.done()
        rejoined = await service.groups.join(KEY, replace(JOIN, member_id=first))
        assert (rejoined.generation, len(rejoined.members)) == (2, 2)
        joined = await joining
        assert (joined.generation, joined.leader) == (2, first)
        assert joined.member_id.startswith("cli-")
        assert joined.member_id != first

    run(story)


def test_the_timer_ends_the_initial_delay_by_the_real_clock() -> None:
    async def story() -> None:
        service = Service(clock=SystemClock(), delay_ms=50)
        timer = asyncio.create_task(service.groups.run())
        try:
            answers = await asyncio.gather(*(service.groups.join(KEY, JOIN) for _ in range(3)))
        finally:
            timer.cancel()
        assert {answer.generation for answer in answers} == {1}
        assert sorted(len(answer.members) for answer in answers) == [0, 0, 3]

    run(story)


def test_an_earlier_deadline_wakes_the_timer() -> None:
    async def story() -> None:
        service = Service(clock=SystemClock(), delay_ms=50)
        timer = asyncio.create_task(service.groups.run())
        try:
            await settled()  # it waits, and knows no deadline yet
            assert (await service.groups.join(KEY, JOIN)).generation == 1
        finally:
            timer.cancel()

    run(story)


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        service.wait(SESSION_S - 0.5)
        assert await service.heartbeat(member_id) is NONE
        service.wait(SESSION_S - 0.5)
        assert await service.heartbeat(member_id) is NONE
        service.wait(SESSION_S + 0.5)
        assert await service.heartbeat(member_id) is GroupErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_a_pause_of_the_process_removes_nobody() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        service.wait(1)
        service.manual.now_s += 1000  # frozen: no tick ran
        service.groups.tick()
        assert await service.heartbeat(member_id) is NONE
        service.wait(SESSION_S + 0.5)
        assert await service.heartbeat(member_id) is GroupErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_heartbeats_do_not_fill_the_timer() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        for _ in range(1000):
            service.wait(0.1)
            await service.heartbeat(member_id)
        assert len(service.groups._timers) < 10
        assert service.manual.now_s > SESSION_S * 5

    run(story)


def test_a_client_whose_connection_is_lost_in_its_first_join_is_forgotten() -> None:
    async def story() -> None:
        service = Service()
        first = await service.stable_member()
        joining = asyncio.create_task(service.groups.join(KEY, JOIN))
        await settled()
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        rejoined = await service.groups.join(KEY, replace(JOIN, member_id=first))
        assert len(rejoined.members) == 1

    run(story)


def test_an_answer_that_nobody_waits_for_any_more_disturbs_nothing() -> None:
    async def story() -> None:
        service = Service()
        service.disk.is_slow = True
        joining = asyncio.create_task(service.groups.join(KEY, JOIN))
        await settled()
        joining.cancel()  # while its facts are written
        with pytest.raises(asyncio.CancelledError):
            await joining
        service.disk.commit()
        await settled()
        assert (await service.groups.describe(KEY)).state == "CompletingRebalance"

    run(story)


def test_projects_do_not_share_groups() -> None:
    async def story() -> None:
        service = Service()
        await service.stable_member()
        assert [listed.group_id for listed in (await service.groups.list("p")).groups] == ["g"]
        assert (await service.groups.list("q")).groups == ()
        assert (await service.groups.describe(KafkaGroupKey("q", "g"))).state == "Dead"

    run(story)


def test_deleting_a_group_and_its_logstore_and_project() -> None:
    async def story() -> None:
        service = Service()
        groups = service.groups
        other = ((TopicPartition(2, 0), 6, ""),)
        await groups.commit(KEY, COMMIT)
        await groups.commit(KEY, replace(COMMIT, offsets=other))
        groups.forget_logstore("p", 1)
        assert [p.logstore for p, _ in (await groups.fetch(KEY, None)).offsets] == [2]
        assert (await groups.delete(KEY)).error is NONE
        assert (await groups.fetch(KEY, None)).offsets == ()
        member_id = await service.stable_member()
        joining = asyncio.create_task(groups.join(KEY, JOIN))
        await settled()
        groups.forget_project("p")
        assert (await joining).error is GroupErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await service.heartbeat(member_id) is GroupErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_what_was_persisted_is_restored() -> None:
    async def story() -> None:
        service = Service()
        member_id = await service.stable_member()
        await service.groups.commit(KEY, replace(COMMIT, member_id=member_id, generation=1))
        after = Service()
        after.groups.restore(KEY, service.disk.saved[KEY])
        assert (await after.groups.describe(KEY)).state == "Stable"
        assert len((await after.groups.fetch(KEY, None)).offsets) == 1
        after.wait(SESSION_S - 0.5)
        assert await after.heartbeat(member_id) is NONE
        after.wait(SESSION_S + 0.5)
        assert await after.heartbeat(member_id) is GroupErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_a_restored_member_that_stays_silent_is_removed() -> None:
    async def story() -> None:
        service = Service()
        await service.stable_member()
        after = Service()
        after.groups.restore(KEY, service.disk.saved[KEY])
        after.wait(SESSION_S + 0.5)
        assert (await after.groups.describe(KEY)).state == "Empty"

    run(story)


def test_offsets_expire_when_the_service_says_so() -> None:
    async def story() -> None:
        groups = Service().groups
        await groups.commit(KEY, COMMIT)
        groups.cleanup(1)
        groups.cleanup(8 * 24 * 3_600_000)
        assert (await groups.describe(KEY)).state == "Dead"

    run(story)


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


HANG_S = 60.0  # a guard only


def test_each_key_is_due_once_at_its_earliest_deadline() -> None:
    timers: TimerHeap[str] = TimerHeap(ManualClock())
    for key, deadline_s in (("a", 5.0), ("a", 3.0), ("a", 4.0), ("b", 3.0), ("c", 9.0)):
        timers.set(key, deadline_s)
    timers.set("d", None)
    assert timers.due(2.9) == []
    assert sorted(timers.due(3.0)) == ["a", "b"]
    assert timers.due(8.9) == []  # the later entry of a does not count any more
    timers.set("a", 5.0)
    assert timers.due(9.0) == ["a", "c"]
    assert len(timers) == 0


def test_a_deadline_that_only_moves_to_later_times_adds_no_entry() -> None:
    timers: TimerHeap[str] = TimerHeap(ManualClock())
    for deadline_s in range(10, 1000):
        timers.set("a", float(deadline_s))
    assert len(timers) == 1


def test_waiting_ends_at_a_deadline_that_is_set_meanwhile() -> None:
    async def story() -> None:
        clock = SystemClock()
        timers: TimerHeap[str] = TimerHeap(clock)
        timers.set("late", clock.monotonic_s() + 1e6)
        async with asyncio.timeout(HANG_S):
            waiting = asyncio.create_task(timers.wait(at_most_s=1e6))
            await asyncio.sleep(0)
            timers.set("early", clock.monotonic_s() + 0.05)
            await waiting
        assert timers.due(clock.monotonic_s()) == ["early"]

    asyncio.run(story())


def test_waiting_ends_without_a_deadline() -> None:
    async def story() -> None:
        async with asyncio.timeout(HANG_S):
            await TimerHeap[str](SystemClock()).wait(at_most_s=0.01)

    asyncio.run(story())
