"""What follows from an assignment that a watch has seen: an earlier heartbeat, and nothing else."""

from loghub_consumer.membership.membership import Membership, MemberState, SendHeartbeat, ShardPhase
from tests.loghub_consumer.membership.test_membership import (
    SESSION_S,
    TIMINGS,
    heartbeat,
    holder,
    member,
    phases,
)


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
