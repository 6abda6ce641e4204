"""Each edge of the table as the coordinator applies it. A test is named from state to state.

After the edges come cases that few groups meet; each shows that one condition of the coordinator is needed.
`test_coordinator_facts` tests what is not an edge, tests/scenarios longer sequences, and tests/properties
every order of events.
"""

import pytest

from loghub.domain.coordinator import next_deadline, restore, step
from loghub.domain.fsm import ShardState, ShardTrigger
from loghub.domain.group import Heartbeat, LogShard, SaveCheckpoint, ServicePaused, ShardEntry, ShardsChanged
from tests.loghub.domain.driver import Driver, in_transfer, triggers, two_consumers

# --- edge 1 ------------------------------------------------------------------------------------


def test_new_to_not_alloc_when_it_has_no_ancestor() -> None:
    assert Driver(1, order=True).line(0) == "not_alloc"


def test_new_to_wait_when_an_ancestor_is_not_consumed() -> None:
    driver = Driver(1, order=True)
    driver.split(0, end=5, into=(1, 2))
    assert [driver.line(s) for s in (0, 1, 2)] == ["not_alloc", "wait", "wait"]


def test_new_to_not_alloc_behind_an_ancestor_in_an_unordered_group() -> None:
    driver = Driver(1, order=False)
    driver.split(0, end=5, into=(1, 2))
    assert [driver.line(s) for s in (0, 1, 2)] == ["not_alloc"] * 3


def test_new_to_not_alloc_when_its_parent_was_deleted() -> None:
    assert Driver((LogShard(shard=7, parents=(3,)),), order=True).line(7) == "not_alloc"


def test_a_new_ordered_group_over_old_splits_waits_by_generation() -> None:
    driver = Driver(
        (
            LogShard(shard=0, end_cursor=5),
            LogShard(shard=1, parents=(0,), end_cursor=5),
            LogShard(shard=2, parents=(0,)),
            LogShard(shard=3, parents=(1,)),
        ),
        order=True,
    )
    assert [driver.line(s) for s in range(4)] == ["not_alloc", "wait", "wait", "wait"]
    driver.heartbeat("a")
    driver.checkpoint("a", 0, 5)
    assert [driver.line(s) for s in range(4)] == ["over", "already_alloc a", "already_alloc a", "wait"]


# --- edges 2, 3 --------------------------------------------------------------------------------


def test_wait_to_not_alloc_to_already_alloc_when_the_parent_is_consumed() -> None:
    driver = Driver(1, order=True)
    driver.heartbeat("a")
    driver.split(0, end=5, into=(1, 2))
    created = driver.do(SaveCheckpoint(consumer="a", shard=0, cursor=5, force=False))
    assert triggers(created, 1) == [ShardTrigger.ANCESTORS_CONSUMED, ShardTrigger.ASSIGNED]


def test_not_alloc_to_already_alloc_on_the_first_heartbeat() -> None:
    driver = Driver(3)
    assert driver.heartbeat("a") == (0, 1, 2)


def test_not_alloc_to_already_alloc_immediately_for_a_new_shard() -> None:
    driver = two_consumers()
    driver.put_shard(2)
    driver.report_shards()
    assert driver.line(2) == "already_alloc a"


def test_not_alloc_to_already_alloc_to_transfer_for_a_late_consumer_that_reports_it() -> None:
    """It gets them first, and only once it no longer reports them; then balance moves one like any other."""
    driver = Driver(2)
    driver.heartbeat("b")
    driver.advance(20)
    driver.heartbeat("a")
    driver.heartbeat("a", 0, 1)  # not its: a late heartbeat, or a second process of its name
    driver.heartbeat("c")
    driver.advance(10)
    driver.tick()  # b is gone
    for shard in (0, 1):
        assert triggers(driver.last, shard)[-2:] == [ShardTrigger.ASSIGNED, ShardTrigger.MOVED_TO_BALANCE]
    assert [driver.line(s) for s in (0, 1)] == ["transfer a -> a", "transfer a -> c"]
    assert driver.heartbeat("a", 0, 1) == ()
    assert driver.heartbeat("a") == (0,)
    assert driver.heartbeat("c") == (1,)


# --- edges 4, 9 --------------------------------------------------------------------------------


def test_already_alloc_to_not_alloc_when_the_holder_times_out() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.advance(30)
    driver.tick()
    assert driver.line(0) == "not_alloc"
    assert driver.state.consumers == {}


def test_already_alloc_stays_one_moment_before_the_timeout() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.advance(29.999)
    driver.tick()
    assert driver.line(0) == "already_alloc a"


def test_already_alloc_stays_when_a_late_heartbeat_comes_before_the_tick() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.advance(31)
    driver.heartbeat("a", 0)
    driver.tick()
    assert driver.line(0) == "already_alloc a"


def test_transfer_to_not_alloc_to_already_alloc_when_the_holder_times_out() -> None:
    driver = in_transfer()
    driver.advance(20)
    driver.heartbeat("b")
    driver.advance(10)
    driver.tick()
    assert triggers(driver.last, 1) == [ShardTrigger.HOLDER_TIMED_OUT, ShardTrigger.ASSIGNED]
    assert driver.line(1) == "already_alloc b"


def test_transfer_to_not_alloc_when_holder_and_next_holder_time_out_in_one_tick() -> None:
    driver = in_transfer()
    driver.advance(30)
    driver.tick()
    assert triggers(driver.last, 1) == [ShardTrigger.HOLDER_TIMED_OUT]
    assert driver.line(1) == "not_alloc"


# --- edges 5, 6 --------------------------------------------------------------------------------


def test_already_alloc_to_transfer_when_a_consumer_joins() -> None:
    driver = Driver(2)
    driver.heartbeat("a")
    assert driver.heartbeat("b") == ()
    assert driver.line(1) == "transfer a -> b"


def test_transfer_stays_while_the_holder_reports_the_shard() -> None:
    driver = in_transfer()
    for _ in range(5):
        assert driver.heartbeat("a", 0, 1) == (0,)
        assert driver.heartbeat("b") == ()
    assert driver.line(1) == "transfer a -> b"


def test_transfer_stays_when_the_next_holder_does_not_report_it() -> None:
    driver = in_transfer()
    driver.heartbeat("b")
    assert driver.line(1) == "transfer a -> b"


def test_transfer_to_already_alloc_of_the_next_holder() -> None:
    driver = in_transfer()
    driver.heartbeat("a", 0)
    assert triggers(driver.last, 1) == [ShardTrigger.HOLDER_RELEASED]
    assert driver.heartbeat("b") == (1,)


def test_transfer_is_bound_to_the_holder_when_the_next_holder_times_out() -> None:
    driver = in_transfer()
    driver.advance(20)
    driver.heartbeat("a", 0, 1)
    driver.advance(10)
    driver.tick()
    assert triggers(driver.last, 1) == [ShardTrigger.NEXT_TIMED_OUT]
    assert driver.line(1) == "transfer a -> a"
    assert driver.heartbeat("a", 0, 1) == (0,), "its last answer omitted 1: it may be shutting 1 down"
    assert driver.heartbeat("a", 0) == (0, 1)


# --- edges 7, 8, 13, 14 ------------------------------------------------------------------------


def test_already_alloc_to_over_at_the_end_only() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.heartbeat("a", 0)
    driver.close_shard(0, end=5)
    driver.report_shards()
    assert driver.checkpoint("a", 0, 4) is None
    assert driver.line(0) == "already_alloc a"
    assert driver.checkpoint("a", 0, 5) is None
    assert driver.line(0) == "over"
    assert driver.heartbeat("a", 0) == ()


def test_already_alloc_stays_while_the_shard_takes_writes() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.checkpoint("a", 0, 5)
    assert driver.line(0) == "already_alloc a"


def test_over_to_not_alloc_to_already_alloc_by_force() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.heartbeat("a", 0)
    driver.close_shard(0, end=5)
    driver.report_shards()
    driver.checkpoint("a", 0, 5)
    assert driver.checkpoint("", 0, 2, force=True) is None
    assert triggers(driver.last, 0) == [
        ShardTrigger.FORCED_BACK,
        ShardTrigger.ASSIGNED,
        ShardTrigger.MOVED_TO_BALANCE,
    ]
    assert [passage.holder for passage in driver.last.transitions] == [None, "a", "a"]
    assert driver.heartbeat("a", 0) == ()
    assert driver.heartbeat("a") == (0,)


def test_over_stays_when_forced_to_the_end_again_or_when_empty() -> None:
    driver = Driver((LogShard(shard=0, end_cursor=5), LogShard(shard=1, begin_cursor=5, end_cursor=5)))
    driver.checkpoint("", 0, 5, force=True)
    driver.checkpoint("", 0, 6, force=True)
    driver.checkpoint("", 1, 2, force=True)
    assert [driver.line(s) for s in (0, 1)] == ["over", "over"]


def test_what_is_taken_before_the_holder_has_reported_it_is_answered_once_more() -> None:
    driver = Driver(3)
    assert driver.heartbeat("a") == (0, 1, 2)
    driver.heartbeat("b")
    assert driver.heartbeat("a", 0, 1, 2) == (0, 1, 2)
    assert driver.line(2) == "transfer a -> b"
    assert driver.heartbeat("a", 0, 1, 2) == (0, 1)
    assert driver.heartbeat("a", 0, 1) == (0, 1)
    assert driver.heartbeat("b") == (2,)


def test_what_is_over_before_the_holder_has_reported_it_is_answered_once_more() -> None:
    """A reset may reopen it, and a holder that has never seen it would report it without end."""
    driver = Driver(2)
    driver.heartbeat("a")
    driver.close_shard(1, end=5)
    driver.report_shards()
    driver.checkpoint("", 1, 5, force=True)
    assert driver.line(1) == "over"
    assert driver.heartbeat("a", 0, 1) == (0, 1)
    assert driver.heartbeat("a", 0, 1) == (0,)
    assert driver.heartbeat("a", 0) == (0,)


def test_transfer_to_over_when_the_holder_reaches_the_end() -> None:
    driver = in_transfer()
    driver.close_shard(1, end=5)
    driver.report_shards()
    assert driver.checkpoint("a", 1, 5) is None
    assert triggers(driver.last, 1) == [ShardTrigger.END_CHECKPOINTED]
    driver.heartbeat("a", 0)
    assert driver.heartbeat("b") == ()


@pytest.mark.parametrize("order", [False, True])
def test_not_alloc_and_wait_to_over_by_force_at_the_end(order: bool) -> None:
    driver = Driver(1, order=order)
    driver.split(0, end=5, into=(1, 2))
    driver.close_shard(1, end=3)
    driver.report_shards()
    driver.checkpoint("", 1, 3, force=True)
    assert triggers(driver.last, 1) == [ShardTrigger.END_CHECKPOINTED]
    driver.checkpoint("", 0, 5, force=True)
    assert [driver.line(s) for s in (0, 1, 2)] == ["over", "over", "not_alloc"]


# --- row 10 ------------------------------------------------------------------------------------


def test_every_state_to_over_when_nothing_is_left() -> None:
    driver = in_transfer()  # 0 already_alloc, 1 transfer
    driver.configure(order=True)
    driver.put_shard(2, parents=(0,))  # wait
    driver.report_shards()
    for shard in (0, 1, 2):
        driver.close_shard(shard, begin=5, end=5)
    driver.report_shards()
    assert [driver.line(s) for s in (0, 1, 2)] == ["over"] * 3

    unassigned = Driver(1)
    unassigned.close_shard(0, begin=5, end=5)
    unassigned.report_shards()
    assert triggers(unassigned.last, 0) == [ShardTrigger.NOTHING_LEFT]


def test_already_alloc_to_over_when_all_was_saved_before_the_split() -> None:
    driver = Driver(1, order=True)
    driver.heartbeat("a")
    driver.checkpoint("a", 0, 5)
    driver.split(0, end=5, into=(1, 2))
    assert [driver.line(s) for s in (0, 1, 2)] == ["over", "already_alloc a", "already_alloc a"]


# --- rows 11, 12, 15 ---------------------------------------------------------------------------


def test_already_alloc_to_not_alloc_when_the_holder_leaves() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.leave("a")
    assert triggers(driver.last, 0) == [ShardTrigger.HOLDER_LEFT]
    assert next_deadline(driver.state) is None


def test_transfer_to_not_alloc_when_the_holder_leaves() -> None:
    driver = in_transfer()
    driver.leave("a")
    assert triggers(driver.last, 1) == [ShardTrigger.HOLDER_LEFT, ShardTrigger.ASSIGNED]
    assert driver.heartbeat("b") == (0, 1)


def test_transfer_is_bound_to_the_holder_when_the_next_holder_leaves() -> None:
    driver = in_transfer()
    driver.leave("b")
    assert triggers(driver.last, 1) == [ShardTrigger.NEXT_LEFT]
    assert driver.heartbeat("a", 0, 1) == (0,)
    assert driver.heartbeat("a", 0) == (0, 1)


def test_a_leave_of_an_unknown_consumer_changes_nothing() -> None:
    driver = two_consumers()
    before = driver.state
    driver.leave("z")
    assert driver.state == before
    assert driver.last.facts == ()


def test_wait_to_not_alloc_when_order_is_switched_off() -> None:
    driver = Driver(1, order=True)
    driver.split(0, end=5, into=(1, 2))
    driver.configure(order=False)
    assert triggers(driver.last, 1) == [ShardTrigger.ORDER_DROPPED]


def test_not_alloc_stays_when_order_is_switched_on() -> None:
    driver = Driver(1)
    driver.split(0, end=5, into=(1, 2))
    driver.configure(order=True)
    assert [driver.line(s) for s in (1, 2)] == ["not_alloc", "not_alloc"]
    driver.split(1, end=5, into=(3, 4))
    assert driver.line(3) == "wait"


def test_transfer_is_bound_to_the_holder_when_balance_no_longer_moves_it() -> None:
    driver = Driver(4)
    driver.heartbeat("a")
    driver.heartbeat("b")
    assert [driver.line(s) for s in (2, 3)] == ["transfer a -> b"] * 2
    for shard in (0, 1):
        driver.close_shard(shard, begin=5, end=5)
    driver.report_shards()
    assert triggers(driver.last, 3) == [ShardTrigger.REBOUND]
    assert [driver.line(s) for s in (2, 3)] == ["transfer a -> b", "transfer a -> a"]


def test_transfer_is_bound_to_another_by_balance() -> None:
    driver = Driver(4)
    driver.heartbeat("a")
    driver.heartbeat("b")
    driver.heartbeat("c")
    assert triggers(driver.last, 3) == [ShardTrigger.REBOUND]
    assert driver.line(3) == "transfer a -> c"


# --- the service was paused -------------------------------------------------------------------


def test_a_pause_of_the_service_counts_as_silence_for_nobody() -> None:
    driver = two_consumers()
    driver.advance(29.0)
    driver.heartbeat("a", 0)
    driver.advance(100.0)
    driver.do(ServicePaused(pause_s=100.0))
    driver.tick()
    assert (driver.line(0), driver.line(1)) == ("already_alloc a", "already_alloc b")
    driver.advance(1.0)
    driver.tick()
    assert (driver.line(0), driver.line(1)) == ("already_alloc a", "already_alloc a"), "b had 1 s left"
    driver.advance(29.0)
    driver.tick()
    assert driver.line(0) == "not_alloc", "a had 30 s left"


def test_a_heartbeat_read_before_the_pause_was_noticed_gains_nothing_more() -> None:
    driver = two_consumers()
    driver.advance(100.0)
    driver.heartbeat("a", 0)
    driver.do(ServicePaused(pause_s=100.0))
    assert driver.state.consumers["a"].last_heartbeat_s == driver.now
    driver.advance(30.0)
    driver.tick()
    assert driver.line(0) == "not_alloc"


def completed_before_it_was_reported() -> Driver:
    """z got the read-only shard 0 in its last answer and completed it without another heartbeat; b has 1."""
    driver = Driver((LogShard(shard=0, end_cursor=3), LogShard(shard=1), LogShard(shard=2)))
    driver.heartbeat("z")
    driver.heartbeat("b")
    driver.heartbeat("z")
    assert driver.line(0) == "already_alloc z"
    driver.checkpoint("z", 0, 3)
    assert driver.line(0) == "over"
    return driver


def test_over_to_already_alloc_for_the_last_holder_that_never_reported_it() -> None:
    driver = completed_before_it_was_reported()
    assert "z" in driver.state.consumers
    assert 0 not in driver.state.consumers["z"].held
    driver.checkpoint("", 0, 1, force=True)
    assert driver.state.shards[0].holder == "z"


def test_nothing_left_to_already_alloc_for_the_last_holder_that_never_reported_it() -> None:
    """The end was saved before the shard was split."""
    driver = Driver(3)
    driver.heartbeat("z")
    driver.heartbeat("b")
    driver.heartbeat("z")
    driver.checkpoint("z", 0, 3)
    driver.split(0, end=3, into=(3, 4))
    assert driver.line(0) == "over"
    assert driver.state.shards[0].last_holder == "z"
    driver.checkpoint("", 0, 1, force=True)
    assert driver.state.shards[0].holder == "z"


def test_only_the_last_holder_says_that_it_no_longer_works_on_a_completed_shard() -> None:
    driver = completed_before_it_was_reported()
    driver.heartbeat("b")
    assert driver.state.shards[0].last_holder == "z"
    driver.heartbeat("z", 0)
    assert driver.state.shards[0].last_holder == "z"
    driver.heartbeat("z")
    assert driver.state.shards[0].last_holder is None


def test_a_free_shard_after_a_restart_goes_to_the_least_loaded_as_nobody_works_on_it() -> None:
    held = {0: "a", 1: "b", 2: "b", 3: "c"}
    entries = [
        ShardEntry(log_shard=LogShard(shard=s), state=ShardState.ALREADY_ALLOC, holder=name)
        for s, name in held.items()
    ]
    restored = restore(group="g", timeout_s=30.0, order=False, entries=entries, now=0.0)
    assert {c.name: c.held for c in restored.consumers.values()} == {
        "a": frozenset({0}),
        "b": frozenset({1, 2}),
        "c": frozenset({3}),
    }


def test_the_first_shard_of_an_ordered_group_never_waits() -> None:
    driver = Driver(1, order=True)
    assert triggers(driver.last, 0) == [ShardTrigger.APPEARED]


def test_a_child_waits_for_its_grandparent_behind_an_empty_parent() -> None:
    driver = Driver(1, order=True)
    driver.heartbeat("a")
    driver.split(0, end=3, into=(1, 2))
    driver.split(1, begin=2, end=2, into=(3, 4))
    assert driver.line(1) == "over"
    assert driver.line(3) == "wait"


def test_a_shard_that_is_moving_stays_in_transfer_while_the_balance_is_the_same() -> None:
    driver = in_transfer()
    driver.report_shards()
    assert driver.line(1) == "transfer a -> b"
    assert driver.last.transitions == ()


def test_transfer_is_bound_to_the_holder_rather_than_a_third_consumer() -> None:
    """z still works on what moves from it to b; c, which is as idle and earlier by name, does not get it."""
    transfer = ShardState.TRANSFER
    entries = [
        ShardEntry(log_shard=LogShard(shard=0), state=ShardState.ALREADY_ALLOC, holder="z"),
        ShardEntry(log_shard=LogShard(shard=1), state=transfer, holder="z", next_holder="b"),
        ShardEntry(log_shard=LogShard(shard=2), state=transfer, holder="z", next_holder="b"),
        ShardEntry(log_shard=LogShard(shard=3), state=ShardState.ALREADY_ALLOC, holder="c"),
    ]
    restored = restore(group="g", timeout_s=30.0, order=False, entries=entries, now=0.0)
    remaining = ShardsChanged(shards=(LogShard(shard=1), LogShard(shard=2)))
    done = step(restored, remaining, now=1.0)
    assert triggers(done, 2) == [ShardTrigger.REBOUND]
    assert (done.state.shards[2].holder, done.state.shards[2].next_holder) == ("z", "z")


def test_a_shard_that_two_consumers_report_goes_to_the_first_by_name() -> None:
    driver = Driver(1)
    for name in ("c", "a", "b"):
        driver.heartbeat(name)
    driver.heartbeat("b", 0)
    driver.heartbeat("a", 0)
    driver.leave("c")
    assert driver.line(0) == "transfer a -> a"


def test_a_deleted_shard_is_no_longer_among_those_that_a_consumer_reported() -> None:
    driver = Driver(2)
    driver.heartbeat("a")
    driver.heartbeat("a", 0, 1)
    driver.delete_shard(1)
    driver.report_shards()
    assert driver.state.consumers["a"].held == {0}


def test_a_consumer_that_the_group_does_not_know_may_report_only_shards_that_no_longer_exist() -> None:
    driver = Driver(2)
    driver.delete_shard(1)
    driver.report_shards()
    assert driver.do(Heartbeat(consumer="a", held=frozenset({0, 1}))).refusal == "NotExistConsumerWithBody"
    assert not driver.state.consumers
    assert driver.heartbeat("a", 1) == (0,)


def test_a_shard_goes_to_the_next_holder_only_once_that_does_not_report_it_either() -> None:
    """A late heartbeat of b, of the time when it had shard 1."""
    driver = in_transfer()
    driver.heartbeat("b", 1)
    assert driver.heartbeat("a", 0) == (0,)
    assert triggers(driver.last, 1) == [ShardTrigger.REBOUND]
    assert driver.line(1) == "transfer b -> b"
    assert driver.heartbeat("b") == (1,)
