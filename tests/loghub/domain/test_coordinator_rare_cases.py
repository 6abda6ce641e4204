"""Cases that few groups meet; each shows that one condition of the coordinator is needed."""

from loghub.domain.coordinator import restore, step
from loghub.domain.fsm import ShardState, ShardTrigger
from loghub.domain.group import Heartbeat, LogShard, ShardEntry, ShardsChanged
from tests.loghub.domain.driver import Driver, in_transfer, triggers


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
