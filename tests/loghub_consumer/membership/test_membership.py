"""The membership state machine. Each test is named from a state to the next; the time is a plain number.

An assignment that a watch has seen leads to an earlier heartbeat, and to nothing else.
"""

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.membership.membership import (
    LeaveRequest,
    Membership,
    MembershipTimings,
    MemberState,
    SendHeartbeat,
    ShardPhase,
    ShutdownMode,
)

TIMINGS = MembershipTimings(interval_s=5, timeout_s=30, margin_s=4)
SESSION_S = 26
JOINED_S = -10  # two intervals before 0


def heartbeat(membership: Membership, now: float, *assigned: int, answer_s: float = 0.0) -> SendHeartbeat:
    """Send the heartbeat that is due and answer it with these shards."""
    request = membership.poll(now)
    assert isinstance(request, SendHeartbeat)
    membership.answered(request.number, assigned, now=now + answer_s)
    return request


def member(*assigned: int) -> Membership:
    """Joined so long ago that its heartbeats no longer come more often; the last one was at 0."""
    membership = Membership(TIMINGS)
    membership.source_started()
    assert heartbeat(membership, JOINED_S, *assigned).held == ()
    heartbeat(membership, 0, *assigned)
    return membership


def holder(*shards: int, position: int = 10) -> Membership:
    membership = member(*shards)
    for held in membership.shards:
        membership.opened(held.shard, epoch=held.epoch, position=position, saved=position)
    return membership


def phases(membership: Membership) -> dict[int, ShardPhase]:
    return {held.shard: held.phase for held in membership.shards}


def commit(membership: Membership, shard: int, begin: int, end: int) -> None:
    membership.committed((Range(shard, begin, end),), logs={shard: end - begin}, read_bytes={})


def save(membership: Membership, shard: int, cursor: int) -> None:
    epoch = next(held.epoch for held in membership.shards if held.shard == shard)
    membership.saved(shard, epoch=epoch, cursor=cursor)


def test_joining_sends_an_empty_heartbeat_immediately() -> None:
    membership = Membership(TIMINGS)
    assert membership.wake_in_s(100) == 0
    assert membership.poll(100) == SendHeartbeat(1, ())
    assert membership.state is MemberState.JOINING


def test_joining_to_member_opens_the_assigned_shards() -> None:
    membership = member(0, 3)
    assert membership.state is MemberState.MEMBER
    assert phases(membership) == {0: ShardPhase.OPENING, 3: ShardPhase.OPENING}
    assert membership.positions == {}


def test_no_second_heartbeat_is_sent_while_one_is_in_flight() -> None:
    membership = Membership(TIMINGS)
    assert membership.poll(0) is not None
    assert membership.poll(1) is None


def test_member_sends_a_heartbeat_every_interval_counted_from_sending() -> None:
    membership = member()
    assert membership.poll(4.9) is None
    assert membership.wake_in_s(4) == pytest.approx(1)
    heartbeat(membership, 5.5, answer_s=2)
    assert membership.poll(10.4) is None
    assert membership.poll(10.5) is not None


def times_of_heartbeats(membership: Membership, begin: float, *assigned: int, until: float) -> list[float]:
    times, now = [], begin
    while now < until:
        now += membership.wake_in_s(now)
        if membership.poll(now) is not None:
            times.append(round(now, 3))
            membership.answered(len(times) + 1, assigned, now=now)
    return times


def test_heartbeats_come_more_often_for_two_intervals_after_a_change_of_the_assignment() -> None:
    """A consumer that joined learns soon which shards others gave up for it."""
    membership = Membership(TIMINGS)
    heartbeat(membership, 100)
    assert times_of_heartbeats(membership, 100, until=120) == [*range(101, 111), 115, 120]


def test_an_interval_below_a_second_is_not_divided() -> None:
    membership = Membership(MembershipTimings(interval_s=0.1, timeout_s=30, margin_s=4))
    heartbeat(membership, 100)
    assert times_of_heartbeats(membership, 100, until=100.25) == [100.1, 100.2, 100.3]


def test_failed_heartbeat_is_retried_soon_and_revokes_nothing() -> None:
    membership = holder(1)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    membership.failed(request.number, now=7)
    assert membership.poll(7.9) is None
    assert isinstance(membership.poll(8), SendHeartbeat)
    assert membership.positions == {1: 10}


def test_a_consumer_that_the_group_has_forgotten_gives_up_its_shards_and_joins_again_at_once() -> None:
    membership = holder(1)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    assert request.held == (1,)
    membership.forgotten(request.number)
    assert (membership.state, membership.shards) == (MemberState.FENCED, ())
    assert not membership.may_commit((Range(1, 10, 11),), now=5)
    assert heartbeat(membership, 5, 1, 2).held == ()
    assert membership.state is MemberState.MEMBER
    assert [held.shard for held in membership.shards] == [1, 2]


def test_failed_heartbeats_are_retried_after_growing_pauses_of_at_most_an_interval() -> None:
    """Pauses of 1, 2 and 4 s, then of an interval of 5 s; an answer starts again with 1 s."""
    membership, now = holder(1), 5.0
    for pause_s in (1, 2, 4, 5, 5):
        request = membership.poll(now)
        assert isinstance(request, SendHeartbeat)
        membership.failed(request.number, now=now)
        assert membership.poll(now + pause_s - 0.1) is None
        assert membership.wake_in_s(now) <= pause_s
        now += pause_s
    heartbeat(membership, now, 1)
    request = membership.poll(now + 5)
    assert isinstance(request, SendHeartbeat)
    membership.failed(request.number, now=now + 5)
    assert isinstance(membership.poll(now + 6), SendHeartbeat)


def test_two_workers_that_fail_together_do_not_retry_together() -> None:
    times = []
    for chance in (0.0, 1.0):
        membership = Membership(TIMINGS, random=lambda chance=chance: chance)
        request = membership.poll(0)
        assert isinstance(request, SendHeartbeat)
        membership.failed(request.number, now=0)
        times.append(membership.wake_in_s(0))
    assert times == [0.5, 1.0]


def test_opening_to_open_passes_the_position_to_the_source_under_a_new_version() -> None:
    membership = member(2)
    before = membership.version
    membership.opened(2, epoch=membership.shards[0].epoch, position=7, saved=7)
    assert membership.positions == {2: 7}
    assert membership.version > before
    assert heartbeat(membership, 5, 2).held == (2,)


def test_opening_to_revoked_is_released_immediately_and_a_late_opening_changes_nothing() -> None:
    membership = member(2)
    epoch = membership.shards[0].epoch
    heartbeat(membership, 5)
    assert membership.shards == ()
    assert membership.wake_in_s(5) == 0
    heartbeat(membership, 5, 2)
    membership.opened(2, epoch=epoch, position=7, saved=7)
    assert phases(membership) == {2: ShardPhase.OPENING}


def test_open_to_draining_keeps_reporting_until_source_and_checkpoint_are_done() -> None:
    membership = holder(1, 2)
    heartbeat(membership, 5, 2)
    assert phases(membership) == {1: ShardPhase.DRAINING, 2: ShardPhase.OPEN}
    assert membership.positions == {2: 10}
    commit(membership, 1, 10, 20)  # the batch that was running
    version = membership.version
    assert heartbeat(membership, 10, 2).held == (1, 2)
    membership.source_saw(version)
    assert phases(membership)[1] is ShardPhase.DRAINING, "the checkpoint is not saved yet"
    save(membership, 1, 20)
    assert phases(membership) == {2: ShardPhase.OPEN}


def test_draining_to_released_sends_a_heartbeat_immediately_without_the_shard() -> None:
    membership = holder(1, 2)
    heartbeat(membership, 5, 2)
    membership.source_saw(membership.version)
    assert membership.wake_in_s(5.5) == 0
    assert heartbeat(membership, 5.5, 2).held == (2,)


def test_release_while_a_heartbeat_is_in_flight_is_reported_after_its_answer() -> None:
    membership = holder(0)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    assert request.held == (0,)
    membership.source_stopped()
    membership.set_shutdown_mode(ShutdownMode.LEAVE)
    assert phases(membership) == {}
    membership.answered(request.number, (0,), now=5.1)
    assert membership.wake_in_s(5.1) == 0
    assert isinstance(membership.poll(5.1), LeaveRequest)


def test_draining_does_not_end_with_an_older_report_of_the_source() -> None:
    membership = holder(1)
    membership.source_saw(membership.version)
    heartbeat(membership, 5)
    membership.source_saw(membership.version - 1)
    assert phases(membership) == {1: ShardPhase.DRAINING}


def test_draining_shard_that_is_assigned_again_is_released_first() -> None:
    membership = holder(1)
    heartbeat(membership, 5)
    heartbeat(membership, 10, 1)
    assert phases(membership) == {1: ShardPhase.DRAINING}
    membership.source_saw(membership.version)
    assert heartbeat(membership, 10.1, 1).held == ()
    assert phases(membership) == {1: ShardPhase.OPENING}


def test_draining_ends_without_a_source() -> None:
    membership = holder(1)
    heartbeat(membership, 5)
    membership.source_stopped()
    assert membership.shards == ()


def test_draining_shard_whose_checkpoint_is_refused_is_released_without_it() -> None:
    membership = holder(1)
    commit(membership, 1, 10, 20)
    heartbeat(membership, 5)
    membership.source_saw(membership.version)
    membership.refused(1, epoch=membership.shards[0].epoch)
    assert membership.shards == ()


def test_member_to_fenced_when_no_heartbeat_succeeds_during_the_session() -> None:
    membership = holder(1)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    membership.failed(request.number, now=6)
    assert membership.may_commit((Range(1, 10, 20),), now=SESSION_S - 0.1)
    assert not membership.may_commit((Range(1, 10, 20),), now=SESSION_S)
    assert membership.state is MemberState.FENCED
    assert membership.positions == {}


def test_session_starts_when_the_successful_heartbeat_was_sent() -> None:
    membership = holder(1)
    heartbeat(membership, 5, 1, answer_s=3)
    assert membership.session_left_s(5) == SESSION_S
    assert membership.wake_in_s(5) <= 5


def test_fenced_to_member_reports_nothing_and_opens_its_shards_again() -> None:
    membership = holder(1)
    assert membership.poll(SESSION_S) == SendHeartbeat(3, ())
    membership.answered(3, (1,), now=SESSION_S + 1)
    assert membership.state is MemberState.MEMBER
    assert phases(membership) == {1: ShardPhase.OPENING}
    assert not membership.may_commit((Range(1, 10, 20),), now=SESSION_S + 1)


def test_answer_that_arrives_after_its_own_session_changes_nothing() -> None:
    membership = holder(1)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    membership.answered(request.number, (1, 2), now=5 + SESSION_S)
    assert phases(membership) == {1: ShardPhase.OPEN}
    second = membership.poll(5 + SESSION_S)
    assert isinstance(second, SendHeartbeat)
    assert second.held == ()
    assert membership.state is MemberState.FENCED


def test_answer_of_another_request_changes_nothing() -> None:
    membership = holder(1)
    request = membership.poll(5)
    assert isinstance(request, SendHeartbeat)
    membership.answered(request.number - 1, (), now=5)
    assert phases(membership) == {1: ShardPhase.OPEN}
    assert membership.poll(6) is None, "the request itself is still in flight"


def test_commit_moves_the_position_only_if_its_range_begins_there() -> None:
    membership = holder(1)
    assert not membership.may_commit((Range(1, 9, 20),), now=1)
    commit(membership, 1, 9, 20)
    assert membership.positions == {1: 10}
    commit(membership, 1, 10, 20)
    assert membership.positions == {1: 20}
    assert membership.shards[0].logs == 10
    assert [held.shard for held in membership.unsaved()] == [1]
    save(membership, 1, 20)
    assert membership.unsaved() == ()


def test_batch_with_a_shard_that_is_not_held_may_not_commit() -> None:
    membership = holder(1)
    assert not membership.may_commit((Range(1, 10, 20), Range(2, 0, 5)), now=1)


def test_open_to_reopened_withdraws_the_position_and_ignores_late_checkpoints() -> None:
    membership = holder(1)
    old = membership.shards[0].epoch
    membership.reopen(1)
    assert phases(membership) == {1: ShardPhase.OPENING}
    assert membership.positions == {}
    membership.saved(1, epoch=old, cursor=99)
    assert membership.shards[0].saved == 10
    membership.opened(1, epoch=membership.shards[0].epoch, position=20, saved=20)
    assert membership.positions == {1: 20}


def test_serve_to_stop_drains_but_stays_a_member() -> None:
    membership = holder(1)
    membership.set_shutdown_mode(ShutdownMode.STOP)
    assert phases(membership) == {1: ShardPhase.DRAINING}
    membership.source_saw(membership.version)
    assert membership.drained
    assert heartbeat(membership, 5, 1, 2).held == (1,)
    assert phases(membership) == {1: ShardPhase.DRAINED}, "no new shard is opened"


def test_serve_to_leave_releases_every_shard_then_leaves() -> None:
    membership = holder(1)
    membership.set_shutdown_mode(ShutdownMode.LEAVE)
    assert heartbeat(membership, 1, 1).held == (1,)
    membership.source_saw(membership.version)
    request = membership.poll(2)
    assert isinstance(request, LeaveRequest)
    membership.left(request.number)
    assert membership.state is MemberState.LEFT
    assert membership.poll(1000) is None


def test_failed_leave_is_retried() -> None:
    membership = member()
    membership.set_shutdown_mode(ShutdownMode.LEAVE)
    request = membership.poll(1)
    assert isinstance(request, LeaveRequest)
    membership.failed(request.number, now=1)
    assert isinstance(membership.poll(2), LeaveRequest)


def test_stop_to_leave_releases_drained_shards() -> None:
    membership = holder(1)
    membership.set_shutdown_mode(ShutdownMode.STOP)
    membership.source_saw(membership.version)
    membership.set_shutdown_mode(ShutdownMode.LEAVE)
    assert membership.shards == ()
    assert isinstance(membership.poll(5), LeaveRequest)
    membership.set_shutdown_mode(ShutdownMode.STOP)
    assert membership.shutdown_mode is ShutdownMode.LEAVE


def test_abandoned_shards_are_not_committed_saved_or_assigned_again_and_the_consumer_leaves() -> None:
    """Also if a heartbeat that still reported them is answered afterwards."""
    membership = holder(1, 2)
    commit(membership, 1, 10, 20)
    late = membership.poll(5)
    assert isinstance(late, SendHeartbeat)
    membership.abandon()
    assert membership.positions == {}
    assert membership.unsaved() == ()
    membership.answered(late.number, (1, 2, 3), now=6)
    assert membership.shards == ()
    assert not membership.may_commit((Range(2, 10, 20),), now=6)
    commit(membership, 2, 10, 20)
    assert membership.shards == ()
    request = membership.poll(6)
    assert isinstance(request, LeaveRequest)
    membership.left(request.number)
    assert membership.state is MemberState.LEFT


def test_a_change_that_was_seen_sends_the_next_heartbeat_early_and_changes_nothing_else() -> None:
    membership = holder(1, 2)
    before = (membership.shards, membership.state, membership.session_left_s(1))
    membership.assignment_seen((1, 2), now=1)
    assert membership.poll(1) is None
    membership.assignment_seen((1,), now=1)
    assert (membership.shards, membership.state, membership.session_left_s(1)) == before
    assert heartbeat(membership, 1, 1) == SendHeartbeat(3, (1, 2))
    assert phases(membership)[2] is ShardPhase.DRAINING


def test_changes_that_are_seen_all_the_time_send_no_more_heartbeats_than_a_changing_group() -> None:
    membership, sent = member(1), []
    for tick in range(1, 101):
        now = tick / 100
        membership.assignment_seen((1, 2) if tick % 2 else (1, 3), now=now)
        if membership.poll(now) is not None:
            sent.append(now)
            membership.answered(2 + len(sent), (1,), now=now)
    assert 3 <= len(sent) <= 5


def test_a_change_that_is_seen_while_a_heartbeat_is_in_flight_sends_another_one() -> None:
    membership = member(1)
    request = membership.poll(5)
    assert request is not None
    membership.assignment_seen((1, 2), now=5)
    membership.answered(request.number, (1,), now=5)
    assert isinstance(membership.poll(5), SendHeartbeat)


def test_a_change_is_no_reason_for_a_heartbeat_after_a_failed_one_or_without_a_session() -> None:
    membership = member(1)
    request = membership.poll(5)
    assert request is not None
    membership.failed(request.number, now=5)
    due_s = membership.wake_in_s(5)
    membership.assignment_seen((1, 2), now=5)
    assert membership.wake_in_s(5) == due_s > 0
    joining = Membership(TIMINGS)
    joining.assignment_seen((1,), now=0)
    assert joining.shards == ()


def test_a_session_ends_whatever_changes_are_seen() -> None:
    membership = holder(1)
    for now in range(SESSION_S + 1):
        membership.assignment_seen((1,), now=now)
    assert membership.poll(SESSION_S) == SendHeartbeat(3, ())
    assert membership.state is MemberState.FENCED
