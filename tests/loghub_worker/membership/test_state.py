"""The membership core: each test goes from one state to another, with a clock of plain numbers."""

import pytest

from loghub_worker.batch_plan import Range
from loghub_worker.membership.state import (
    Beat,
    Leave,
    Membership,
    MembershipTimings,
    MemberState,
    Phase,
    ShutdownMode,
)

TERMS = MembershipTimings(interval_s=5, timeout_s=30, margin_s=4)
LEASE_S = 26


def beat(consumer: Membership, now: float, *named: int, answer_s: float = 0.0) -> Beat:
    """Send the due beat and answer it with these shards."""
    request = consumer.poll(now)
    assert isinstance(request, Beat)
    consumer.answered(request.number, named, now=now + answer_s)
    return request


def member(*named: int) -> Membership:
    consumer = Membership(TERMS)
    consumer.source_started()
    assert beat(consumer, 0, *named).held == ()
    return consumer


def holder(*shards: int, position: int = 10) -> Membership:
    consumer = member(*shards)
    for held in consumer.shards:
        consumer.opened(held.shard, epoch=held.epoch, position=position, saved=position)
    return consumer


def phases(consumer: Membership) -> dict[int, Phase]:
    return {held.shard: held.phase for held in consumer.shards}


def commit(consumer: Membership, shard: int, begin: int, end: int) -> None:
    consumer.committed((Range(shard, begin, end),), logs={shard: end - begin}, read_bytes={})


def save(consumer: Membership, shard: int, cursor: int) -> None:
    take = next(held.epoch for held in consumer.shards if held.shard == shard)
    consumer.saved(shard, epoch=take, cursor=cursor)


def test_from_nothing_to_joining_sends_an_empty_beat_at_once() -> None:
    consumer = Membership(TERMS)
    assert consumer.wake_in_s(100) == 0
    assert consumer.poll(100) == Beat(1, ())
    assert consumer.standing is MemberState.JOINING


def test_joining_to_member_takes_what_the_answer_names() -> None:
    consumer = member(0, 3)
    assert consumer.standing is MemberState.MEMBER
    assert phases(consumer) == {0: Phase.OPENING, 3: Phase.OPENING}
    assert consumer.positions == {}


def test_a_beat_under_way_is_not_sent_twice() -> None:
    consumer = Membership(TERMS)
    assert consumer.poll(0) is not None
    assert consumer.poll(1) is None


def test_member_beats_every_interval_counted_from_sending() -> None:
    consumer = member()
    assert consumer.poll(4.9) is None
    assert consumer.wake_in_s(4) == pytest.approx(1)
    beat(consumer, 5.5, answer_s=2)
    assert consumer.poll(10.4) is None
    assert consumer.poll(10.5) is not None


def test_failed_beat_is_repeated_soon_and_nothing_is_dropped() -> None:
    consumer = holder(1)
    request = consumer.poll(5)
    assert isinstance(request, Beat)
    consumer.failed(request.number, now=7)
    assert consumer.poll(7.9) is None
    assert isinstance(consumer.poll(8), Beat)
    assert consumer.positions == {1: 10}


def test_opening_to_open_hands_the_position_to_the_source_under_a_new_version() -> None:
    consumer = member(2)
    before = consumer.version
    consumer.opened(2, epoch=consumer.shards[0].epoch, position=7, saved=7)
    assert consumer.positions == {2: 7}
    assert consumer.version > before
    assert beat(consumer, 5, 2).held == (2,)


def test_opening_to_dropped_is_given_up_at_once_and_a_late_opening_changes_nothing() -> None:
    consumer = member(2)
    take = consumer.shards[0].epoch
    beat(consumer, 5)
    assert consumer.shards == ()
    assert consumer.wake_in_s(5) == 0
    beat(consumer, 5, 2)
    consumer.opened(2, epoch=take, position=7, saved=7)
    assert phases(consumer) == {2: Phase.OPENING}


def test_open_to_draining_keeps_reporting_until_source_and_checkpoint_are_done() -> None:
    consumer = holder(1, 2)
    beat(consumer, 5, 2)
    assert phases(consumer) == {1: Phase.DRAINING, 2: Phase.OPEN}
    assert consumer.positions == {2: 10}
    commit(consumer, 1, 10, 20)  # the batch that was under way
    version = consumer.version
    assert beat(consumer, 10, 2).held == (1, 2)
    consumer.source_saw(version)
    assert phases(consumer)[1] is Phase.DRAINING, "the checkpoint is not saved yet"
    save(consumer, 1, 20)
    assert phases(consumer) == {2: Phase.OPEN}


def test_draining_to_given_up_beats_at_once_without_the_shard() -> None:
    consumer = holder(1, 2)
    beat(consumer, 5, 2)
    consumer.source_saw(consumer.version)
    assert consumer.wake_in_s(5.5) == 0
    assert beat(consumer, 5.5, 2).held == (2,)


def test_given_up_while_a_beat_is_under_way_is_told_as_soon_as_that_is_answered() -> None:
    consumer = holder(0)
    request = consumer.poll(5)
    assert isinstance(request, Beat)
    assert request.held == (0,)
    consumer.source_stopped()
    consumer.set_goal(ShutdownMode.LEAVE)
    assert phases(consumer) == {}
    consumer.answered(request.number, (0,), now=5.1)
    assert consumer.wake_in_s(5.1) == 0
    assert isinstance(consumer.poll(5.1), Leave)


def test_draining_does_not_end_by_an_older_report_of_the_source() -> None:
    consumer = holder(1)
    consumer.source_saw(consumer.version)
    beat(consumer, 5)
    consumer.source_saw(consumer.version - 1)
    assert phases(consumer) == {1: Phase.DRAINING}


def test_draining_shard_named_again_goes_through_give_up_first() -> None:
    consumer = holder(1)
    beat(consumer, 5)
    beat(consumer, 10, 1)
    assert phases(consumer) == {1: Phase.DRAINING}
    consumer.source_saw(consumer.version)
    assert beat(consumer, 10.1, 1).held == ()
    assert phases(consumer) == {1: Phase.OPENING}


def test_draining_ends_without_a_source() -> None:
    consumer = holder(1)
    beat(consumer, 5)
    consumer.source_stopped()
    assert consumer.shards == ()


def test_draining_refused_by_the_service_is_given_up_without_a_checkpoint() -> None:
    consumer = holder(1)
    commit(consumer, 1, 10, 20)
    beat(consumer, 5)
    consumer.source_saw(consumer.version)
    consumer.refused(1, epoch=consumer.shards[0].epoch)
    assert consumer.shards == ()


def test_member_to_fenced_when_no_beat_was_good_for_the_lease() -> None:
    consumer = holder(1)
    request = consumer.poll(5)
    assert isinstance(request, Beat)
    consumer.failed(request.number, now=6)
    assert consumer.may_commit((Range(1, 10, 20),), now=LEASE_S - 0.1)
    assert not consumer.may_commit((Range(1, 10, 20),), now=LEASE_S)
    assert consumer.standing is MemberState.FENCED
    assert consumer.positions == {}


def test_lease_counts_from_when_the_good_beat_was_sent() -> None:
    consumer = holder(1)
    beat(consumer, 5, 1, answer_s=3)
    assert consumer.lease_s(5) == LEASE_S
    assert consumer.wake_in_s(5) <= 5


def test_fenced_to_member_reports_nothing_and_takes_anew() -> None:
    consumer = holder(1)
    assert consumer.poll(LEASE_S) == Beat(2, ())
    consumer.answered(2, (1,), now=LEASE_S + 1)
    assert consumer.standing is MemberState.MEMBER
    assert phases(consumer) == {1: Phase.OPENING}
    assert not consumer.may_commit((Range(1, 10, 20),), now=LEASE_S + 1)


def test_answer_that_comes_after_its_own_lease_changes_nothing() -> None:
    consumer = holder(1)
    request = consumer.poll(5)
    assert isinstance(request, Beat)
    consumer.answered(request.number, (1, 2), now=5 + LEASE_S)
    assert phases(consumer) == {1: Phase.OPEN}
    again = consumer.poll(5 + LEASE_S)
    assert isinstance(again, Beat)
    assert again.held == ()
    assert consumer.standing is MemberState.FENCED


def test_answer_of_another_request_changes_nothing() -> None:
    consumer = holder(1)
    request = consumer.poll(5)
    assert isinstance(request, Beat)
    consumer.answered(request.number - 1, (), now=5)
    assert phases(consumer) == {1: Phase.OPEN}
    assert consumer.poll(6) is None, "the real one is still under way"


def test_commit_moves_the_position_only_from_exactly_there() -> None:
    consumer = holder(1)
    assert not consumer.may_commit((Range(1, 9, 20),), now=1)
    commit(consumer, 1, 9, 20)
    assert consumer.positions == {1: 10}
    commit(consumer, 1, 10, 20)
    assert consumer.positions == {1: 20}
    assert consumer.shards[0].logs == 10
    assert [held.shard for held in consumer.unsaved()] == [1]
    save(consumer, 1, 20)
    assert consumer.unsaved() == ()


def test_batch_with_one_foreign_shard_may_not_commit() -> None:
    consumer = holder(1)
    assert not consumer.may_commit((Range(1, 10, 20), Range(2, 0, 5)), now=1)


def test_open_to_reopened_takes_the_shard_from_the_source_and_late_saves_miss_it() -> None:
    consumer = holder(1)
    old = consumer.shards[0].epoch
    consumer.reopen(1)
    assert phases(consumer) == {1: Phase.OPENING}
    assert consumer.positions == {}
    consumer.saved(1, epoch=old, cursor=99)
    assert consumer.shards[0].saved == 10
    consumer.opened(1, epoch=consumer.shards[0].epoch, position=20, saved=20)
    assert consumer.positions == {1: 20}


def test_serve_to_stop_drains_but_stays_a_member() -> None:
    consumer = holder(1)
    consumer.set_goal(ShutdownMode.STOP)
    assert phases(consumer) == {1: Phase.DRAINING}
    consumer.source_saw(consumer.version)
    assert consumer.drained
    assert beat(consumer, 5, 1, 2).held == (1,)
    assert phases(consumer) == {1: Phase.DRAINED}, "new shards are not taken"


def test_serve_to_leave_gives_everything_up_then_leaves() -> None:
    consumer = holder(1)
    consumer.set_goal(ShutdownMode.LEAVE)
    assert beat(consumer, 1, 1).held == (1,)
    consumer.source_saw(consumer.version)
    request = consumer.poll(2)
    assert isinstance(request, Leave)
    consumer.left(request.number)
    assert consumer.standing is MemberState.LEFT
    assert consumer.poll(1000) is None


def test_failed_leave_is_tried_again() -> None:
    consumer = member()
    consumer.set_goal(ShutdownMode.LEAVE)
    request = consumer.poll(1)
    assert isinstance(request, Leave)
    consumer.failed(request.number, now=1)
    assert isinstance(consumer.poll(2), Leave)


def test_stop_to_leave_gives_drained_shards_up() -> None:
    consumer = holder(1)
    consumer.set_goal(ShutdownMode.STOP)
    consumer.source_saw(consumer.version)
    consumer.set_goal(ShutdownMode.LEAVE)
    assert consumer.shards == ()
    assert isinstance(consumer.poll(5), Leave)
    consumer.set_goal(ShutdownMode.STOP)
    assert consumer.goal is ShutdownMode.LEAVE
