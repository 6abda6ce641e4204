"""SyncGroup, Heartbeat, LeaveGroup, sessions, and DescribeGroups."""

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode, KafkaGroupLimits
from loghub_service.kafka.coordinator.requests import PauseDetected, TimePassed
from loghub_service.kafka.coordinator.states import KafkaGroupState
from loghub_service.kafka.coordinator.step import describe
from tests.loghub_service.kafka.coordinator.driver import NONE, REBALANCE_MS, SESSION_MS, Driver

SESSION_S, REBALANCE_S = SESSION_MS / 1000, REBALANCE_MS / 1000


# SyncGroup


def test_followers_wait_for_the_leader_whose_bytes_reach_them_unchanged() -> None:
    group = Driver()
    group.rejoin("a", "b", "c")
    waiting = group.start_sync("b")
    assert waiting not in group.answers
    everything = bytes(range(256))
    assert group.assign(a=b"\0", b=everything, unknown=b"x").assignment == b"\0"
    assert group.synced(waiting).assignment == everything
    late = group.synced(group.start_sync("c"))
    assert (late.error, late.assignment) == (NONE, b"")  # the leader did not name it


def test_sync_of_another_generation_or_an_unknown_member_is_refused() -> None:
    group = Driver()
    group.rejoin("a", "b")
    assert group.synced(group.start_sync("b", generation=1)).error is GroupErrorCode.ILLEGAL_GENERATION
    assert group.synced(group.start_sync("x")).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.synced(group.start_sync("a", generation=3)).error is GroupErrorCode.ILLEGAL_GENERATION
    assert group.state is KafkaGroupState.COMPLETING_REBALANCE


def test_sync_gets_27_as_soon_as_the_group_rebalances_again() -> None:
    group = Driver()
    group.rejoin("a", "b")
    waiting = group.start_sync("b")
    group.start_join("c")
    assert group.synced(waiting).error is GroupErrorCode.REBALANCE_IN_PROGRESS
    late = group.synced(group.start_sync("a", assignments=(("b", b"B"),)))
    assert (late.error, group.state) == (
        GroupErrorCode.REBALANCE_IN_PROGRESS,
        KafkaGroupState.PREPARING_REBALANCE,
    )
    assert group.synced(group.start_sync("a", generation=1)).error is GroupErrorCode.ILLEGAL_GENERATION
    assert group.synced(group.start_sync("x")).error is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_sync_takes_the_place_of_the_one_that_waits() -> None:
    group = Driver()
    group.rejoin("a", "b")
    earlier, later = group.start_sync("b"), group.start_sync("b")
    assert group.synced(earlier).error is GroupErrorCode.REBALANCE_IN_PROGRESS
    group.assign(b=b"B")
    assert group.synced(later).assignment == b"B"


def test_a_follower_cannot_assign() -> None:
    group = Driver()
    group.rejoin("a", "b")
    waiting = group.start_sync("b", assignments=(("b", b"all"),))
    group.assign(b=b"B")
    assert group.synced(waiting).assignment == b"B"


def test_an_assignment_beyond_the_limit_is_refused() -> None:
    group = Driver(KafkaGroupLimits(max_assignment_bytes=10, initial_rebalance_delay_ms=0))
    group.rejoin("a")
    assert group.assign(a=bytes(5), b=bytes(6)).error is GroupErrorCode.INVALID_REQUEST
    large = group.start_sync("x", assignments=(("a", bytes(11)),))
    assert group.synced(large).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is KafkaGroupState.COMPLETING_REBALANCE
    assert group.assign(a=bytes(5), b=bytes(5)).error is NONE


def test_a_leader_that_does_not_assign_is_dropped_after_the_rebalance_timeout() -> None:
    group = Driver()
    group.rejoin("a", "b")
    waiting = group.start_sync("b")
    for _ in range(12):
        group.wait(4.99)
        assert group.heartbeat("a") is NONE
    group.wait(0.2)
    assert group.synced(waiting).error is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert group.joined(group.start_join("", member_id="b")).leader == "b"


def test_a_member_that_does_not_fetch_its_assignment_is_dropped_after_the_rebalance_timeout() -> None:
    group = Driver()
    group.rejoin("a", "b")
    group.assign(a=b"A", b=b"B")
    for _ in range(13):
        group.wait(4.99)
        group.heartbeat("a")
        group.heartbeat("b")
    assert set(group.group.members) == {"a"}
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


# Heartbeat


def test_heartbeats_by_state() -> None:
    group = Driver()
    group.rejoin("a", "b")
    assert group.heartbeat("b") is NONE  # the leader assigns
    group.assign()
    assert group.heartbeat("b") is NONE
    group.start_join("c")
    assert group.heartbeat("b") is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_of_another_generation_or_an_unknown_member_are_refused() -> None:
    group = Driver()
    assert group.heartbeat("a", generation=1) is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.stable("a", "b")
    assert group.heartbeat("a", generation=1) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat("a", generation=3) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat("x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.start_join("c")
    assert group.heartbeat("a", generation=1) is GroupErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_is_removed_after_its_session_and_not_before() -> None:
    group = Driver()
    group.stable("a", "b")
    group.wait(SESSION_S - 1)
    group.heartbeat("b")
    group.wait(0.9)
    assert group.state is KafkaGroupState.STABLE
    group.wait(0.2)
    assert set(group.group.members) == {"b"}
    assert group.heartbeat("b") is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat("a") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_rejected_heartbeat_keeps_no_session_alive() -> None:
    group = Driver()
    group.stable("a", "b")
    for _ in range(3):
        group.wait(SESSION_S / 3)
        group.heartbeat("b")
        group.heartbeat("a", generation=1)
    group.wait(0.1)
    assert set(group.group.members) == {"b"}


def test_slow_processing_with_heartbeats_causes_no_rebalance() -> None:
    group = Driver()
    group.stable("a", "b")
    for _ in range(100):
        group.wait(3)
        assert (group.heartbeat("a"), group.heartbeat("b")) == (NONE, NONE)
    assert group.group.generation == 2


def test_sessions_do_not_run_while_a_request_waits_and_begin_with_the_answer() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c", rebalance_timeout_ms=SESSION_MS * 5)
    group.start_join("", member_id="b")
    for _ in range(3):
        group.wait(SESSION_S - 1)
        group.heartbeat("a")
    group.start_join("", member_id="a")
    assert set(group.group.members) == {"a", "b", "c"}
    group.wait(SESSION_S - 0.1)
    assert set(group.group.members) == {"a", "b", "c"}
    group.wait(0.2)
    assert group.state is KafkaGroupState.EMPTY


def test_time_that_the_service_was_paused_is_no_silence() -> None:
    group = Driver()
    group.stable("a", "b")
    group.wait(SESSION_S - 1)
    group.heartbeat("b")
    group.now += 1000  # frozen
    group.apply(PauseDetected(pause_s=1000))
    group.apply(TimePassed())
    assert group.state is KafkaGroupState.STABLE
    group.wait(0.9)
    assert group.state is KafkaGroupState.STABLE
    group.wait(0.2)
    assert set(group.group.members) == {"b"}  # of a second that was left to it, and no more


def test_a_tick_before_any_deadline_changes_nothing() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=3000))
    group.start_join("x", requires_member_id=True)
    group.start_join("a")
    for state in (KafkaGroupState.PREPARING_REBALANCE, KafkaGroupState.COMPLETING_REBALANCE):
        assert group.state is state
        before = group.group
        group.apply(TimePassed())
        assert group.group == before
        group.wait(3)


def test_rejoining_unchanged_keeps_the_session_alive() -> None:
    group = Driver()
    group.stable("a", "b")
    group.wait(SESSION_S - 1)
    group.heartbeat("a")
    assert group.joined(group.start_join("", member_id="b")).error is NONE
    group.wait(SESSION_S - 1)
    assert set(group.group.members) == {"a", "b"}


def test_a_pause_extends_no_timeout_beyond_a_full_one() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=3000))
    group.start_join("a", requires_member_id=True)
    group.start_join("b")
    group.wait(1)
    expires = group.group.pending["a"]
    group.apply(PauseDetected(pause_s=1000))
    assert group.group.pending["a"] == expires + 1000
    assert group.group.rebalance_end_s == group.now + REBALANCE_S
    assert group.group.initial_end_s == group.now + REBALANCE_S
    group.wait(REBALANCE_S + 1)
    group.apply(PauseDetected(pause_s=1000))
    assert group.group.sync_end_s == group.now + REBALANCE_S
    assert group.group.members["b"].expires_s == group.now + SESSION_S


# LeaveGroup


def test_leaving_frees_the_place_at_once() -> None:
    group = Driver()
    group.stable("a", "b")
    assert group.leave(("a", None)) == (NONE,)
    assert group.state is KafkaGroupState.PREPARING_REBALANCE
    answer = group.joined(group.start_join("", member_id="b"))
    assert (answer.generation, answer.leader, len(answer.members)) == (3, "b", 1)


def test_the_last_to_leave_leaves_an_empty_group_and_a_generation() -> None:
    group = Driver()
    group.stable("a", "b")
    assert group.leave(("a", None), ("b", None), ("a", None), ("x", None)) == (
        NONE,
        NONE,
        GroupErrorCode.UNKNOWN_MEMBER_ID,
        GroupErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert (group.state, group.group.generation) == (KafkaGroupState.EMPTY, 3)
    assert group.joined(group.start_join("c")).generation == 4


def test_leaving_while_requests_wait_answers_them() -> None:
    group = Driver()
    group.rejoin("a", "b")
    waiting = group.start_sync("b")
    group.leave(("b", None))
    assert group.synced(waiting).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    rejoining = group.start_join("c")
    group.leave(("c", None))
    assert group.joined(rejoining).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.joined(group.start_join("", member_id="a")).generation == 3


def test_a_member_id_that_was_given_out_can_leave() -> None:
    group = Driver()
    group.start_join("a", requires_member_id=True)
    assert group.leave(("a", None)) == (NONE,)
    assert group.join_error("", member_id="a") is GroupErrorCode.UNKNOWN_MEMBER_ID


# DescribeGroups


@pytest.mark.parametrize("with_assignment", [False, True])
def test_a_description_has_assignments_only_of_a_stable_group(with_assignment: bool) -> None:
    group = Driver()
    assert describe(group.group).state == "Dead"
    group.rejoin("a", "b", client_id="cli", client_host="/127.0.0.1")
    if with_assignment:
        group.assign(a=b"A", b=b"B")
    described = describe(group.group)
    assert (described.error, described.state) == (NONE, group.state.value)
    assert described.protocol == ("range" if with_assignment else "")
    assert described.protocol_type == "consumer"
    assert [m.assignment for m in described.members] == ([b"A", b"B"] if with_assignment else [b"", b""])
    assert [bool(m.metadata) for m in described.members] == [with_assignment] * 2
    assert {(m.client_id, m.client_host) for m in described.members} == {("cli", "/127.0.0.1")}
