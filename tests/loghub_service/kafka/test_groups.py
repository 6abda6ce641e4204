"""The Kafka groups of a running service: answers wait for durability, one timer, pauses, lost connections."""

import asyncio
from dataclasses import replace

import pytest

from loghub.clock import SystemClock
from loghub_service.kafka.coordinator.group import GroupErrorCode, TopicPartition
from loghub_service.kafka.groups import KafkaGroupKey
from tests.loghub_service.kafka.coordinator.driver import NONE
from tests.loghub_service.kafka.group_service import COMMIT, JOIN, KEY, SESSION_S, Service, run, settled


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
